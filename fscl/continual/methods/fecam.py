"""FeCAM: each class has a covariance of its own, made a correlation, and the nearest class by that distance wins.

D. Goswami, Y. Liu, B. Twardowski, J. van de Weijer, "FeCAM: Exploiting the Heterogeneity of Class Distributions in
Exemplar-Free Continual Learning", 2023.

Features are replaced by their square roots. Of the covariance Σ of a class's shots, with v the mean of its diagonal and c
that of all else, Σ + γ₁ v I + γ₂ c (1 − I) is divided by the outer product of its own standard deviations: so classes with
much spread and little are compared alike. The score is minus the squared Mahalanobis distance to the class mean.

Few shots span few directions, so the inverse is found through them (Woodbury's identity), and kept in that form: numbers in
proportion to n·d a class instead of d².

Departs from the paper: γ₁ = 10 instead of 1, which is for many shots. Roots keep the sign of negative features, which the
paper's features do not have. The features of shots are kept instead of covariances, since these are smaller and a class may
come again. A class without spread (of one shot, say) has the correlation of independent dimensions.
"""

from typing import NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import pad

from fscl.continual.frozen import ROUNDING, KeptFeatures, exact
from fscl.continual.learner import n_bytes
from fscl.continual.registry import Method
from fscl.device import exact_device
from fscl.nets.network import Network
from fscl.nets.params import signed_root

MOST_AT_ONCE = 2**23  # numbers that are in memory together: queries × classes × dimensions


class Distances(NamedTuple):
    """Squared distances (x − μ)ᵀ A (x − μ) of classes: A = S (I − U K Uᵀ) S / a.

    Attributes:
        means: μ, (n_classes, n_features).
        scales: the diagonal of S / √a, (n_classes, n_features).
        directions: U, (n_classes, n_features, rank).
        kernel: K, (n_classes, rank, rank).
    """

    means: Tensor
    scales: Tensor
    directions: Tensor
    kernel: Tensor

    def of(self, x: Tensor) -> Tensor:
        """From `x` (n, n_features) to each class, (n, n_classes); each row alone."""
        largest = max(self.means.numel(), self.kernel.shape[0] * self.kernel.shape[1], 1)
        pieces = (x,) if torch.compiler.is_compiling() else x.split(max(MOST_AT_ONCE // largest, 1))
        return torch.cat([self._of_piece(piece) for piece in pieces])

    def _of_piece(self, x: Tensor) -> Tensor:
        away = (x - self.means[:, None]) * self.scales[:, None]  # (n_classes, n, n_features)
        along = away @ self.directions
        return (away.square().sum(2) - ((along @ self.kernel) * along).sum(2)).T


class ClassCovariances(KeptFeatures):
    """A mean and a correlation for every class, from the features of its shots, which are kept."""

    class Settings(KeptFeatures.Settings):
        """How covariances are made regular.

        Attributes:
            gamma_1: mean variances that are added to the diagonal (γ₁).
            gamma_2: mean covariances that are added to all else (γ₂); at most `gamma_1`, or there may be no inverse.
            root: whether features are replaced by their square roots, with the sign kept.
        """

        gamma_1: float = Field(default=10.0, gt=0)
        gamma_2: float = Field(default=1.0, ge=0)
        root: bool = True

        @model_validator(mode="after")
        def _has_an_inverse(self) -> Self:
            if self.gamma_2 > self.gamma_1:
                raise ValueError(f"gamma_2 is at most gamma_1, but they are {self.gamma_2} and {self.gamma_1}")
            return self

    settings: Settings

    def __init__(self, network: Network, settings: Settings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        self.distances: Distances | None = None

    def fit(self, known: Tensor, labels: Tensor, n_classes: int) -> None:
        rows, own = self._transformed(known), labels.to(exact_device(labels.device))
        gammas = self.settings.gamma_1, self.settings.gamma_2
        each = [class_distance(rows[own == label], *gammas) for label in range(n_classes)]
        self.distances = together(each) if each else None

    def fitted_bytes(self) -> int:
        return n_bytes(self.distances) if self.distances is not None else 0

    def scores(self, features: Tensor) -> Tensor:
        assert self.distances is not None  # something was learned
        return -self.distances.of(self._transformed(features)).to(features.dtype).to(features.device)

    def _transformed(self, features: Tensor) -> Tensor:
        return signed_root(exact(features)) if self.settings.root else exact(features)


def class_distance(shots: Tensor, gamma_1: float, gamma_2: float) -> Distances:
    """The distance of one class, without the first dimension of each tensor.

    M = a I + U C Uᵀ with a = γ₁ v − γ₂ c, the centred shots and a vector of ones as U, and 1/(n − 1), …, γ₂ c in the
    diagonal of C. By Woodbury's identity a M⁻¹ = I − U (a I + C UᵀU)⁻¹ C Uᵀ, and the inverse of the correlation of M is M⁻¹
    times the standard deviations of M from both sides.
    """
    n, d = shots.shape
    mean = shots.mean(0)
    factor = (shots - mean) / max(n - 1, 1) ** 0.5  # Σ = factorᵀ factor
    if n > d:
        factor = torch.linalg.qr(factor, mode="r").R
    variances = factor.square().sum(0)
    typical = variances.mean()
    if bool(typical <= ROUNDING * shots.square().mean()):
        return Distances(mean, torch.ones_like(mean), shots.new_zeros(d, 0), shots.new_zeros(0, 0))
    total = factor.sum(1).square().sum()  # of all numbers of Σ
    covariance = (total - variances.sum()) / max(d * (d - 1), 1)
    rest = (gamma_1 * typical - gamma_2 * covariance).clamp_min(ROUNDING * typical)
    directions = torch.cat([factor, factor.new_ones(1, d)]).T
    weights = torch.cat([factor.new_ones(len(factor)), (gamma_2 * covariance)[None]])
    inner = rest * torch.eye(len(weights)).to(rest) + weights[:, None] * (directions.T @ directions)
    kernel = torch.linalg.solve(inner, weights.diag())
    deviations = (variances + gamma_1 * typical).sqrt()
    return Distances(mean, deviations / rest.sqrt(), directions, kernel)


def together(each: list[Distances]) -> Distances:
    """Distances of classes as one; those of few shots are filled up with directions of no weight."""
    rank = max(one.kernel.shape[0] for one in each)
    missing = [rank - one.kernel.shape[0] for one in each]
    return Distances(
        torch.stack([one.means for one in each]),
        torch.stack([one.scales for one in each]),
        torch.stack([pad(one.directions, (0, more)) for one, more in zip(each, missing, strict=True)]),
        torch.stack([pad(one.kernel, (0, more, 0, more)) for one, more in zip(each, missing, strict=True)]),
    )


METHODS = (
    Method(
        "fecam",
        ClassCovariances,
        "A correlation for every class on the square roots of frozen features; the nearest by Mahalanobis distance.",
        "Goswami et al. 2023",
    ),
)
