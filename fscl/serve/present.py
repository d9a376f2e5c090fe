"""The state that the service answers from, as one value that is replaced by one assignment."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fscl.classifier.changes import StoredExample, stored_examples
from fscl.classifier.knowledge import Knowledge
from fscl.classifier.model import Model
from fscl.classifier.store.manifest import Manifest
from fscl.classifier.teacher import Snapshot
from fscl.serve.refusals import Refusal


@dataclass(frozen=True, eq=False)
class Present:
    """A state with its number.

    Attributes:
        number: of the state, never used twice; 0 for the empty model.
        seal: a fingerprint of the manifest that names the state.
        model: whose state it is; its settings and base never change.
    """

    number: int
    seal: str
    snapshot: Snapshot
    model: Model

    @classmethod
    def of(cls, model: Model, manifest: Manifest, snapshot: Snapshot) -> "Present":
        """The state that a manifest names."""
        number = manifest.states[-1].number if manifest.states else 0
        return cls(number, manifest.seal, snapshot, model)

    @property
    def knowledge(self) -> Knowledge:
        return self.snapshot.knowledge

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """A name for the content of each stored example."""
        examples = self.knowledge.examples
        return () if examples is None else tuple(key_of(each.numpy()) for each in examples.images)

    @cached_property
    def positions(self) -> dict[str, int]:
        """Where the example of each key is."""
        return {key: position for position, key in enumerate(self.keys)}

    @cached_property
    def examples(self) -> tuple[StoredExample, ...]:
        """The stored examples, numbered."""
        return stored_examples(self.knowledge)

    def picture(self, key: str) -> Image.Image:
        """A stored example as a person sees it: as it was given, where that is kept."""
        position, examples = self.positions.get(key), self.knowledge.examples
        if position is None or examples is None:
            raise Refusal("not_found", f"there is no stored example {key[:40]!r} (any more).")
        stored, folder = examples.images[position], self.model.folder
        if folder is not None:
            original = folder.images.originals.names_of(stored[None])[0]
            if original:
                from fscl.data.images import open_plain

                content = folder.images.originals.content(original)
                return open_plain(content, name="the original", formats=("PNG", "JPEG"))
        pixels = 255 - stored if self.model.shape.invert else stored
        last = np.ascontiguousarray(pixels.numpy().transpose(1, 2, 0))
        return Image.fromarray(last[..., 0] if last.shape[2] == 1 else last)


def key_of(example: NDArray[np.generic]) -> str:
    """A name for the content of a stored example."""
    return hashlib.sha256(np.ascontiguousarray(example).tobytes()).hexdigest()[:32]
