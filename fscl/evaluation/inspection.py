"""Looking inside a learner while it learns: how one task interferes with what came before.

Three things are seen, on the first sequence of a run, of every method that trains its embedding (a frozen one shows none):
- *drift*: where the test images of the first task lie in the embedding, after that task and after later ones;
- *Fisher information* of the embedding, along the learning of the first task and along meta-training: how much the
  answers still depend on each weight, from the gradient of each example;
- *penalties*: how firmly a regulariser holds each weight after some tasks.

The learner is only read. Drift and penalties are taken from it as it is; the course of a task is had by learning it anew,
for 1 step, for 2 and so on: learning is deterministic, so the state after n steps is where `steps = n` ends.

J. Kirkpatrick et al. 2017 for the Fisher information; L. Wang et al. 2021 (figures 2 and 5b) for what is drawn of all this.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, field_validator
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.continual.consolidation import Consolidation
from fscl.continual.learner import ContinualLearner
from fscl.continual.objectives import head_of_means
from fscl.continual.regularisers import constant_gates, fisher_information, tag_gates
from fscl.data.episode import Episode
from fscl.data.pool import Examples
from fscl.data.stream import Task
from fscl.evaluation.inspected import Drift, FisherPoint, FisherReading, Inspection, Measure, Penalties
from fscl.nets.network import Network
from fscl.nets.norm import Statistics
from fscl.nets.params import Params, class_sums, linear

MAX_IMAGES = 300  # of a task that are looked at
N_BINS = 50
MEASURES: dict[str, Measure] = {
    "ewc": "fisher information",
    "si": "path integral",
    "mas": "output sensitivity",
    "tagging": "gate",
    "constant": "gate",
}

Count = Annotated[int, Field(ge=0, le=100_000)]


class InspectSpec(BaseModel):
    """What is looked at, and when.

    Attributes:
        drift_after: numbers of tasks learned at which the embedding is looked at; 0 is before the first. Empty for never.
        penalties_after: how many tasks were learned when penalties are looked at; 0 for never.
        fisher_steps: numbers of steps of the first task after which the Fisher information is taken; those beyond the
            method's own stand for its last. Empty for never.
        fisher_episodes: on how many episodes of training classes it is taken at each validation of meta-training, where a
            base is trained; 0 for not at all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    drift_after: tuple[Count, ...] = Field(default=(1, 3, 10), max_length=12)
    penalties_after: Count = 5
    fisher_steps: tuple[Count, ...] = Field(default=(0, 1, 2, 5, 10, 20, 50, 100, 200, 500), max_length=100)
    fisher_episodes: int = Field(default=4, ge=0, le=1000)

    @field_validator("drift_after", "fisher_steps")
    @classmethod
    def _ascending(cls, moments: tuple[int, ...]) -> tuple[int, ...]:
        if sorted(set(moments)) != list(moments):
            raise ValueError(f"moments go up and come once each, but these are {list(moments)}")
        return moments


@dataclass(eq=False)
class Inspector:
    """Looks at one learner along one stream; `task` is the stream's first."""

    spec: InspectSpec
    task: Task
    _moments: dict[int, Tensor] = field(default_factory=dict)
    _penalties: Penalties | None = None

    def look(self, n_tasks: int, learner: ContinualLearner) -> None:
        """See what is due after so many tasks; the learner is not changed."""
        if not isinstance(learner, Consolidation):
            return
        if n_tasks in self.spec.drift_after:
            self._moments[n_tasks] = _answering_features(learner, self._asked.images, self.task.support).cpu()
        if n_tasks == self.spec.penalties_after and n_tasks > 0:
            self._penalties = held(learner)

    def found(self, learner: Consolidation) -> Inspection:
        """All that was seen of the learner, and the course of its first task, which is learned anew for it."""
        return Inspection(
            method=learner.name,
            drift=drift_of(self._moments, self._asked.labels) if self._moments else None,
            fisher=fisher_along_task(learner, Task(self.task.support, self._asked), self.spec.fisher_steps),
            penalties=self._penalties,
        )

    @property
    def _asked(self) -> Examples:
        return _some(self.task.query)


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


def fisher_along_task(learner: Consolidation, task: Task, steps: Sequence[int]) -> tuple[FisherPoint, ...]:
    """Fisher information after so many steps of the task, learned first of all by a fresh learner like this one."""
    points: list[FisherPoint] = []
    if not learner.network.params:
        return ()  # a frozen base has no weights whose information could be taken
    for step in sorted({min(step, learner.settings.steps) for step in steps}):
        # a copy is not checked, so that 0 steps can be had; what would be remembered has no part in the first task
        settings = learner.settings.model_copy(update={"steps": step, "memory": "shots"})
        fresh = Consolidation(learner.network, settings, seed=learner.seed, name=learner.name)
        fresh.learn_task(task.support)
        shots, test = (
            fisher_reading(fresh.network, fresh.fast, fresh.fast_head, examples, fresh.statistics)
            for examples in (task.support, task.query)
        )
        if shots is not None and test is not None:
            points.append(FisherPoint(step=step, shots=shots, test=test))
    return tuple(points)


