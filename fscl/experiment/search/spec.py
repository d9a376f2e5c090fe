"""The table `[search]` of a configuration: which settings of a method to try, how often, and how soon to give one up."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fscl.errors import ConfigError

Scalar = bool | int | float | str


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Dimension(_Section):
    """What a setting may be: one of `values`, or a number from `low` to `high`, whole if both ends are.

    Attributes:
        log: numbers are drawn evenly on a logarithmic scale.
        step: numbers are `low`, `low + step`, and so on.
    """

    values: tuple[Scalar, ...] | None = None
    low: int | float | None = None
    high: int | float | None = None
    log: bool = False
    step: int | float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_or_the_other(self) -> "Dimension":
        if self.values is not None:
            if self.log or any(other is not None for other in (self.low, self.high, self.step)):
                raise ValueError("values names every value, so low, high, log and step have no effect; remove them")
            if len({repr(value) for value in self.values}) < max(len(self.values), 2):
                raise ValueError("values needs at least two, each once")
            return self
        if self.low is None or self.high is None or not self.low < self.high:
            raise ValueError("needs values, or low and high, of which high is the larger")
        if self.log and (self.low <= 0 or self.step is not None):
            raise ValueError("log needs a low above 0, and no step")
        if self.is_whole and isinstance(self.step, float):
            raise ValueError(f"low and high are whole numbers, so step must be one, but it is {self.step}")
        return self

    @property
    def is_whole(self) -> bool:
        """Whether only whole numbers are drawn."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def ends(self) -> tuple[Scalar, ...]:
        """The values that show whether a method can have all of them."""
        return self.values if self.values is not None else tuple(v for v in (self.low, self.high) if v is not None)

    def holds(self, value: Any) -> bool:
        """Whether a value is one that can be drawn."""
        if self.values is not None:
            return any(value == known and type(value) is type(known) for known in self.values)
        is_number = isinstance(value, int) if self.is_whole else isinstance(value, float)
        if not is_number or self.low is None or self.high is None or not self.low <= value <= self.high:
            return False
        return self.step is None or ((value - self.low) / self.step) % 1 == 0


def _by_path(space: Any, prefix: str = "") -> Any:
    """`regulariser.strength = {…}`, which TOML reads as sections, under its path."""
    if not isinstance(space, Mapping):
        return space
    found: dict[str, Any] = {}
    for key, value in space.items():
        path = f"{prefix}{key}"
        is_section = isinstance(value, Mapping) and not value.keys() & Dimension.model_fields.keys()
        found |= _by_path(value, f"{path}.") if is_section and value else {path: value}
    return found


class SearchSpec(_Section):
    """A search: trials of a method's settings on sequences of validation classes, with successive halving.

    Every trial learns the `first` sequences. Of those that have as many, one in `keep` goes on to `keep` times as many, and
    so on, up to `run.n_sequences`.

    Attributes:
        method: of `run.methods`, whose settings are tried.
        trials: how many.
        at_a_time: trials that are drawn together, before any of them is known: what can be computed at the same time.
        seed: of the sampler. Streams have the seed of the configuration.
        space: by path below `settings.<method>`.
    """

    method: str
    trials: int = Field(default=24, ge=1, le=10_000)
    at_a_time: int = Field(default=6, ge=1, le=1000)
    first: int = Field(default=1, ge=1)
    keep: int = Field(default=3, ge=2, le=100)
    seed: int = Field(default=0, ge=0, lt=2**32)
    space: Annotated[dict[str, Dimension], BeforeValidator(_by_path), Field(min_length=1, max_length=50)]

    def levels(self, n_sequences: int) -> list[int]:
        """How many sequences a trial has at each level."""
        found, n = [], self.first
        while n < n_sequences:
            found.append(n)
            n *= self.keep
        return [*found, n_sequences]


def refuse_search(search: object, name: str) -> None:
    """A configuration with a search is for `fscl search` alone."""
    if search is not None:
        raise ConfigError(
            f"{name} has a table [search], which has an effect in `fscl search` alone. Run the winner.toml that it writes, "
            "or take the table out."
        )
