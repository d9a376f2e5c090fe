"""Which of the replayed shots a step sees, and how they are varied."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fscl.continual.memory import turns_of
from fscl.data.augment import Variation, jittered, varied
from fscl.device import autocast
from fscl.nets.network import Featurer, Network


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


@dataclass(frozen=True, eq=False)
class BatchSource:
    """The images of each step of the embedding: the same ones made ready once, or a batch or variation drawn anew.

    Attributes:
        jitter: how strongly the shots are turned, scaled, sheared and shifted anew in each step.
        mirror: whether half of them are mirrored.
        second_views: whether a shot that is alone in its class comes twice, each time varied on its own.
        lower_precision: whether features are computed in bfloat16.
    """

    network: Network
    replay: ReplaySet
    jitter: float
    mirror: bool
    second_views: bool
    lower_precision: bool

    def next(self) -> tuple[Featurer, Tensor]:
        """The features of the next step's images, as a function of the weights, and their labels."""
        replay, varies = self.replay, self.jitter > 0 or self.mirror
        if replay.is_one_batch and not varies:
            return self._all, replay.y
        chosen = slice(None) if (batch := replay.batch()) is None else batch
        if (
            not varies
        ):  # a network may have frozen stages, which run once for each image of the task and not in every step
            return self._featurer(replay.x[chosen]), replay.y[chosen]
        shown, y = replay.images[chosen], replay.y[chosen]
        if self.second_views:
            alone = (torch.bincount(y)[y] == 1).nonzero()[:, 0]
            shown, y = torch.cat([shown, shown[alone]]), torch.cat([y, y[alone]])
        images = varied(shown, Variation(flip=self.mirror), replay.order)
        images = jittered(images, self.jitter, replay.order)
        return self._featurer(self.network.to_input(images)), y

    @cached_property
    def _all(self) -> Featurer:
        return self._featurer(self.replay.x)

    def _featurer(self, x: Tensor) -> Featurer:
        with autocast(self.lower_precision):
            return self.network.featurer(x)


def spread(labels: Tensor, n: int, order: torch.Generator, *, together: int = 1) -> Tensor:
    """Positions of `n` images drawn evenly from all classes, or as many as there are.

    Classes come in random order, and each gives `together` images before any gives more.
    """
    shuffled = torch.randperm(len(labels), generator=order)
    shown = labels[shuffled]
    n_classes = int(labels.max()) + 1
    turn = torch.randperm(n_classes, generator=order)
    return shuffled[torch.argsort(turns_of(shown) // together * n_classes + turn[shown], stable=True)[:n]]
