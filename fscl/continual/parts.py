"""What the parts that a method is put together from have in common: each is one of several kinds, with its own settings."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """The settings of one kind of a part; a subclass has a `kind`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def as_section(given: Any) -> Any:
    """A kind by its name alone stands for all of its defaults: `memory = "none"` is `memory = {kind = "none"}`."""
    return {"kind": given} if isinstance(given, str) else given
