"""What a data set is: one object that says how it is configured, where it is, and what its three splits hold.

A set of your own is a subclass with its own `Options` and one instance of it; `docs/how-to/data.md` shows a whole one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field

from fscl.data.images import MAX_SIDE
from fscl.data.pool import ClassPool, Splits
from fscl.data.stream import Stream, StreamSpec, sample_stream
from fscl.errors import MisuseError

Progress = Callable[[int, int], None]
Tell = Callable[[str], None]


class DataSet(ABC):
    """A source of classes to train a base on, to choose it on, and to draw streams from.

    Examples:
        >>> from fscl.data.catalogue import find_data_set
        >>> find_data_set("glyphs")
        <data set 'glyphs'>

    Attributes:
        name: in a configuration, and of its pools.
        summary: one sentence for `fscl data list`.
        has_imagenet_classes: whether all its classes are ImageNet's, which pretrained networks have seen.
        in_imagenet: what ImageNet has of it otherwise, as the end of "ImageNet, which has …"; None for nothing.
        published_stream: whether it comes with the one stream to learn, on its test side; else streams are drawn at random.
    """

    name: str
    summary: str
    has_imagenet_classes: bool = False
    in_imagenet: str | None = None
    published_stream: bool = False

    class Options(BaseModel):
        """The keys of a `[data]` section; a subclass adds its own. `name` is how the configuration calls the set."""

        model_config = ConfigDict(frozen=True, extra="forbid")

        name: str
        image_size: int = Field(default=32, ge=16, le=MAX_SIDE)

    @abstractmethod
    def load(self, options: Any, progress: Progress | None = None, tell: Tell | None = None) -> Splits:
        """The three pools.

        Args:
            options: an instance of the set's own `Options` (annotate it so).
            progress: called with (done, in all), if loading takes its time.
            tell: called with a sentence for each file that is skipped.
        """

    @abstractmethod
    def find(self) -> str | None:
        """Where the set is, for people; None if it is not here."""

    def fetch(self) -> Path:
        """Get it from the network into the cache, unless it is there; for most sets there is no such way."""
        place = self.find()
        if place is None:
            raise MisuseError(f"{self.name!r} is not fetched by fscl: {self.how_to_get()}.")
        raise MisuseError(f"{self.name!r} needs no fetching: it is {place}.")

    def how_to_get(self) -> str:
        """What to do about a set that is not here; a part of a sentence."""
        return "put it into the folder that FSCL_DATA names"

    def needed_keys(self) -> dict[str, str]:
        """The options without which it cannot be loaded, each with an example of a value."""
        fields = self.Options.model_fields.items()
        needed = {key: field for key, field in fields if field.is_required() and key != "name"}
        return {key: str((field.examples or ["..."])[0]) for key, field in needed.items()}

    def vocabulary(self, options: Mapping[str, Any]) -> str:
        """Two data sets with one vocabulary mean the same class by the same name: a base must not know those of a stream.

        Args:
            options: as they stand in a record, maybe one of an earlier version.
        """
        return self.name

    def draw_stream(self, pool: ClassPool, spec: StreamSpec, generator: torch.Generator) -> Stream:
        """A stream of tasks from a pool of this set."""
        return sample_stream(pool, spec, generator)

    def __repr__(self) -> str:
        return f"<data set {self.name!r}>"
