"""Probabilistic linear discriminant analysis: a class is a Gaussian whose mean is the less certain the fewer its rows.

Ioffe 2006; the two-covariance form of Brümmer and de Villiers 2010. The mean of a class is drawn from N(m, B), its rows
from N(mean, W). Given its n rows, the next one of a class is Gaussian again, in closed form; its log density is the score.
In coordinates in which W is the identity and B is diagonal (ψ), the mean is nψ / (1 + nψ) times that of the rows and the
variance is 1 + ψ / (1 + nψ).

m, W and B are those of the base's own classes where the base carries them (`extras` named "mean", "within", "between").
Otherwise they are estimated from the rows: W is the covariance inside classes and B that of the class means minus what W
adds to it, both shrunk towards a multiple of the identity: W as far as linear discriminant analysis does, B by the
estimate of Chen et al. 2010 (OAS). One row a class cannot tell W from B: half of the covariance is each.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from fscl.continual.frozen import exact
from fscl.continual.heads.base import Extras, Head, checked, without_own
from fscl.continual.heads.discriminant import Scatter, Shrinkage, base_within
from fscl.continual.methods.discriminant import oas_shrinkage
from fscl.continual.methods.gaussian import log_density
from fscl.nets.params import Params, class_sums

LEAST_BETWEEN = 0.01  # of the mean variance between class means: what a direction without any has


class Plda(Head):
    """Log density of the next row of each class, the mean of the class integrated out; equal class priors.

    Attributes:
        shrinkage: of W, where it is estimated from the rows; as in `LinearDiscriminant`.
    """

    kind: Literal["plda"] = "plda"
    shrinkage: Shrinkage = "auto"

    def fit(self, features: Tensor, labels: Tensor, n_classes: int, extras: Extras | None = None) -> Params:
        doubles = checked(features)
        model = of_base(extras) or of_shots(doubles, labels, n_classes, self.shrinkage)
        sums, counts = class_sums(model.project(doubles), labels, n_classes)
        return model.fitted(sums / counts[:, None], counts)

    def scores(self, fitted: Params, features: Tensor) -> Tensor:
        doubles = exact(features)
        values = {name: tensor.to(doubles) for name, tensor in fitted.items()}
        centred = doubles - values["centre"]
        inside = centred @ values["basis"].T
        rest = (centred.square().sum(1) - inside.square().sum(1)).clamp(min=0)[:, None]
        density = log_density(inside @ values["rotation"].T, values["means"], values["variances"])
        scores = density - rest * values["rest_precision"] / 2 + values["constant"]
        return scores.to(features.dtype).to(features.device)

    def held_out(self, features: Tensor, labels: Tensor, n_classes: int, extras: Extras | None = None) -> Tensor:
        """Exact with the statistics of the base: a row changes nothing but its own class. In folds otherwise."""
        model = of_base(extras)
        if model is None:
            return self.in_folds(features, labels, n_classes)
        rows = model.project(checked(features))
        sums, counts = class_sums(rows, labels, n_classes)
        scores = self.scores(model.fitted(sums / counts[:, None], counts), features)
        others = (counts[labels] - 1).clamp_min(1)
        means, variances = model.predictive((sums[labels] - rows) / others[:, None], others)
        own = -((rows - means).square() / variances + (2 * math.pi * variances).log()).sum(1) / 2 + model.log_scale
        scores = scores.scatter(1, labels[:, None], own.to(scores)[:, None])
        return without_own(scores, labels, n_classes)


@dataclass(frozen=True)
class TwoCovariances:
    """W and B, as coordinates in which W is the identity and B is diagonal.

    The coordinates may be fewer than the features: the rest has no direction in which W or B differ.

    Attributes:
        centre: m, (n_features,).
        basis: (rank, n_features), orthonormal rows.
        rotation: (rank, rank), from the basis to the coordinates.
        between: ψ, (rank,).
        rest_within: W in each of the directions that are left.
        rest_between: ψ in each of them.
    """

    centre: Tensor
    basis: Tensor
    rotation: Tensor
    between: Tensor
    rest_within: float = 1.0
    rest_between: float = 1.0

    @classmethod
    def of(cls, centre: Tensor, basis: Tensor, within: Tensor, between: Tensor) -> Self:
        """From W (rank,), diagonal in the basis, and B (rank, rank)."""
        roots = within.rsqrt()
        values, vectors = torch.linalg.eigh(roots[:, None] * between * roots)
        return cls(centre, basis, vectors.T * roots, values.clamp(min=0))

    @property
    def log_scale(self) -> float:
        """The log determinant of the rotation."""
        return float(torch.linalg.slogdet(self.rotation).logabsdet)

    def project(self, features: Tensor) -> Tensor:
        """Coordinates (n, rank) of features."""
        return (features - self.centre) @ self.basis.T @ self.rotation.T

    def predictive(self, means: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances (n_classes, rank) of the next row of classes with these means of so many rows."""
        n = counts[:, None].double()
        posterior = self.between / (1 + n * self.between)
        return n * posterior * means, 1 + posterior

    def fitted(self, means: Tensor, counts: Tensor) -> Params:
        """All that scoring needs."""
        predicted, variances = self.predictive(means, counts)
        n_rest = self.basis.shape[1] - len(self.basis)
        rest = self.rest_within * (1 + self.rest_between / (1 + counts.double() * self.rest_between))
        values = {
            "centre": self.centre,
            "basis": self.basis,
            "rotation": self.rotation,
            "means": predicted,
            "variances": variances,
            "rest_precision": 1 / rest if n_rest else torch.zeros_like(rest),
            "constant": self.log_scale - n_rest * (2 * math.pi * rest).log() / 2,
        }
        return {name: tensor.float().contiguous() for name, tensor in values.items()}


