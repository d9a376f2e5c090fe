"""A ClassPool is images grouped by class; Splits are three pools that share no class.

Images are uint8 tensors of shape (channels, height, width): small enough to hold a whole data set in memory, so nothing
here loads in the background. Networks scale them to [0, 1] when they use them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from fscl.device import MOST_BYTES_HELD
from fscl.errors import DataError, unknown_name
from fscl.storage import tensor_digest

SplitName = Literal["train", "validation", "test"]
ClassChoice = Literal["all", "first_half", "second_half"]


@dataclass(frozen=True, repr=False)
class Examples:
    """Images (n, channels, height, width) as uint8, and their labels (n,) as int64.

    Examples:
        >>> Examples(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1]))
        <Examples: 2 images of 1×8×8, 2 classes>

    Attributes:
        images: what is learned from, or asked.
        labels: the class of each.
    """

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        n_classes = len(self.labels.unique())
        return f"<Examples: {len(self)} images of {_shape(self.images)}, {n_classes} classes>"

    def to(self, device: torch.device | str) -> "Examples":
        """On a device; what is there already is not copied."""
        return Examples(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True, eq=False, repr=False)
class ClassPool:
    """Images grouped by class.

    Examples:
        >>> ClassPool("toy", torch.zeros(3, 1, 8, 8, dtype=torch.uint8), ("a", "b"), (2, 1)).of_class(1).shape
        torch.Size([1, 1, 8, 8])

    Attributes:
        name: what to call it in messages.
        images: uint8, (n_images, channels, height, width), class after class.
        class_names: one unique name a class, in the order of the images.
        counts: images of each class.
    """

    name: str
    images: Tensor
    class_names: tuple[str, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise DataError(
                f"pool {self.name!r} got images of type {self.images.dtype} and {self.images.ndim} dimensions; "
                "it takes uint8 of shape (n, channels, height, width)."
            )
        if len(self.class_names) != len(self.counts) or sum(self.counts) != len(self.images) or 0 in self.counts:
            raise DataError(
                f"pool {self.name!r} got {len(self.class_names)} class names, {len(self.counts)} counts summing to "
                f"{sum(self.counts)} and {len(self.images)} images; every class needs a name and at least one image."
            )
        if len(set(self.class_names)) != len(self.class_names):
            twice = sorted({name for name in self.class_names if self.class_names.count(name) > 1})
            raise DataError(f"pool {self.name!r} has classes with the same name: {', '.join(twice[:5])}.")

    def __len__(self) -> int:
        return len(self.class_names)

    def __repr__(self) -> str:
        n_images = f"{len(self.images)} images of {_shape(self.images)}"
        return f"<ClassPool {shortened(self.name)!r}: {len(self)} classes, {n_images}>"

    @property
    def image_shape(self) -> tuple[int, int, int]:
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    @property
    def per_class(self) -> str:
        """How many images a class has, for people."""
        fewest, most = min(self.counts, default=0), max(self.counts, default=0)
        return f"{fewest} a class" if fewest == most else f"{fewest} to {most} a class"

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Position of each class's first image."""
        starts = [0]
        for count in self.counts[:-1]:
            starts.append(starts[-1] + count)
        return tuple(starts)

    @cached_property
    def position(self) -> dict[str, int]:
        """Index of each class by its name."""
        return {name: index for index, name in enumerate(self.class_names)}

    @cached_property
    def content_hash(self) -> str:
        """A fingerprint of the names and of every pixel."""
        names = "\n".join(f"{name}:{count}" for name, count in zip(self.class_names, self.counts, strict=True))
        return tensor_digest({"images": self.images, names: torch.zeros(0)})

    def to(self, device: torch.device) -> "ClassPool":
        """With its images on a device, if they are not too many to hold there; else as it is, and each batch is moved."""
        if self.images.nbytes > MOST_BYTES_HELD:
            return self
        images = self.images.to(device)
        if images is self.images:
            return self
        moved = replace(self, images=images)
        moved.__dict__["content_hash"] = self.content_hash  # the same pixels, which need not come back to be hashed
        return moved

    def of_class(self, index: int) -> Tensor:
        """The images of one class, as a view."""
        return self.images[self.starts[index] : self.starts[index] + self.counts[index]]

    def subset(self, indices: Sequence[int], name: str | None = None) -> "ClassPool":
        """A pool with only these classes, in this order."""
        return ClassPool(
            name=name or self.name,
            images=torch.cat([self.of_class(index) for index in indices]) if indices else self.images[:0],
            class_names=tuple(self.class_names[index] for index in indices),
            counts=tuple(self.counts[index] for index in indices),
        )

    def require(self, *, n_classes: int, n_images: int, purpose: str) -> None:
        """Raise a DataError that says what would fit, unless there are enough classes with enough images each."""
        if n_classes > len(self):
            raise DataError(
                f"{purpose} needs {n_classes} classes, but {self.name!r} has {len(self)}. Ask for at most that."
            )
        enough = sum(count >= n_images for count in self.counts)
        if n_classes > enough:
            fits = sorted(self.counts, reverse=True)[n_classes - 1]
            raise DataError(
                f"{purpose} needs {n_classes} classes of {n_images} images each, but only {enough} of the {len(self)} "
                f"classes of {self.name!r} have as many. With {n_classes} classes, at most {fits} images each would fit."
            )