def fisher_over_episodes(network: Network, episodes: Sequence[Episode], step: int) -> FisherPoint | None:
    """Mean Fisher information over episodes, each answered by distance to the class means of its shots."""
    readings = []
    for episode in (drawn.to(network.device) for drawn in episodes):
        x = network.to_input(episode.support.images)
        statistics = network.freeze_statistics(x)
        with torch.no_grad():
            features = network.features(x, statistics=statistics)
        rows = features.new_zeros(episode.n_way, features.shape[1])
        head = head_of_means({"weight": rows, "bias": rows[:, 0]}, features, episode.support.labels, temperature=1.0)
        for examples in (episode.support, episode.query):
            readings.append(fisher_reading(network, network.params, head, examples, statistics))
    shots, test = _mean_reading(readings[::2]), _mean_reading(readings[1::2])
    return None if shots is None or test is None else FisherPoint(step=step, shots=shots, test=test)


def fisher_reading(
    network: Network, params: Params, head: Params, examples: Examples, statistics: Statistics | None
) -> FisherReading | None:
    """Σ mean_x (∂ log p(y|x) / ∂θ)² for each parameter tensor, and the mean loss; None if they are not finite."""
    x = network.to_input(examples.images)
    labels = examples.labels.to(x.device)
    found = fisher_information(network, params, head, x, labels, statistics, "true")
    with torch.no_grad():
        loss = float(cross_entropy(linear(head, network.features(x, params, statistics=statistics)), labels))
    # by name, because weights that come from a checkpoint are in another order than fresh ones
    layers = {name: float(found[name].cpu().double().sum()) for name in sorted(found)}
    return FisherReading(loss=loss, layers=layers) if math.isfinite(loss + sum(layers.values())) else None


def held(learner: Consolidation) -> Penalties | None:
    """What the learner's regulariser made of the tasks so far, over all weights of the embedding; None if it has none.

    For tagging it is the gate δ with which the last task was learned; for the others the importance that the next one meets.
    """
    settings = learner.settings
    if settings.regulariser not in MEASURES or learner.n_tasks == 0:
        return None
    values = learner.importance
    if settings.regulariser == "constant":
        values = constant_gates(learner.slow)
    if settings.regulariser == "tagging":
        values = tag_gates(values, learner.n_tasks, settings.gate_slope, settings.activity_scale)
    if not all(bool(torch.isfinite(tensor).all()) for tensor in values.values()):
        return None
    return histogram(values, MEASURES[settings.regulariser], learner.n_tasks, settings.strength)


def histogram(values: Mapping[str, Tensor], measure: Measure, after: int, strength: float) -> Penalties:
    """Counts over all entries of all tensors, in bins of equal width from the least to the greatest."""
    parts = [tensor.detach().cpu().double().flatten().numpy() for tensor in values.values()]
    low, high = min(float(part.min()) for part in parts), max(float(part.max()) for part in parts)
    if high - low <= 1e-9 * abs(low) or high == low:  # all alike: one bin holds them
        high = low + (abs(low) or 1.0)
    counts = sum(np.histogram(part, bins=N_BINS, range=(low, high))[0] for part in parts)
    mean = sum(float(part.sum()) for part in parts) / sum(len(part) for part in parts)
    return Penalties(
        measure=measure,
        after=after,
        strength=strength,
        low=low,
        high=high,
        mean=mean,
        counts=tuple(int(count) for count in np.asarray(counts)),
    )


def _answering_features(learner: Consolidation, images: Tensor, shots: Examples) -> Tensor:
    """What the learner answers from; before the first task, BatchNorm has the statistics of its shots."""
    statistics = learner.statistics
    if statistics is None:
        statistics = learner.network.freeze_statistics(learner.network.to_input(shots.images), learner.fast)
    return learner.embed(images, learner.fast, statistics)


def _some(examples: Examples) -> Examples:
    """Not more than MAX_IMAGES, of all classes alike."""
    every = -(-len(examples) // MAX_IMAGES)
    return Examples(examples.images[::every], examples.labels[::every])


def _mean_reading(readings: Sequence[FisherReading | None]) -> FisherReading | None:
    known = [reading for reading in readings if reading is not None]
    if not known or len(known) < len(readings):
        return None
    layers = {name: sum(reading.layers[name] for reading in known) / len(known) for name in known[0].layers}
    return FisherReading(loss=sum(reading.loss for reading in known) / len(known), layers=layers)


def _root_mean_square(vectors: Tensor) -> float:
    """Of the lengths of vectors (n, n_features)."""
    return float(vectors.square().sum(1).mean().sqrt())
