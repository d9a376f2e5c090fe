"""What a head is: features that were stored, with their classes, become a rule that scores new features.

A head is fitted to all of them at once, from nothing, and so does not depend on the order in which they came. It can be
used on frozen features and on those of an embedding that moved.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fscl.continual.frozen import ROUNDING, exact
from fscl.continual.held_out import MAX_FOLDS, with_company
from fscl.continual.parts import Part
from fscl.errors import Divergence
from fscl.nets.params import Params

Extras = Mapping[str, Tensor]


class Head(Part):
    """Scores features after being fitted to others; a subclass has a `kind` and its settings."""

    @abstractmethod
    def fit(self, features: Tensor, labels: Tensor, n_classes: int, extras: Extras | None = None) -> Params:
        """All that scoring needs, by name: float32, on the CPU.

        Args:
            features: (n, n_features), on the CPU.
            labels: (n,), int64; every class from 0 to `n_classes` - 1 has at least one row.
            n_classes: how many classes there are.
            extras: statistics of base classes by name, where the base carries them (`Network.extras`).
        """

    @abstractmethod
    def scores(self, fitted: Params, features: Tensor) -> Tensor:
        """Scores (n, n_classes) of features, each row alone; the largest wins.

        Tensor operations alone, so that an exported graph can hold them.
        """

    def held_out(self, features: Tensor, labels: Tensor, n_classes: int, extras: Extras | None = None) -> Tensor:
        """Scores (n, n_classes) of every row as if it had been left out of the fit.

        Here by `in_folds`; a head with a closed form leaves out each row alone. A row that is the only one of its class has
        minus infinity for it: nothing would be left to recognise it by.
        """
        return self.in_folds(features, labels, n_classes, extras)

    def in_folds(self, features: Tensor, labels: Tensor, n_classes: int, extras: Extras | None = None) -> Tensor:
        """Scores (n, n_classes) of every row by a fit without it and one row of each other class; ten fits at most.

        The same for every head, so that heads can be compared by it. Rows that are the only ones of their class are scored
        by the fit of all rows, with minus infinity for their own class.
        """
        turns = fold_of_each(labels, n_classes)
        scores = features.new_zeros(len(labels), n_classes)
        for fold in turns.unique().tolist():
            held = turns == fold
            kept = ~held if fold >= 0 else torch.ones_like(held)
            fitted = self.fit(features[kept], labels[kept], n_classes, extras)
            scores[held] = self.scores(fitted, features[held])
        return without_own(scores, labels, n_classes)


def fold_of_each(labels: Tensor, n_classes: int) -> Tensor:
    """In which fold each row is left out, from 0; -1 for those that never are, being the only ones of their class.

    A fold has at most one row of a class, unless a class has more than ten.
    """
    counts = torch.bincount(labels, minlength=n_classes)
    turns = torch.zeros_like(labels)
    for label, count in enumerate(counts.tolist()):
        turns[labels == label] = torch.arange(count) % MAX_FOLDS
    turns[counts[labels] == 1] = -1
    return turns


def without_own(scores: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """With minus infinity for the own class of rows that are the only ones of theirs."""
    alone = ~with_company(labels, n_classes)
    own = torch.nn.functional.one_hot(labels, n_classes).bool()
    return scores.masked_fill(own & alone[:, None], -torch.inf)


def checked(features: Tensor) -> Tensor:
    """In double precision, if all of them are finite."""
    doubles = features.double()
    bad = (~doubles.isfinite().all(1)).nonzero()[:, 0].tolist()
    if bad:
        raise Divergence(
            f"a head is fitted to finite features, but {len(bad)} of {len(doubles)} rows are not, row {bad[0]} first. The "
            "embedding may have diverged: lower its learning rate."
        )
    return doubles


def linear_head(weight: Tensor, offset: Tensor, centre: Tensor) -> Params:
    """A linear head whose scores are `offset` at the point `centre`, in single precision."""
    rounded = weight.float()
    # from the rounded weights, so that rounding them moves no score near the centre
    return {"weight": rounded, "bias": (offset - rounded.double() @ centre).float()}


def linear_scores(fitted: Params, features: Tensor) -> Tensor:
    """Scores (n, n_classes) of a linear head, in the precision of the features and on their device."""
    doubles = exact(features)  # a large batch is multiplied in another order, which doubles do not show
    scores = doubles @ fitted["weight"].to(doubles).T + fitted["bias"].to(doubles)
    return scores.to(features.dtype).to(features.device)


@dataclass(frozen=True)
class Coordinates:
    """Rows, centred and divided by one number, in orthonormal coordinates of the space that they span.

    Attributes:
        rows: (n, rank); their columns are orthogonal.
        basis: (n_features, rank), orthonormal columns.
        squares: (rank,), the squared norms of the columns of `rows`, above zero.
        centre: what was subtracted, (n_features,).
        unit: what they were divided by: the root of the mean squared norm of what was left.
    """

    rows: Tensor
    basis: Tensor
    squares: Tensor
    centre: Tensor
    unit: float

    def linear(self, weight: Tensor, offset: Tensor) -> Params:
        """The head on features as they come, of a `weight` (n_classes, rank) in these coordinates."""
        return linear_head(weight @ self.basis.T / self.unit, offset, self.centre)


def coordinates(features: Tensor, row_weights: Tensor | None = None, *, dual: bool | None = None) -> Coordinates:
    """Features in coordinates in which a penalty on the weights is the same as it was, and nothing is lost.

    Args:
        features: (n, n_features).
        row_weights: (n,), of mean one; centre and unit are then weighted means, and `rows` are multiplied by their roots.
        dual: whether to go through the matrix of products of rows (n, n) or that of features; the smaller one.
    """
    doubles = checked(features)
    weights = doubles.new_ones(len(doubles)) if row_weights is None else row_weights
    centre = (weights[:, None] * doubles).mean(0)
    centred = (doubles - centre) * weights.sqrt()[:, None]
    spread, size = float(centred.square().sum(1).mean()), float(doubles.square().sum(1).mean())
    unit = spread**0.5 if spread > ROUNDING * size else 1.0
    scaled = centred / unit if spread > ROUNDING * size else torch.zeros_like(centred)
    if dual if dual is not None else len(scaled) < scaled.shape[1]:
        squares, vectors = torch.linalg.eigh(scaled @ scaled.T)
        kept = squares > ROUNDING * len(scaled)
        squares, vectors = squares[kept], vectors[:, kept]
        return Coordinates(vectors * squares.sqrt(), scaled.T @ (vectors / squares.sqrt()), squares, centre, unit)
    squares, vectors = torch.linalg.eigh(scaled.T @ scaled)
    kept = squares > ROUNDING * len(scaled)
    return Coordinates(scaled @ vectors[:, kept], vectors[:, kept], squares[kept], centre, unit)