@dataclass(frozen=True, repr=False)
class Splits:
    """Three pools that share no class: to train the base on, to choose on, and to report on.

    Examples:
        >>> import fscl
        >>> splits = fscl.load_glyphs()
        >>> len(splits.train), len(splits.validation), len(splits.test)
        (840, 120, 240)

    Attributes:
        train: classes that the base is trained on.
        validation: classes that settings are chosen on.
        test: classes that results are reported on.
        known: classes that training and test share on purpose, other images of each: a stream begins with them.
    """

    train: ClassPool
    validation: ClassPool
    test: ClassPool
    known: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
            shared = set(self.pool(one).class_names) & set(self.pool(other).class_names)
            if shared - self.known:
                raise DataError(
                    f"the {one} and {other} splits share {len(shared)} classes, such as {min(shared)!r}; they must not."
                )

    def __repr__(self) -> str:
        parts = (f"{name} {len(self.pool(name))}" for name in ("train", "validation", "test"))
        return f"<Splits of {shortened(self.test.name)!r}: {', '.join(parts)} classes of {_shape(self.test.images)}>"

    def pool(self, split: str) -> ClassPool:
        """The pool of a split by its name."""
        pools = {"train": self.train, "validation": self.validation, "test": self.test}
        if split not in pools:
            raise unknown_name("split", split, pools)
        return pools[split]


def shortened(name: str, most: int = 60) -> str:
    """A name for one line."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _shape(images: Tensor) -> str:
    return "×".join(map(str, images.shape[1:]))


def split_classes(pool: ClassPool, *, train: Sequence[int], validation: Sequence[int], test: Sequence[int]) -> Splits:
    """Split a pool by the indices of its classes."""
    return Splits(
        train=pool.subset(train, f"{pool.name} (train)"),
        validation=pool.subset(validation, f"{pool.name} (validation)"),
        test=pool.subset(test, f"{pool.name} (test)"),
    )


def chosen_classes(pool: ClassPool, choice: ClassChoice) -> ClassPool:
    """All classes of a pool, or one half of them in their order; of an odd number the second half has one more."""
    if choice == "all":
        return pool
    middle = len(pool) // 2
    half = range(middle) if choice == "first_half" else range(middle, len(pool))
    return pool.subset(half, f"{pool.name}, {choice.replace('_', ' ')}")


def with_rotations(pool: ClassPool) -> ClassPool:
    """Every class four times, turned by 0, 90, 180 and 270 degrees, each turn a class of its own.

    For meta-training only: streams keep the classes as they are.
    """
    names = tuple(name if turn == 0 else f"{name}@{90 * turn}" for turn in range(4) for name in pool.class_names)
    images = torch.cat([torch.rot90(pool.images, turn, dims=(2, 3)) for turn in range(4)])
    return ClassPool(name=f"{pool.name} with rotations", images=images, class_names=names, counts=pool.counts * 4)
