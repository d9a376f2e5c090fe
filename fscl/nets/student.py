"""Classes as diagonal Gaussians whose variances are not quite known: an inverse-gamma prior makes each one a Student t.

What the GeMCL base learner trains with and its continual method answers with (Banayeeanzade, Mirzaiezadeh, Hasani,
Soleymani Baghshah, "Generative vs. Discriminative: Rethinking The Meta-Continual Learning", 2021).

The variance of each dimension of each class is drawn from InverseGamma(α, β), which all share. After n shots whose squared
distances from their mean sum to S, it is InverseGamma(α + n/2, β + S/2).
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

MOST_AT_ONCE = 2**23  # numbers that are in memory together: queries × classes × dimensions
MOST_ALPHA = 1e4  # that is fitted; variances that are all equal would make it infinite

Score = Literal["predictive", "map"]


class Prior(NamedTuple):
    """Of the variance inside classes: density ∝ v^(−α−1) exp(−β/v)."""

    alpha: float
    beta: float


@dataclass(frozen=True)
class ClassDensities:
    """The density of each class, ready to be asked.

    Attributes:
        means: (n_classes, n_features).
        scale: β' for "predictive", the variance for "map"; (n_classes, n_features).
        power: α' + ½, (n_classes, 1); not used by "map".
        peak: log density at the mean, (n_classes,).
        score: which of the two.
    """

    means: Tensor
    scale: Tensor
    power: Tensor
    peak: Tensor
    score: Score = "predictive"

    def scores(self, x: Tensor) -> Tensor:
        """Log densities (n, n_classes) of features (n, n_features), each row alone."""
        each = max(MOST_AT_ONCE // max(self.means.numel(), 1), 1)
        pieces = (x,) if torch.compiler.is_compiling() else x.split(each)  # an exported graph has no loop
        return torch.cat([self._of_piece(piece) for piece in pieces])

    def _of_piece(self, x: Tensor) -> Tensor:
        away = (x[:, None] - self.means).square() / (2 * self.scale)
        return self.peak - (away.sum(2) if self.score == "map" else (self.power * torch.log1p(away)).sum(2))


def class_densities(
    means: Tensor, scatter: Tensor, counts: Tensor, alpha: Tensor, beta: Tensor, score: Score = "predictive"
) -> ClassDensities:
    """What is known of classes after their shots; differentiable in all but the counts.

    Args:
        means: of the shots of each class, (n_classes, n_features).
        scatter: Σ (x − mean)² of each class and dimension, (n_classes, n_features).
        counts: shots of each class, (n_classes,).
        alpha: of the prior, a number.
        beta: of the prior, a number.
        score: "predictive" integrates the variance out, which leaves a Student t; "map" is a Gaussian of variance
            β' / (α' − 1), where the precision is most likely; α' is above 1 then.
    """
    alpha, beta = alpha + counts[:, None].to(scatter) / 2, beta + scatter / 2
    if score == "map":
        variance = beta / (alpha - 1)
        return ClassDensities(means, variance, alpha, -(2 * math.pi * variance).log().sum(1) / 2, score)
    peak = torch.lgamma(alpha + 0.5) - torch.lgamma(alpha) - (2 * math.pi * beta).log() / 2
    return ClassDensities(means, beta, alpha + 0.5, peak.sum(1), score)


def prior_by_moments(variances: Tensor) -> Prior:
    """The prior whose variances have the mean and the spread of these, which a few dead dimensions hardly change.

    InverseGamma(α, β) has the mean β / (α − 1), and the variance mean² / (α − 2). All of them zero, or none: α = 3, β = 2.

    Examples:
        >>> prior_by_moments(torch.tensor([1.0, 3.0]))
        Prior(alpha=6.0, beta=10.0)
    """
    doubles = variances.detach().cpu().double().flatten()
    size = float(doubles.mean()) if len(doubles) else 0.0
    if not 0 < size < math.inf:
        return Prior(3.0, 2.0)
    spread = float((doubles / size).var(unbiased=False))
    alpha = min(2 + 1 / spread, MOST_ALPHA) if spread > 0 else MOST_ALPHA
    return Prior(alpha, size * (alpha - 1))


def likeliest_prior(variances: Tensor) -> Prior:
    """The prior under which these variances are most likely; they are above zero. Without any: α = 3, β = 2.

    Their inverses are gamma distributed with shape α and rate β, whose likelihood has one maximum: β = α / mean(1/v) and
    ln α − ψ(α) = ln mean(1/v) + mean(ln v). The left side falls with α.
    """
    from scipy.optimize import brentq
    from scipy.special import digamma

    doubles = variances.detach().cpu().double().flatten()
    if not len(doubles):
        return Prior(3.0, 2.0)
    precision = float((1 / doubles).mean())
    gap = math.log(precision) + float(doubles.log().mean())

    def excess(alpha: float) -> float:
        return math.log(alpha) - float(digamma(alpha)) - gap

    alpha = MOST_ALPHA if excess(MOST_ALPHA) > 0 else float(brentq(excess, 1e-6, MOST_ALPHA, xtol=1e-10))
    return Prior(alpha, alpha / precision)
