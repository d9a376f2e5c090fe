"""Centroids (CBCL): each class is a few centroids, opened where an example is far from those there are; the nearest vote.

A. Ayub, A. R. Wagner, "Cognitively-Inspired Model for Incremental Learning Using a Few Examples", 2020.

An example joins the nearest centroid of its class if that is nearer than a distance D, and moves it to the mean of its
members; otherwise it opens one of its own. All centroids are ordered by distance, and the first `votes` of them vote for
their class. D = 0 is nearest neighbour, D = ∞ is class means.

Departs from the paper:
- D is in units of the median distance between two shots of one class in the first task, instead of 17 on one data set;
- a class that returns goes on with its centroids;
- within a limit on centroids every class keeps at least one, and the limit holds exactly, which rounding missed;
- classes without a vote are ordered by the distance to their nearest centroid.
"""

from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fscl.continual.frozen import FrozenFeatures, copied, distances
from fscl.continual.learner import LearnerState, expect_keys, renumbered, without_row
from fscl.continual.registry import Method
from fscl.nets.network import Network
from fscl.rng import child_seed

NAMES = ("centroids", "labels", "counts", "seen", "unit")


class Centroids(FrozenFeatures):
    """A few centroids a class, on the features of the base network."""

    class Settings(FrozenFeatures.Settings):
        """When a centroid is opened, how many vote, and how many there may be.

        Attributes:
            distance: D; an example farther than this from all centroids of its class opens one of its own.
            unit: what D is measured in: the median distance between two shots of a class in the "first_task", or as it is
                ("absolute").
            votes: how many of the nearest centroids vote (n).
            limit: centroids in all at most (K_max); "none" for any number.
        """

        distance: Annotated[float, Field(ge=0)] | Literal["infinite"] = 1.5
        unit: Literal["first_task", "absolute"] = "first_task"
        votes: int = Field(default=1, ge=1)
        limit: Annotated[int, Field(ge=1)] | Literal["none"] = "none"

    settings: Settings

    def __init__(self, network: Network, settings: Settings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        self.centroids = torch.zeros(0, network.n_features, device=network.device)
        self.labels, self.counts, self.seen = (
            torch.zeros(0, dtype=torch.int64, device=network.device) for _ in range(3)
        )
        self.unit = torch.ones((), device=network.device)

    @property
    def n_classes(self) -> int:
        return len(self.seen)

    def learn_features(self, features: Tensor, labels: Tensor) -> None:
        unit = self.unit
        if self.n_classes == 0 and self.settings.unit == "first_task":
            unit = median_distance(features, labels)
        threshold = np.inf if self.settings.distance == "infinite" else self.settings.distance * float(unit)
        n_classes = max(self.n_classes, int(labels.max()) + 1)
        groups = [self._of(label) for label in range(n_classes)]
        for feature, label in zip(features, labels.tolist(), strict=True):
            centroids, counts = groups[label]
            groups[label] = with_example(centroids, counts, feature, threshold)
        if self.settings.limit != "none":
            groups = self._within(groups, self.settings.limit)
        sizes = torch.tensor([len(counts) for _, counts in groups])
        seen = torch.bincount(labels, minlength=n_classes)
        seen[: self.n_classes] += self.seen
        self.centroids, self.counts = (torch.cat(parts) for parts in zip(*groups, strict=True))
        self.labels = torch.arange(n_classes).repeat_interleave(sizes).to(features.device)
        self.seen, self.unit = seen, unit

    def scores(self, features: Tensor) -> Tensor:
        away = distances(features, self.centroids)
        shape = (features.shape[0], self.n_classes)  # len() would fix the number in an exported graph
        nearest = away.new_full(shape, torch.inf).scatter_reduce(1, self.labels.expand_as(away), away, "amin")
        votes = min(self.settings.votes, len(self.labels))
        order = away.argsort(1)[:, :votes]
        shares = vote_shares(away, order)
        given = away.new_zeros(shape).scatter_add(1, self.labels[order], shares)
        weights = 1 / self.seen.to(away)  # a class of many images has more centroids
        has_vote = away.new_zeros(shape).scatter_add(1, self.labels[order], torch.ones_like(shares)) > 0
        return torch.where(has_vote, given * (weights / weights.sum()), -nearest)

    def without_class(self, label: int) -> bool:
        stay = self.labels != label
        self.centroids, self.counts = self.centroids[stay], self.counts[stay]
        self.labels, self.seen = renumbered(self.labels[stay], label), without_row(self.seen, label)
        return True

    def state(self) -> LearnerState:
        return LearnerState({name: getattr(self, name).clone() for name in NAMES}, {})

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, set(NAMES), "centroids")
        self.centroids, self.labels, self.counts, self.seen, self.unit = copied(state, self.network.device, *NAMES)

    def _of(self, label: int) -> tuple[Tensor, Tensor]:
        own = self.labels == label
        return self.centroids[own], self.counts[own]

    def _within(self, groups: list[tuple[Tensor, Tensor]], limit: int) -> list[tuple[Tensor, Tensor]]:
        """Fewer centroids for the classes that have most, each class at least one, until all are within the limit."""
        sizes = [len(counts) for _, counts in groups]
        while sum(sizes) > max(limit, len(groups)):
            sizes[sizes.index(max(sizes))] -= 1
        return [
            group if size == len(group[1]) else merged(*group, size, seed=child_seed(self.seed, "centroids", label))
            for label, (group, size) in enumerate(zip(groups, sizes, strict=True))
        ]


