"""Multinomial logistic regression with a penalty on the weights, fitted to its optimum (Cox 1958; Bishop 2006, 4.3.4).

Features are centred, and divided by one number so that their mean squared norm is one: a strength then means the same for
every embedding. The best weights are combinations of the rows, so that with fewer rows than features the problem is solved
in as many coordinates as there are rows, without loss. The intercept is not penalised.
"""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fscl.continual.heads.base import Extras, Head, coordinates, fold_of_each, linear_scores, without_own
from fscl.nets.params import Params

TOLERANCE = 1e-6  # of the largest element of the gradient of the summed loss
HELD_OUT_TOLERANCE = 1e-4  # leaves left-out log probabilities exact to about 0.01, in fewer steps
MAX_STEPS = 2000


class Logistic(Head):
    """Least cross-entropy, summed over rows, plus half the strength times the squared norm of the weights.

    Attributes:
        strength: of the penalty, for features of mean squared norm one.
    """

    kind: Literal["logistic"] = "logistic"
    strength: float = Field(default=0.01, gt=0)

    def fit(self, features: Tensor, labels: Tensor, n_classes: int, extras: Extras | None = None) -> Params:
        space = coordinates(features)
        solution = optimum(space.rows, labels, n_classes, self.strength)
        return space.linear(solution[:-1].T, solution[-1])

    def scores(self, fitted: Params, features: Tensor) -> Tensor:
        return linear_scores(fitted, features)

    def held_out(self, features: Tensor, labels: Tensor, n_classes: int, extras: Extras | None = None) -> Tensor:
        """In folds, each fit starting from that of all rows; centre and unit are those of all rows."""
        rows = coordinates(features).rows
        start = optimum(rows, labels, n_classes, self.strength)
        turns = fold_of_each(labels, n_classes)
        scores = rows @ start[:-1] + start[-1]
        for fold in range(int(turns.max()) + 1):
            held = turns == fold
            solution = optimum(
                rows[~held], labels[~held], n_classes, self.strength, start=start, tolerance=HELD_OUT_TOLERANCE
            )
            scores[held] = rows[held] @ solution[:-1] + solution[-1]
        return without_own(scores.to(features.dtype), labels, n_classes)


def optimum(
    rows: Tensor,
    labels: Tensor,
    n_classes: int,
    strength: float,
    *,
    start: Tensor | None = None,
    tolerance: float = TOLERANCE,
) -> Tensor:
    """Weights (rank, n_classes) and below them the intercepts, (rank + 1, n_classes), of the least penalised loss.

    Args:
        rows: (n, rank), float64.
        labels: (n,).
        n_classes: how many there are.
        strength: of the penalty.
        start: where to begin; zero if not said.
        tolerance: the search ends where no element of the gradient is larger.
    """
    from scipy.optimize import minimize  # slow to import

    design = np.concatenate([rows.numpy(), np.ones((len(rows), 1))], axis=1)
    shape, own = (design.shape[1], n_classes), (np.arange(len(rows)), labels.numpy())
    penalty = np.full((shape[0], 1), strength)
    penalty[-1] = 0

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(shape)
        scores = design @ weights
        scores -= scores.max(1, keepdims=True)
        own_scores = scores[own]
        np.exp(scores, out=scores)
        sums = scores.sum(1, keepdims=True)
        scores /= sums
        scores[own] -= 1
        value = np.log(sums).sum() - own_scores.sum() + (penalty * weights**2).sum() / 2
        return float(value), (design.T @ scores + penalty * weights).ravel()

    begin = np.zeros(shape) if start is None else start.numpy()
    options = {"maxiter": MAX_STEPS, "maxfun": 2 * MAX_STEPS, "gtol": tolerance, "ftol": 0, "maxcor": 20}
    found = minimize(loss, begin.ravel(), jac=True, method="L-BFGS-B", options=options)
    return torch.from_numpy(found.x.reshape(shape))