def of_base(extras: Extras | None) -> TwoCovariances | None:
    """The statistics of the base's classes; None where it does not carry all three."""
    within = base_within(extras)
    if extras is None or within is None or not {"mean", "between"} <= extras.keys():
        return None
    centre, between = (extras[name].detach().cpu().double() for name in ("mean", "between"))
    values, vectors = torch.linalg.eigh(within)
    return TwoCovariances.of(centre, vectors.T, values, vectors.T @ between @ vectors)


def of_shots(
    features: Tensor, labels: Tensor, n_classes: int, shrinkage: float | Literal["auto", "oas"]
) -> TwoCovariances:
    """Estimated from rows, in the space that they span; outside it there is what shrinkage puts there."""
    shots = Scatter(features, labels, n_classes)
    assert shots.basis is not None
    d, rows, n = features.shape[1], shots.rows, len(labels)
    if shots.has_spread:
        shots.shrink(shrinkage)
        within, rest = shrunk(shots.inside / shots.freedom, shots.shrinkage, d)
    else:
        total = rows.T @ rows / max(n - 1, 1)
        within, rest = shrunk(total / 2, oas_shrinkage(total, max(n - 1, 1), d) if n > 1 else 1.0, d)
    values, vectors = torch.linalg.eigh(within)
    rotation = vectors.T * values.rsqrt()[:, None]
    known = TwoCovariances(shots.centre, shots.basis.T, rotation, torch.ones_like(values), rest)
    if not shots.has_spread or n_classes == 1:
        return known
    white = shots.means @ rotation.T
    white = white - white.mean(0)
    across = white.T @ white / (n_classes - 1)
    across, rest_across = shrunk(across, oas_shrinkage(across, n_classes - 1, d), d)
    n_effective = (n - float(shots.counts.square().sum()) / n) / (
        n_classes - 1
    )  # rows a class; their number if all equal
    between, vectors = torch.linalg.eigh(across)
    least = LEAST_BETWEEN * (float(between.sum()) + (d - len(between)) * rest_across) / d
    between = (between - 1 / n_effective).clamp(min=least)
    rest_between = max(rest_across - 1 / n_effective, least)
    return replace(known, rotation=vectors.T @ rotation, between=between, rest_between=rest_between)


def shrunk(covariance: Tensor, share: float, n_dimensions: int) -> tuple[Tensor, float]:
    """A covariance shrunk towards a multiple of the identity, and the variance that this gives to all other directions."""
    mean = float(covariance.trace()) / n_dimensions
    identity = torch.eye(len(covariance)).to(covariance)
    if mean <= 0:
        return identity, 1.0
    return (1 - share) * covariance + share * mean * identity, share * mean
