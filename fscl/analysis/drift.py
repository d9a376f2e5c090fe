"""Drift: where the test images of the first task lie in the embedding, after that task and after later ones.

L. Wang et al. 2021, figure 2, draw it. Of methods that move their embedding; a frozen one shows none.
"""

from collections.abc import Mapping
from copy import copy
from typing import Annotated, ClassVar

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from fscl.continual.learner import ContinualLearner
from fscl.data.pool import Examples
from fscl.data.stream import Task
from fscl.evaluation.observer import Finding, Observer
from fscl.nets.params import class_sums

MAX_IMAGES = 300  # of a task that are looked at
Count = Annotated[int, Field(ge=0, le=100_000)]
Size = Annotated[float, Field(ge=0)]


def ascending(moments: tuple[int, ...]) -> tuple[int, ...]:
    """Refuse moments that are not in order."""
    if sorted(set(moments)) != list(moments):
        raise ValueError(f"moments go up and come once each, but these are {list(moments)}")
    return moments


class Drift(Finding):
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


class DriftObserver(Observer):
    """Keeps the features of the first task's test images at some moments."""

    class Settings(Observer.Settings):
        """When to look.

        Attributes:
            after: numbers of tasks learned at which the embedding is looked at; 0 is before the first.
        """

        after: tuple[Count, ...] = Field(default=(1, 3, 10), min_length=1, max_length=12)

        _in_order = field_validator("after")(ascending)

        def last_moment(self) -> int:
            return self.after[-1]

    finding: ClassVar[type[Finding]] = Drift
    settings: Settings

    def __init__(self, settings: Settings, task: Task) -> None:
        super().__init__(settings, task)
        self.images = some(task.query)
        self.features: dict[int, Tensor] = {}

    def look(self, n_tasks: int, learner: ContinualLearner) -> None:
        if n_tasks in self.settings.after and learner.moves_embedding:
            self.features[n_tasks] = self._features(learner, n_tasks).cpu()

    def found(self, learner: ContinualLearner) -> Drift | None:
        return drift_of(self.features, self.images.labels) if self.features else None

    def _features(self, learner: ContinualLearner, n_tasks: int) -> Tensor:
        """What the learner answers from; before the first task, BatchNorm has the statistics of its shots."""
        if n_tasks == 0:
            learner, network = copy(learner), learner.starting_point()
            statistics = network.freeze_statistics(network.to_input(self.task.support.images))
            learner.network = network.with_weights(network.params, statistics)
        return learner.features(self.images.images)


OBSERVER = DriftObserver


def drift_of(moments: Mapping[int, Tensor], labels: Tensor) -> Drift | None:
    """How features (n, n_features) of the same images moved from moment to moment; None if they are all one point.

    The components are fitted once, to all moments together: each image's motion is then the difference of its points, and
    motion out of the plane of the first moment, where most of it goes, is not hidden.
    """
    features = torch.stack([moments[n] for n in sorted(moments)]).double()
    spread = _root_mean_square(features[0] - features[0].mean(0))
    if spread == 0 or not bool(torch.isfinite(features).all()):
        return None
    coordinates, explained = principal_plane(features.flatten(0, 1))
    points = (coordinates / spread).unflatten(0, features.shape[:2])
    moved = (features - features[0]).norm(dim=2).mean(1) / spread
    return Drift(
        after=tuple(sorted(moments)),
        labels=tuple(labels.tolist()),
        points=tuple(tuple((float(x), float(y)) for x, y in moment) for moment in points),
        explained=explained,
        moved=tuple(moved.tolist()),
        apart=tuple(scatter_ratio(moment, labels) for moment in features),
    )


def principal_plane(features: Tensor) -> tuple[Tensor, float]:
    """Coordinates (n, 2) on the two directions of largest variance, and the share of the variance that they hold.

    Each direction points where its largest entry is positive: the sign of a singular vector is anybody's choice.
    """
    centred = features - features.mean(0)
    _, sizes, directions = torch.linalg.svd(centred, full_matrices=False)
    plane = directions[:2]
    largest = plane.gather(1, plane.abs().argmax(1, keepdim=True))
    coordinates = torch.zeros(len(features), 2, dtype=features.dtype)
    coordinates[:, : len(plane)] = centred @ (plane * largest.sign()).T
    squares = sizes.square()
    return coordinates, float(squares[:2].sum() / squares.sum().clamp_min(torch.finfo(squares.dtype).tiny))


def scatter_ratio(features: Tensor, labels: Tensor) -> float | None:
    """Mean squared distance of class means from the middle, over that of images from their class mean."""
    own = torch.unique(labels, return_inverse=True)[1]
    sums, counts = class_sums(features, own, int(own.max()) + 1)
    means = (sums / counts[:, None])[own]
    between, within = _root_mean_square(means - features.mean(0)), _root_mean_square(features - means)
    return (between / within) ** 2 if within > 0 else None


def some(examples: Examples) -> Examples:
    """Not more than MAX_IMAGES, of all classes alike."""
    every = -(-len(examples) // MAX_IMAGES)
    return Examples(examples.images[::every], examples.labels[::every])


def _root_mean_square(vectors: Tensor) -> float:
    """Of the lengths of vectors (n, n_features)."""
    return float(vectors.square().sum(1).mean().sqrt())
