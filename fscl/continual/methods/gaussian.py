"""Gaussian head: each class is a Gaussian whose mean is not quite known, and is known the less the fewer its shots.

Probabilistic linear discriminant analysis (Ioffe 2006) with diagonal covariances. The mean of a class is drawn from
N(m, τ²), its shots from N(mean, σ²); m, τ² and σ² are shared. The mean is integrated out in closed form (Murphy 2007,
"Conjugate Bayesian analysis of the Gaussian distribution"), and the log density of an image under each class is its
score. Keeps sums, squared sums and counts, and no feature.

Departs from the paper: dimensions are independent. m is the mean of all shots, and the variances are the moment estimates
of one-way analysis of variance (Searle, Casella and McCulloch 1992) instead of maximum likelihood. Few shots say little
about one dimension, so the average over dimensions is added to each as if it were one more shot (σ²) or class (τ²).
"""

import math

import torch
from pydantic import Field
from torch import Tensor

from fscl.continual.frozen import ROUNDING, FrozenFeatures, add_to_classes, copied, exact, no_classes
from fscl.continual.learner import LearnerState, expect_keys
from fscl.continual.registry import Method
from fscl.device import exact_device
from fscl.nets.network import Network


class GaussianHead(FrozenFeatures):
    """Posterior predictive density of each class, with equal class priors."""

    class Settings(FrozenFeatures.Settings):
        """What is assumed before there is anything to estimate from.

        Attributes:
            prior_shots: how many shots the typical variance counts for, beside those that a dimension's own is taken from.
        """

        prior_shots: float = Field(default=1.0, gt=0)

    settings: Settings

    def __init__(self, network: Network, settings: Settings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        self.sums, self.counts = no_classes(network.n_features, torch.float64, exact_device(network.device))
        self.squares = self.sums.new_zeros(network.n_features)
        self.means, self.variances = self.sums, self.sums

    @property
    def n_classes(self) -> int:
        return len(self.counts)

    def learn_features(self, features: Tensor, labels: Tensor) -> None:
        doubles = exact(features)
        sums, counts = add_to_classes(self.sums, self.counts, doubles, labels)
        self._hold(sums, counts, self.squares + doubles.square().sum(0))

    def scores(self, features: Tensor) -> Tensor:
        return log_density(exact(features), self.means, self.variances).to(features.dtype).to(features.device)

    def state(self) -> LearnerState:
        return LearnerState(
            {"sums": self.sums.clone(), "counts": self.counts.clone(), "squares": self.squares.clone()}, {}
        )

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, {"sums", "counts", "squares"}, "gaussian head")
        self._hold(*copied(state, self.sums.device, "sums", "counts", "squares"))

    def _hold(self, sums: Tensor, counts: Tensor, squares: Tensor) -> None:
        densities = (sums, sums) if len(counts) == 0 else predictive(squares, sums, counts, self.settings.prior_shots)
        self.sums, self.counts, self.squares = sums, counts, squares
        self.means, self.variances = densities


def predictive(squares: Tensor, sums: Tensor, counts: Tensor, prior_shots: float = 1.0) -> tuple[Tensor, Tensor]:
    """Means and variances (n_classes, n_features) of the next shot of each class, its mean integrated out."""
    within, between = variance_components(squares, sums, counts, prior_shots)
    centre, n = sums.sum(0) / counts.sum(), counts[:, None]
    trust = n * between / (n * between + within)  # in the shots of the class, against the mean of all
    means = centre + trust * (sums / n - centre)
    return means, within + trust * within / n


def variance_components(
    squares: Tensor, sums: Tensor, counts: Tensor, prior_shots: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Variance inside classes (σ², above zero) and between class means (τ²), both (n_features,)."""
    n, n_classes = int(counts.sum()), len(counts)
    explained = (sums.square() / counts[:, None]).sum(0)
    inside = (squares - explained).clamp(min=0)  # Σ (x − class mean)²
    across = (explained - sums.sum(0).square() / n).clamp(min=0)  # Σ (class mean − mean)², over shots
    freedom = n - n_classes
    typical = _typical_within(inside, across, freedom, n, negligible=ROUNDING * squares.mean())
    within = (inside + prior_shots * typical) / (freedom + prior_shots)
    if n_classes == 1:
        return within, torch.zeros_like(within)
    n_effective = (n - float(counts.square().sum()) / n) / (n_classes - 1)  # shots a class; their number if all equal
    excess = (across / (n_classes - 1) - within) / n_effective
    between = ((n_classes - 1) * excess.clamp(min=0) + excess.mean().clamp(min=0)) / n_classes
    return within, between


def _typical_within(inside: Tensor, across: Tensor, freedom: int, n: int, *, negligible: Tensor) -> Tensor:
    """Mean variance inside classes over dimensions: estimated, or else half of that of all `n` shots, or else one."""
    if freedom > 0 and bool(inside.mean() > negligible):
        return inside.mean() / freedom
    total = (inside + across).mean()
    return total / (2 * (n - 1)) if bool(total > negligible) else torch.ones_like(total)


def log_density(x: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    """Log density (n, n_classes) of `x` (n, n_features) under diagonal Gaussians (n_classes, n_features)."""
    centre = means.mean(0)  # squares are multiplied out, which costs fewer digits near the origin
    x, means = x - centre, means - centre
    distances = x.square() @ (1 / variances).T - 2 * x @ (means / variances).T + (means.square() / variances).sum(1)
    return -(distances + variances.log().sum(1) + x.shape[1] * math.log(2 * math.pi)) / 2


METHODS = (
    Method(
        "gaussian",
        GaussianHead,
        "A Gaussian for each class on the frozen embedding, with an uncertain mean.",
        "Murphy 2007, conjugate analysis of the Gaussian",
    ),
)