def median_distance(features: Tensor, labels: Tensor) -> Tensor:
    """The median distance between two examples of one class; 1 where no class has two."""
    pairs = torch.ones(len(labels), len(labels), dtype=torch.bool).triu(1).to(labels.device)
    same = (labels[:, None] == labels) & pairs
    return distances(features, features)[same].median() if bool(same.any()) else features.new_ones(())


def with_example(centroids: Tensor, counts: Tensor, feature: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """The centroids of a class and how many examples each stands for, with one more example."""
    if len(counts):
        away = distances(feature[None], centroids)[0]
        nearest = int(away.argmin())
        if float(away[nearest]) < threshold:
            centroids, counts = centroids.clone(), counts.clone()
            counts[nearest] += 1
            centroids[nearest] += (feature - centroids[nearest]) / counts[nearest]
            return centroids, counts
    return torch.cat([centroids, feature[None]]), torch.cat([counts, counts.new_ones(1)])


def vote_shares(away: Tensor, order: Tensor) -> Tensor:
    """What each of the nearest centroids gives to its class: 1/i of how near it is, from the farthest to the nearest."""
    chosen, farthest = away.gather(1, order), away.amax(1, keepdim=True)
    span = farthest - away.amin(1, keepdim=True)
    nearness = torch.where(span > 0, (farthest - chosen) / span.clamp_min(torch.finfo(away.dtype).tiny), 1.0)
    places = torch.arange(1, order.shape[1] + 1).to(away)
    return torch.where(chosen == 0, torch.ones_like(chosen), nearness / places)


def merged(centroids: Tensor, counts: Tensor, n: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """`n` centroids in the place of more: k-means, each centroid counting as many times as it stands for examples."""
    from sklearn.cluster import KMeans  # slow to import, and rarely needed

    points, weights = centroids.cpu().numpy(), counts.cpu().numpy()
    fitted = KMeans(n, n_init=1, random_state=seed % 2**32).fit(points, sample_weight=weights)
    sums = np.bincount(fitted.labels_, weights=weights, minlength=n)
    return torch.from_numpy(fitted.cluster_centers_).to(centroids), torch.from_numpy(sums).to(counts)


METHODS = (
    Method(
        "cbcl",
        Centroids,
        "A few centroids a class on the frozen embedding, opened where an example is far from the others; the nearest vote.",
        "Ayub, Wagner 2020",
    ),
)
