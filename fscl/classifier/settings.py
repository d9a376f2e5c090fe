"""How a classifier learns: the parameters of `ContinualClassifier`, what `model.json` records, and what a teacher obeys."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fscl.errors import MisuseError

Count = Annotated[int, Field(ge=0)]


class ClassifierSettings(BaseModel):
    """Fixed once a classifier begins to learn. The names are those of the parameters; `seed` is drawn from `random_state`.

    Attributes:
        base: the name of a base that comes with the package; None for one of the user's own.
        method: a name from `fscl methods`, or `package.module:Class`.
        settings: those of the method that differ from its own.
        memory_bytes: of stored examples at most; None for no bound.
        keep_states: how many earlier states can be gone back to; None for all.
        invert: whether light and dark are exchanged.
        originals: whether a model in a folder keeps the pictures as they were given, too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: str | None = None
    method: str
    settings: dict[str, Any] = Field(default_factory=dict)
    memory_bytes: Count | None = None
    keep_states: Count | None = None
    invert: bool = False
    originals: bool = True
    seed: int = 0

    @classmethod
    def checked(cls, **values: Any) -> "ClassifierSettings":
        """From parameters; a value that cannot be is a sentence that names it."""
        try:
            return cls(**values)
        except ValidationError as error:
            name, value, rule = first_fault(error)
            raise MisuseError(f"{name} cannot be {value!r}: {rule}.") from error


def first_fault(error: ValidationError) -> tuple[str, Any, str]:
    """The first value that pydantic refuses: its name, the value, and the rule."""
    first = error.errors()[0]
    return ".".join(map(str, first["loc"])), first["input"], first["msg"]
