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
from torch import Tensor

from fscl.continual.frozen import ROUNDING, FrozenFeatures, add_to_classes, copied, exact, no_classes
from fscl.continual.learner import LearnerState, expect_keys
from fscl.device import exact_device
from fscl.nets.network import Network


class GaussianHead(FrozenFeatures):
    """Posterior predictive density of each class, with equal class priors."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.sums, self.counts = no_classes(network.n_features, torch.float64, exact_device(network.device))
        self.squares = self.sums.new_zeros(network.n_features)

    @property
    def n_classes(self) -> int:
        return len(self.counts)

    def learn_features(self, features: Tensor, labels: Tensor) -> None:
        doubles = exact(features)
        sums, counts = add_to_classes(self.sums, self.counts, doubles, labels)
        self.sums, self.counts, self.squares = sums, counts, self.squares + doubles.square().sum(0)

    def score_features(self, features: Tensor) -> Tensor:
        means, variances = predictive(self.squares, self.sums, self.counts)
        return log_density(exact(features), means, variances).to(features.dtype).to(features.device)

    def state(self) -> LearnerState:
        tensors = {"sums": self.sums.clone(), "counts": self.counts.clone(), "squares": self.squares.clone()}
        return LearnerState(tensors, {"method": "gaussian"})

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, {"sums", "counts", "squares"}, "gaussian head")
        self.sums, self.counts, self.squares = copied(state, self.sums.device, "sums", "counts", "squares")


def predictive(squares: Tensor, sums: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances (n_classes, n_features) of the next shot of each class, its mean integrated out."""
    within, between = variance_components(squares, sums, counts)
    centre, n = sums.sum(0) / counts.sum(), counts[:, None]
    trust = n * between / (n * between + within)  # in the shots of the class, against the mean of all
    means = centre + trust * (sums / n - centre)
    return means, within + trust * within / n


def variance_components(squares: Tensor, sums: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Variance inside classes (σ², above zero) and between class means (τ²), both (n_features,)."""
    n, n_classes = int(counts.sum()), len(counts)
    explained = (sums.square() / counts[:, None]).sum(0)
    inside = (squares - explained).clamp(min=0)  # Σ (x − class mean)²
    across = (explained - sums.sum(0).square() / n).clamp(min=0)  # Σ (class mean − mean)², over shots
    freedom = n - n_classes
    typical = _typical_within(inside, across, freedom, n, negligible=ROUNDING * squares.mean())
    within = (inside + typical) / (freedom + 1)
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
