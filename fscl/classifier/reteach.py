"""Everything a model has stored, taught again: to another base, by another method.

A picture is taught from its original, where one was kept; else as the old base saw it, where the new one takes the same
shape.
"""

import numpy as np
import torch
from torch import Tensor

from fscl.classifier.inputs import Shape
from fscl.classifier.knowledge import Knowledge, Lesson
from fscl.classifier.model import Model
from fscl.classifier.store.originals import OriginalStore
from fscl.data.images import open_plain
from fscl.errors import MisuseError

FORMATS = ("PNG", "JPEG")  # of originals


def stored_lesson(old: Model, shape: Shape, *, when: str) -> tuple[Lesson, OriginalStore | None]:
    """The stored examples of a model as one lesson for a base that takes `shape`, and where their originals are.

    Args:
        old: the model that has them.
        shape: what the new base takes.
        when: the time of the call.
    """
    knowledge = old.snapshot.knowledge
    if knowledge.examples is None or 0 in knowledge.counts:
        raise MisuseError(
            "there is nothing to teach again for some classes: memory_bytes left no example of them. Teach a new model "
            "from your files."
        )
    images, originals = knowledge.examples.images, None
    if not old.has_rows:
        originals = None if old.folder is None else old.folder.images.originals
        images, originals = _pictures(knowledge, old.shape, shape, images, originals)
    labels = tuple(knowledge.classes[number] for number in knowledge.examples.labels.tolist())
    return Lesson(images, labels, knowledge.sources, "learn", when), originals


def _pictures(
    knowledge: Knowledge, old: Shape, new: Shape, images: Tensor, originals: OriginalStore | None
) -> tuple[Tensor, OriginalStore | None]:
    names = [""] * len(images) if originals is None else originals.names_of(images)
    missing, fits = names.count(""), (old.image_size, old.channels) == (new.image_size, new.channels)
    if missing and not fits:
        raise MisuseError(
            f"{missing} of the {len(names)} stored pictures have no original, and the new base takes pictures of "
            f"{new.image_size}×{new.image_size} with {new.channels} channels, not {old.image_size}×{old.image_size} with "
            f"{old.channels}. Teach a new model from your files, or take a base of the same shape."
        )
    taught = []
    for name, stored in zip(names, images, strict=True):
        if name and originals is not None:
            plain = open_plain(originals.content(name), name=str(originals.path(name)), formats=FORMATS)
            taught.append(new.tensor(np.ascontiguousarray(new.pixels(plain))[None])[0])
        else:
            taught.append(stored if old.invert == new.invert else 255 - stored)
    again = torch.stack(taught)
    if originals is None:
        return again, None
    found = OriginalStore(originals.folder)
    found.remember(again, names)
    return again, found
