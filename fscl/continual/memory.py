"""The replay memory: shots of earlier tasks, kept as uint8 images, within bounds that are never exceeded."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fscl.continual.settings import Dials
from fscl.data.pool import Examples

LABEL_BYTES = torch.int64.itemsize


@dataclass(frozen=True)
class ReplaySet:
    """What a task is learned from: network inputs with their images and labels, and how batches are drawn.

    Attributes:
        own: the classes of the task itself, on the CPU.
        batch_size: images in a batch at most.
        whole_classes: batches are of whole classes, the task's own first, for an objective that compares the images of a
            class. Otherwise they are spread evenly over all classes: a head that sees new classes more often than old
            ones forgets the old.
        order: draws the batches, and whatever else is random in learning the task.
    """

    x: Tensor
    images: Tensor
    y: Tensor
    own: Tensor
    batch_size: int
    whole_classes: bool
    order: torch.Generator

    @cached_property
    def labels(self) -> Tensor:
        """`y` on the CPU, where batches are drawn, whatever the device."""
        return self.y.cpu()

    @property
    def is_one_batch(self) -> bool:
        return self.batch_size >= len(self.labels)

    def batch(self) -> Tensor | None:
        """Positions of the next batch, drawn anew each time; None for everything."""
        return None if self.is_one_batch else self._drawn(self.labels).to(self.y.device)

    def _drawn(self, labels: Tensor) -> Tensor:
        if not self.whole_classes:
            return spread(labels, self.batch_size, self.order)
        if int(torch.isin(labels, self.own).sum()) > self.batch_size:
            return spread(labels, self.batch_size, self.order, together=2)
        turn = torch.randperm(int(labels.max()) + 1, generator=self.order)
        turn[self.own] -= len(turn)
        in_turn = torch.argsort(turn[labels], stable=True)
        if turn[labels[in_turn[self.batch_size]]] == turn[labels[in_turn[self.batch_size - 1]]]:
            cut = turn[labels[in_turn[self.batch_size]]]  # the class in which the batch would end: left out as a whole
            return in_turn[: int((turn[labels] < cut).sum())]
        return in_turn[: self.batch_size]


class ReplayMemory:
    """Keeps the first images of each class, as many of every class as the bounds allow.

    Images stay on the device that they come on; labels are always on the CPU, where it is decided what is kept.

    Args:
        per_class: images of one class at most; all of them if None, nothing if 0.
        n_images: images in all at most.
        n_bytes: bytes of images and labels at most.
    """

    def __init__(self, per_class: int | None = None, n_images: int | None = None, n_bytes: int | None = None) -> None:
        self.per_class = per_class
        self.max_images = n_images
        self.max_bytes = n_bytes
        self.stored: Examples | None = None

    def __len__(self) -> int:
        return 0 if self.stored is None else len(self.stored)

    @property
    def keeps_nothing(self) -> bool:
        return 0 in (self.per_class, self.max_images, self.max_bytes)

    @property
    def n_bytes(self) -> int:
        """Bytes of the images and labels held."""
        return 0 if self.stored is None else self.stored.images.nbytes + self.stored.labels.nbytes

    def with_new(self, support: Examples) -> Examples:
        """The replay set of a task: what is remembered, then what is new."""
        if self.stored is None:
            return support
        return Examples(
            torch.cat([self.stored.images, support.images]), torch.cat([self.stored.labels, support.labels])
        )

    def add(self, support: Examples) -> Tensor:
        """Remember a task, within the bounds; which images of `with_new(support)` are kept, as positions.

        Copies, so that the caller's tensors stay the caller's.
        """
        both = self.with_new(support)
        room = self._room(both.images[0].nbytes + LABEL_BYTES)
        if self.per_class == 0 or room == 0:
            return torch.zeros(0, dtype=torch.int64)
        kept = balanced(both.labels, self.per_class, room)
        self.stored = Examples(both.images[kept], both.labels[kept])
        return kept

    def tensors(self) -> dict[str, Tensor]:
        """What is held, by name, for storage."""
        return (
            {} if self.stored is None else {"images": self.stored.images.clone(), "labels": self.stored.labels.clone()}
        )

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Hold what `tensors` returned."""
        self.stored = Examples(tensors["images"], tensors["labels"].cpu()) if tensors else None

    def _room(self, bytes_each: int) -> int | None:
        """How many images fit in all; None for any number."""
        rooms = [self.max_images, None if self.max_bytes is None else self.max_bytes // bytes_each]
        return min((room for room in rooms if room is not None), default=None)


def memory_for(settings: Dials) -> ReplayMemory:
    """An empty memory within the bounds that the settings set."""
    given = (settings.memory_per_class, settings.memory_images, settings.memory_bytes)
    per_class, n_images, n_bytes = (None if bound == "all" else bound for bound in given)
    if settings.memory == "generated":  # a class that comes again does not leave as many behind again
        made = settings.generator.images_per_class
        per_class = made if per_class is None else min(per_class, made)
    return ReplayMemory(per_class, n_images, n_bytes)


def balanced(labels: Tensor, per_class: int | None, room: int | None) -> Tensor:
    """Positions to keep, in order: the first image of every class, then the second of every class, and so on.

    Where the room ends within a round, the classes that came first have theirs.
    """
    turns = _turns(labels)
    in_turn = torch.argsort(turns * (int(labels.max()) + 1) + labels, stable=True)
    if per_class is not None:
        in_turn = in_turn[turns[in_turn] < per_class]
    return in_turn[:room].sort().values


def spread(labels: Tensor, n: int, order: torch.Generator, *, together: int = 1) -> Tensor:
    """Positions of `n` images drawn evenly from all classes, or as many as there are.

    Classes come in random order, and each gives `together` images before any gives more.
    """
    shuffled = torch.randperm(len(labels), generator=order)
    shown = labels[shuffled]
    n_classes = int(labels.max()) + 1
    turn = torch.randperm(n_classes, generator=order)
    return shuffled[torch.argsort(_turns(shown) // together * n_classes + turn[shown], stable=True)[:n]]


def _turns(labels: Tensor) -> Tensor:
    """Of each image, how many of its class come before it."""
    by_class = torch.argsort(labels, stable=True)
    counts = torch.bincount(labels)
    turns = torch.empty_like(labels)
    turns[by_class] = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[by_class]]
    return turns
