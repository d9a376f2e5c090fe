"""Examples that are left out in turn, and asked for: how good a learner is, from what it has learned alone."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fscl.nets.params import class_sums

MAX_FOLDS = 10


@dataclass(frozen=True)
class HeldOut:
    """Scores (n, n_classes) of examples that had no part in what scored them, and their true classes (n,).

    Attributes:
        positions: of these among all examples, where that is known.
        own_weights: where the embedding moves, whether weights that moved without these examples scored them; the base's
            did if not.
        shift: what is to be added to the share of right answers, where fewer examples were learned from than usual.
        own_scale: whether the scores are those that the method answers with.
        duplicates_together: whether duplicates of an example were left out with it, and it alone was asked for.
    """

    scores: Tensor
    labels: Tensor
    positions: Tensor | None = None
    own_weights: bool = False
    shift: float = 0.0
    own_scale: bool = True
    duplicates_together: bool = False


def distances_without(features: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """Squared distances (n, n_classes) to the class means, the own one taken without the example itself.

    Classes without an example are infinitely far; so is the own class of an example that is its only one.
    """
    sums, counts = class_sums(features, labels, n_classes)
    means = sums / counts.clamp_min(1)[:, None]
    squared = torch.cdist(features, means, compute_mode="donot_use_mm_for_euclid_dist").square()
    squared[:, counts == 0] = torch.inf
    others = counts[labels] - 1
    without = (sums[labels] - features) / others.clamp_min(1)[:, None]
    own = (features - without).square().sum(1)
    own[others == 0] = torch.inf
    return squared.scatter(1, labels[:, None], own[:, None])


def with_company(labels: Tensor, n_classes: int) -> Tensor:
    """Which examples can be left out: those whose class has another."""
    return torch.bincount(labels, minlength=n_classes)[labels] > 1


def by_means(features: Tensor, labels: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Squared distances of the examples that can be left out to the class means without them, and their classes."""
    several = with_company(labels, n_classes)
    return distances_without(features, labels, n_classes)[several], labels[several]


def stretch(before: Tensor, after: Tensor, labels: Tensor) -> float:
    """How many times further apart class means lie in other features of the same examples, in squared distance."""
    own = torch.unique(labels, return_inverse=True)[1]

    def spread(features: Tensor) -> float:
        sums, counts = class_sums(features, own, int(own.max()) + 1)
        return float((sums / counts[:, None]).var(0, unbiased=False).sum())

    apart, now = spread(before), spread(after)
    return now / apart if apart > 0 and now > 0 else 1.0


def by_folds(fit: Callable[[Tensor, Tensor], Callable[[Tensor], Tensor]], features: Tensor, labels: Tensor) -> HeldOut:
    """One example of every class left out at a time, ten times at most; `fit` gives the scores learned from the others."""
    counts = torch.bincount(labels)
    n_folds = min(int(counts.max()), MAX_FOLDS)
    turns = torch.zeros_like(labels)
    for label, count in enumerate(counts.tolist()):
        turns[labels == label] = torch.arange(count) % min(n_folds, max(count, 1))
    turns[counts[labels] == 1] = -1  # never left out: nothing would be left
    scores, positions = [], []
    for fold in range(n_folds):
        held = turns == fold
        scores.append(fit(features[~held], labels[~held])(features[held]))
        positions.append(torch.where(held)[0])
    left_out = torch.cat(positions)
    return HeldOut(torch.cat(scores), labels[left_out], left_out)
