"""What an inspection found, as values that go into a run directory as JSON and come back checked."""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fscl.errors import StorageError
from fscl.storage import digest, json_bytes, read_json, write_bytes

MAX_BYTES = 16 * 2**20
MAX_POINTS = 10_000  # of one curve

Measure = Literal["fisher information", "path integral", "output sensitivity", "gate"]
Size = Annotated[float, Field(ge=0)]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Drift(_Value):
    """Where the images of one task lie in the embedding, moment after moment.

    Attributes:
        after: tasks learned at each moment, ascending.
        labels: the class of each image.
        points: (moments, images, 2): two principal components of all moments together, in units of the first one's spread.
        explained: the share of the features' variance, over all moments, that the two components show.
        moved: for each moment, the mean distance of an image's features from where they were at the first moment, in all
            dimensions, in the same unit.
        apart: for each moment, the scatter between classes over that within them; None where no class has two images that
            differ.
    """

    after: tuple[int, ...] = Field(min_length=1)
    labels: tuple[int, ...] = Field(min_length=1)
    points: tuple[tuple[tuple[float, float], ...], ...]
    explained: float = Field(ge=0, le=1.000001)
    moved: tuple[Size, ...]
    apart: tuple[Size | None, ...]

    @model_validator(mode="after")
    def _shapes_agree(self) -> "Drift":
        if {len(self.points), len(self.moved), len(self.apart)} != {len(self.after)}:
            raise ValueError(f"there are {len(self.after)} moments, but not as many values")
        if any(len(moment) != len(self.labels) for moment in self.points):
            raise ValueError(f"there are {len(self.labels)} images, but not as many points at each moment")
        return self


class FisherReading(_Value):
    """The diagonal of the empirical Fisher information, summed over each parameter tensor, and the loss beside it."""

    loss: Size
    layers: dict[str, Size]

    @property
    def trace(self) -> float:
        return sum(self.layers.values())


class FisherPoint(_Value):
    """One state of the weights, on the images that it learns from and on others of the same classes."""

    step: int = Field(ge=0)
    shots: FisherReading
    test: FisherReading


class Penalties(_Value):
    """How firmly the weights of the embedding are held: a histogram over all of them.

    Attributes:
        after: tasks learned.
        strength: what multiplies every one of the values in the penalty (λ).
        low, high: the ends of the histogram; its bins are of equal width.
    """

    measure: Measure
    after: int = Field(ge=1)
    strength: Size
    low: float
    high: float
    mean: float
    counts: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1, max_length=1000)

    @model_validator(mode="after")
    def _is_a_range(self) -> "Penalties":
        if self.high <= self.low:
            raise ValueError(f"the histogram goes from {self.low:g} to {self.high:g}")
        return self

    def edges(self) -> list[float]:
        """Where bins begin and end: one more than there are bins."""
        n = len(self.counts)
        return [self.low + (self.high - self.low) * place / n for place in range(n + 1)]


class Inspection(_Value):
    """What was seen of one method on the first sequence."""

    method: str
    drift: Drift | None = None
    fisher: tuple[FisherPoint, ...] = Field(default=(), max_length=MAX_POINTS)
    penalties: Penalties | None = None


class Watch(_Value):
    """What was seen of meta-training, validation by validation; `asked` is a fingerprint of what was trained and watched."""

    asked: str
    fisher: tuple[FisherPoint, ...] = Field(default=(), max_length=MAX_POINTS)


Found = TypeVar("Found", Inspection, Watch)


def found_json(found: Inspection | Watch) -> bytes:
    """A JSON file of what was found, with a digest of it."""
    content = found.model_dump(mode="json")
    return json_bytes(_kind(type(found)), {"digest": digest(content), "found": content})


def save_found(path: Path, found: Inspection | Watch) -> None:
    """Write what was found, with a digest of it."""
    write_bytes(path, found_json(found))


def load_found(path: Path, what: type[Found]) -> Found:
    """Read what `save_found` wrote. A file that is cut off, altered or of another kind is refused by name."""
    way_out = "Delete it to have the report without it."
    if path.is_file() and path.stat().st_size > MAX_BYTES:
        raise StorageError(
            f"{path} has {path.stat().st_size:,} bytes; an inspection has at most {MAX_BYTES:,}. {way_out}"
        )
    content: dict[str, Any] = read_json(path, _kind(what))
    if content.get("digest") != digest(content.get("found")):
        raise StorageError(f"{path} was altered after it was written: its digest does not match. {way_out}")
    try:
        return what.model_validate(content["found"])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise StorageError(f"{path} is damaged: {where}: {first['msg']}. {way_out}") from error


def _kind(what: type[Inspection] | type[Watch]) -> str:
    return what.__name__.lower()
