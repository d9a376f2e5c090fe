"""Fisher information of the embedding, along the learning of the first task and along meta-training.

How much the answers still depend on each weight, from the gradient of each example (J. Kirkpatrick et al. 2017; L. Wang et
al. 2021, figure 5b, draw it). The course of a task is had by learning it anew (`learner.course`).
"""

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar

import torch
from pydantic import Field, field_validator
from torch.nn.functional import cross_entropy

from fscl.analysis.drift import Count, Size, ascending, some
from fscl.continual.learner import ContinualLearner
from fscl.continual.objectives import head_of_means
from fscl.continual.regularisers.ewc import fisher_information
from fscl.data.episode import Episode
from fscl.data.pool import Examples
from fscl.evaluation.observer import Finding, Observer, TrainingPoint
from fscl.nets.network import Network
from fscl.nets.norm import Statistics
from fscl.nets.params import Params, linear

MAX_POINTS = 10_000  # of one curve


class FisherReading(Finding):
    """The diagonal of the empirical Fisher information, summed over each parameter tensor, and the loss beside it."""

    loss: Size
    layers: dict[str, Size]

    @property
    def trace(self) -> float:
        return sum(self.layers.values())


class FisherPoint(TrainingPoint):
    """One state of the weights, on the images that it learns from and on others of the same classes."""

    shots: FisherReading
    test: FisherReading


class FisherCourse(Finding):
    """The Fisher information after so many steps of the first task."""

    points: tuple[FisherPoint, ...] = Field(default=(), max_length=MAX_POINTS)


class FisherObserver(Observer):
    """Takes the Fisher information once the stream has ended, from learners that learn its first task anew."""

    class Settings(Observer.Settings):
        """When to look.

        Attributes:
            steps: numbers of steps of the first task after which it is taken; those beyond the method's own stand for its
                last. Empty for never.
            episodes: on how many episodes of training classes it is taken at each validation of meta-training, where a base
                is trained; 0 for not at all.
        """

        steps: tuple[Count, ...] = Field(default=(0, 1, 2, 5, 10, 20, 50, 100, 200, 500), max_length=100)
        episodes: Annotated[int, Field(ge=0, le=1000)] = 4

        _in_order = field_validator("steps")(ascending)

    finding: ClassVar[type[Finding]] = FisherCourse
    settings: Settings

    def look(self, n_tasks: int, learner: ContinualLearner) -> None:
        return  # all of it can be had at the end

    def found(self, learner: ContinualLearner) -> FisherCourse | None:
        points = []
        for waypoint in learner.course(self.task.support, self.settings.steps):
            network = waypoint.network
            shots, test = (
                fisher_reading(network, network.params, waypoint.head, examples, network.statistics)
                for examples in (self.task.support, some(self.task.query))
            )
            if shots is not None and test is not None:
                points.append(FisherPoint(step=waypoint.step, shots=shots, test=test))
        return FisherCourse(points=tuple(points)) if points else None

    @classmethod
    def n_episodes(cls, settings: Observer.Settings) -> int:
        assert isinstance(settings, cls.Settings)
        return settings.episodes

    @classmethod
    def look_at_training(cls, network: Network, episodes: Sequence[Episode], step: int) -> FisherPoint | None:
        return fisher_over_episodes(network, episodes, step)


OBSERVER = FisherObserver


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
    information = fisher_information(network, params, head, x, labels, statistics, "true")
    with torch.no_grad():
        loss = float(cross_entropy(linear(head, network.features(x, params, statistics=statistics)), labels))
    # by name, because weights that come from a checkpoint are in another order than fresh ones
    layers = {name: float(information[name].cpu().double().sum()) for name in sorted(information)}
    return FisherReading(loss=loss, layers=layers) if math.isfinite(loss + sum(layers.values())) else None


def _mean_reading(readings: Sequence[FisherReading | None]) -> FisherReading | None:
    known = [reading for reading in readings if reading is not None]
    if not known or len(known) < len(readings):
        return None
    layers = {name: sum(reading.layers[name] for reading in known) / len(known) for name in known[0].layers}
    return FisherReading(loss=sum(reading.loss for reading in known) / len(known), layers=layers)
