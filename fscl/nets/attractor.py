"""Rows of new classes that are solved for: least cross-entropy beside rows that stand still, pulled towards attractors.

The arithmetic of M. Ren, R. Liao, E. Fetaya, R. Zemel, "Incremental Few-Shot Learning with Attention Attractor Networks",
2019, which its meta-training (fscl/meta/attractor.py) and its continual method (fscl/continual/methods/attractor.py)
share. A row has a weight for each feature and, last, a bias; everything is in double precision.

    W* = argmin_W  mean CE([fixed scores, W·[f; 1]], y) + 1/K Σ_k Σ_i γ_i (W_ki − u_ki)² + ½·1e-5 ‖W‖²
    u_k = u_0 + Σ_j a_kj U_j,   a_k = softmax_j(τ·cos(h_k, w_j)),   U_j = V_2 tanh(V_1 w_j + c_1) + c_2
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, linear

from fscl.nets.params import Params, class_sums

Doubles = npt.NDArray[np.float64]
Attract = Callable[[Tensor, Tensor], Tensor]
"""Attractors (n_new, n_features + 1) of new classes: of their mean features, and of the rows that there are already."""

RIDGE = 1e-5  # keeps the solution unique where nothing else does
TOLERANCE = 1e-9  # the search ends where no element of the gradient is larger
MAX_STEPS = 2000
LINEAR_TOLERANCE = 1e-10  # of the residual of conjugate gradients, as a share of the right-hand side
MASKED_SCORE = -100.0  # of a base class that plays a new one
START_DEVIATION = 0.01  # of the attention's weights; they are cut off at two deviations
GROUP = "attractor"  # of the tensors that a base hands over


@dataclass(frozen=True)
class SupportLoss:
    """The loss of new rows W (n_rows, n_features + 1) on a support set, as a function of them alone.

    Attributes:
        inputs: [f; 1] of each example, (n, n_features + 1).
        labels: the new row of each example.
        others: log of the summed exponentials of the fixed rows' scores, of each example; -inf where there are none.
        attractors: u, one for each new row.
        gamma: γ, how firmly each entry of a row is held; (n_features + 1,).
    """

    inputs: Doubles
    labels: npt.NDArray[np.int64]
    others: Doubles
    attractors: Doubles
    gamma: Doubles

    def value_and_gradient(self, rows: Doubles) -> tuple[float, Doubles]:
        """The loss at some rows, and its gradient."""
        scores, total = self._scores(rows)
        n, examples = len(self.labels), np.arange(len(self.labels))
        away = rows - self.attractors
        penalty = (self.gamma * away**2).sum() / len(rows) + RIDGE / 2 * (rows**2).sum()
        value = (total - scores[examples, self.labels]).mean() + penalty
        slope = np.exp(scores - total[:, None])
        slope[examples, self.labels] -= 1
        return float(value), slope.T @ self.inputs / n + 2 / len(rows) * self.gamma * away + RIDGE * rows

    def hessian_product(self, rows: Doubles, direction: Doubles) -> Doubles:
        """The second derivative at some rows, times a direction of their shape."""
        scores, total = self._scores(rows)
        shares = np.exp(scores - total[:, None])
        moved = shares * (self.inputs @ direction.T)
        moved -= shares * moved.sum(1, keepdims=True)
        curved: Doubles = moved.T @ self.inputs / len(self.labels)
        return curved + (2 / len(rows) * self.gamma + RIDGE) * direction

    def minimum(self) -> Doubles:
        """The rows of the least loss, by L-BFGS from the attractors; the problem is convex, so any start leads there."""
        from scipy.optimize import minimize  # slow to import

        shape = self.attractors.shape

        def flat(values: Doubles) -> tuple[float, Doubles]:
            value, gradient = self.value_and_gradient(values.reshape(shape))
            return value, gradient.ravel()

        options = {"maxiter": MAX_STEPS, "maxfun": 2 * MAX_STEPS, "ftol": 0.0, "gtol": TOLERANCE, "maxcor": 20}
        result = minimize(flat, self.attractors.ravel(), jac=True, method="L-BFGS-B", options=options)
        rows: Doubles = result.x.reshape(shape)
        return rows

    def solve(self, rows: Doubles, right: Doubles, damping: float) -> Doubles:
        """v with (H + damping · I) v = right, H the Hessian at some rows, by conjugate gradients."""
        from scipy.sparse.linalg import LinearOperator, cg  # slow to import

        def product(flat: Doubles) -> Doubles:
            direction = flat.reshape(rows.shape)
            return (self.hessian_product(rows, direction) + damping * direction).ravel()

        operator = LinearOperator((rows.size, rows.size), matvec=product, dtype=np.float64)
        name = "rtol" if "rtol" in inspect.signature(cg).parameters else "tol"  # before scipy 1.12
        found, _ = cg(operator, right.ravel(), maxiter=MAX_STEPS, atol=0.0, **{name: LINEAR_TOLERANCE})
        solution: Doubles = found.reshape(rows.shape)
        return solution

    def _scores(self, rows: Doubles) -> tuple[Doubles, Doubles]:
        """Scores of the new rows, and the log of the summed exponentials of all."""
        scores = self.inputs @ rows.T
        highest = np.maximum(scores.max(1), self.others)
        return scores, highest + np.log(np.exp(scores - highest[:, None]).sum(1) + np.exp(self.others - highest))


class _Solved(torch.autograd.Function):
    """The solved rows as a function of their attractors and γ: its gradient is that of the implicit function theorem."""

    @staticmethod
    def forward(
        context: Any, attractors: Tensor, gamma: Tensor, inputs: Tensor, labels: Tensor, others: Tensor, damping: float
    ) -> Tensor:
        problem = SupportLoss(
            *(tensor.detach().cpu().numpy() for tensor in (inputs, labels, others, attractors, gamma))
        )
        rows = problem.minimum()
        context.problem, context.rows, context.damping = problem, rows, damping
        return torch.from_numpy(rows).to(attractors)

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        problem, rows, scale = context.problem, context.rows, 2 / len(context.rows)
        along = problem.solve(rows, grads[0].cpu().numpy(), context.damping)
        of_attractors = scale * problem.gamma * along
        of_gamma = -scale * (along * (rows - problem.attractors)).sum(0)
        found = (torch.from_numpy(grad).to(grads[0]) for grad in (of_attractors, of_gamma))
        return *found, None, None, None, None


def solved_rows(
    features: Tensor, labels: Tensor, fixed_scores: Tensor, attractors: Tensor, gamma: Tensor, *, damping: float = 0.0
) -> Tensor:
    """W* (n_new, n_features + 1), differentiable in the attractors and in γ.

    Args:
        features: of the support set, (n, n_features).
        labels: the new row of each, from 0.
        fixed_scores: of the rows that stand still, (n, n_fixed); there may be none.
        attractors: u, (n_new, n_features + 1).
        gamma: γ, (n_features + 1,).
        damping: ε, added to the Hessian in the gradient.
    """
    others = torch.logsumexp(fixed_scores.double(), 1)
    found: Tensor = _Solved.apply(attractors, gamma, with_one(features), labels, others, damping)  # type: ignore[no-untyped-call]
    return found


def with_one(features: Tensor) -> Tensor:
    """[f; 1] in double precision: the inputs of rows that end with a bias."""
    return torch.cat([features.double(), features.new_ones(len(features), 1, dtype=torch.float64)], 1)


def mean_rows(means: Tensor, temperature: float) -> Tensor:
    """The rows of class means: scores are minus the squared distances over the temperature, up to a shared number."""
    exact = means.double()
    return torch.cat([2 * exact, -exact.square().sum(1, keepdim=True)], 1) / temperature


def learned_rows(
    known: Tensor, fixed: Tensor, features: Tensor, labels: Tensor, attract: Attract, gamma: Tensor
) -> Tensor:
    """The rows of all classes after one more task; those of earlier tasks stand still, but for a class that returns.

    Args:
        known: rows so far, (n_classes, n_features + 1).
        fixed: rows of base classes, which take part in the softmax.
        features: of the task, (n, n_features).
        labels: their classes; a class that is known is solved anew, with its row as the attractor.
        attract: the attractors of new classes.
        gamma: γ, (n_features + 1,).
    """
    classes, positions = labels.unique(return_inverse=True)
    sums, counts = class_sums(features.double(), positions, len(classes))
    returns = classes < len(known)
    attractors = attract(sums / counts[:, None], known)
    attractors[returns] = known[classes[returns]]
    stays = torch.ones(len(known), dtype=torch.bool, device=known.device)
    stays[classes[returns]] = False
    still = torch.cat([fixed, known[stays]])
    solved = solved_rows(features, positions, with_one(features) @ still.T, attractors, gamma)
    rows = torch.cat([known, known.new_zeros(int((~returns).sum()), known.shape[1])])
    rows[classes] = solved
    return rows


def init_attention(n_features: int, *, hidden: int, gamma: float, tau: float, generator: torch.Generator) -> Params:
    """Meta-parameters to start from, by name."""

    def small(*shape: int) -> Tensor:
        tensor, limit = torch.empty(shape), 2 * START_DEVIATION
        return torch.nn.init.trunc_normal_(tensor, 0.0, START_DEVIATION, -limit, limit, generator=generator)

    return {
        "hidden/weight": small(hidden, n_features),
        "hidden/bias": torch.zeros(hidden),
        "out/weight": small(n_features + 1, hidden),
        "out/bias": torch.zeros(n_features + 1),
        "static": small(n_features + 1),
        "log_gamma": torch.full((n_features + 1,), gamma).log(),
        "tau": torch.tensor(tau),
    }


def attention_attractors(
    weights: Mapping[str, Tensor], means: Tensor, keys: Tensor, tau: Tensor | None = None
) -> Tensor:
    """Attractors (n, n_features + 1) of classes with mean features, by attention to the weights of other rows.

    Args:
        weights: as `init_attention` names them, in double precision.
        means: h, (n, n_features).
        keys: w_j, (n_keys, n_features); a row of zeros keeps its share of the softmax, at a cosine of 0.
        tau: in the place of the trained one.
    """
    shares = attention_shares(means, keys, weights["tau"] if tau is None else tau)
    hidden = shares @ torch.tanh(linear(keys, weights["hidden/weight"], weights["hidden/bias"]))
    # shares sum to 1, so the second layer may come after the mean
    return weights["static"] + linear(hidden, weights["out/weight"], weights["out/bias"])


def attention_shares(means: Tensor, keys: Tensor, tau: Tensor) -> Tensor:
    """a (n, n_keys): how much each class attends to each key."""
    return (tau * cosine_similarity(means[:, None], keys[None], dim=2)).softmax(1)
