"""Ridge regression to one-hot targets, solved in closed form (Hoerl, Kennard 1970).

Features are centred, and divided by one number so that their mean squared norm is one: a strength then means the same for
every embedding. The intercept is not penalised. With H the matrix that takes targets to fitted values, the prediction for a
row that is left out is (Hy − h y) / (1 − h), h its diagonal element (Allen 1974, PRESS), which costs nothing beyond the fit
and chooses the strength.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import one_hot

from fscl.continual.heads.base import Coordinates, Extras, Head, coordinates, linear_scores, without_own
from fscl.continual.held_out import with_company
from fscl.nets.params import Params

STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0)
ONE_SHOT_STRENGTH = (
    0.5  # where no row can be left out to choose by: between the best ones on several sets of photographs
)


class Ridge(Head):
    """Least squares to one-hot targets with a penalty on the weights.

    Attributes:
        strength: of the penalty (λ), for features of mean squared norm one; "auto" takes the one of `STRENGTHS` with the
            least squared error on left-out rows, or `ONE_SHOT_STRENGTH` where every class has one row.
        balanced: whether rows are weighted so that every class counts the same.
    """

    kind: Literal["ridge"] = "ridge"
    strength: Annotated[float, Field(gt=0)] | Literal["auto"] = "auto"
    balanced: bool = False

    def fit(self, features: Tensor, labels: Tensor, n_classes: int, extras: Extras | None = None) -> Params:
        problem = RidgeProblem(features, labels, n_classes, balanced=self.balanced)
        return problem.solve(self._strength(problem))

    def scores(self, fitted: Params, features: Tensor) -> Tensor:
        return linear_scores(fitted, features)

    def held_out(self, features: Tensor, labels: Tensor, n_classes: int, extras: Extras | None = None) -> Tensor:
        """Exact but for three things that the row has part in: the strength chosen, the unit and the weights of rows."""
        problem = RidgeProblem(features, labels, n_classes, balanced=self.balanced)
        scores = problem.left_out(self._strength(problem))
        return without_own(scores.to(features.dtype), labels, n_classes)

    def chosen_strength(self, features: Tensor, labels: Tensor, n_classes: int) -> float:
        """The strength that a fit to these rows uses."""
        return self._strength(RidgeProblem(features, labels, n_classes, balanced=self.balanced))

    def _strength(self, problem: "RidgeProblem") -> float:
        if self.strength != "auto":
            return self.strength
        if not bool(problem.several.any()):
            return ONE_SHOT_STRENGTH
        return min(STRENGTHS, key=problem.left_out_error)


class RidgeProblem:
    """One eigendecomposition, from which the solution and the left-out predictions follow for every strength.

    Args:
        features: (n, n_features).
        labels: (n,).
        n_classes: how many there are.
        balanced: whether every class counts the same.
        dual: whether the decomposition is that of the matrix of rows (n, n); the smaller one if not said.
    """

    def __init__(
        self, features: Tensor, labels: Tensor, n_classes: int, *, balanced: bool = False, dual: bool | None = None
    ) -> None:
        counts = torch.bincount(labels, minlength=n_classes)
        weights = torch.ones(len(labels), dtype=torch.float64)
        if balanced:
            weights = len(labels) / (n_classes * counts[labels].double())
        self.space: Coordinates = coordinates(features, weights, dual=dual)
        self.roots = weights.sqrt()[:, None]
        self.one_hot = one_hot(labels, n_classes).double()
        self.offset = (weights[:, None] * self.one_hot).mean(0)  # the intercept, at the centre of the features
        self.projected = self.space.rows.T @ (self.roots * (self.one_hot - self.offset))
        self.several = with_company(labels, n_classes)

    def solve(self, strength: float) -> Params:
        """The linear head of a strength."""
        return self.space.linear(self.weights(strength).T, self.offset)

    def weights(self, strength: float) -> Tensor:
        """Weights (rank, n_classes) in the coordinates of the rows."""
        return self.projected / (self.space.squares + strength)[:, None]

    def left_out(self, strength: float) -> Tensor:
        """Prediction (n, n_classes) for each row by a fit to the others."""
        if len(self.one_hot) == 1:
            return self.one_hot  # no other row to predict from
        rows, squares = self.space.rows, self.space.squares
        leverage = (rows.square() / (squares + strength)).sum(1, keepdim=True)
        leverage += self.roots.square() / len(rows)  # of the intercept
        residual = self.one_hot - self.offset - rows @ self.weights(strength) / self.roots
        return self.one_hot - residual / (1 - leverage)

    def left_out_error(self, strength: float) -> float:
        """Mean squared error of the left-out predictions, over rows whose class has another."""
        wrong = (self.left_out(strength) - self.one_hot).square() * self.roots.square()
        return float(wrong[self.several].sum(1).mean())
