"""Linear discriminant analysis in a stream: class means, told apart in the directions in which shots of a class agree.

Hayes and Kanan 2020, "Lifelong machine learning with deep streaming linear discriminant analysis". One covariance is
shared by all classes, and shrunk towards a multiple of the identity by the oracle-approximating estimator of Chen,
Wiesel, Eldar and Hero 2010 (OAS). Costs one pass over the shots and one solve a task, and keeps no feature.

`slda` takes the covariance inside base classes instead (the extra `within` of the base), and shots change class means alone:
few shots say little about a covariance, and base classes have many images. With `root`, the features are their square roots,
which are less skewed (a power transform, Tukey 1957), and the covariance is that of roots (`root_within`).

Departs from the paper: Σ x xᵀ is kept instead of a running covariance, so that the scatter around the class means is that
of all shots at once, in whatever order they came; it is divided by its degrees of freedom. The shrinkage is estimated
instead of fixed at 1e-4. The covariance is that of shots or that of base classes, and never a mixture: the paper starts from
base classes and goes on with shots. Without any spread inside the classes (one shot each, say) the answer is the nearest
class mean.
"""

from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fscl.continual.frozen import ROUNDING, FrozenFeatures, add_to_classes, copied, exact, no_classes
from fscl.continual.learner import LearnerState, expect_keys, without_row
from fscl.continual.registry import Method
from fscl.device import exact_device
from fscl.errors import MisuseError
from fscl.nets.network import Network
from fscl.nets.params import signed_root


class Discriminant(FrozenFeatures):
    """Linear discriminant analysis with a shared, shrunk covariance and equal class priors."""

    class Settings(FrozenFeatures.Settings):
        """Which covariance, and how it is shrunk.

        Attributes:
            shrinkage: towards a multiple of the identity: "oas" estimates it from the shots (Chen et al. 2010), or a share
                from 0 to 1.
            covariance: that inside classes of the "shots" so far, or that inside classes of the "base".
            root: whether features are replaced by their square roots, with the sign kept.
        """

        shrinkage: Literal["oas"] | Annotated[float, Field(ge=0, le=1)] = "oas"
        covariance: Literal["shots", "base"] = "shots"
        root: bool = False

        @model_validator(mode="after")
        def _base_needs_a_share(self) -> Self:
            if self.covariance == "base" and self.shrinkage == "oas":
                raise ValueError("shrinkage = 'oas' is for covariance = 'shots'; give a share from 0 to 1, such as 0.6")
            return self

    settings: Settings

    def __init__(self, network: Network, settings: Settings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        self.sums, self.counts = no_classes(network.n_features, torch.float64, exact_device(network.device))
        self.base_covariance = base_covariance(network, settings) if settings.covariance == "base" else None
        side = 0 if settings.covariance == "base" else network.n_features  # of the moment, which only shots need
        self.moment = self.sums.new_zeros(side, side)
        self.weights, self.bias = self.sums, self.sums[:, 0]

    @property
    def n_classes(self) -> int:
        return len(self.counts)

    def learn_features(self, features: Tensor, labels: Tensor) -> None:
        doubles = self._transformed(features)
        sums, counts = add_to_classes(self.sums, self.counts, doubles, labels)
        moment = self.moment if self.settings.covariance == "base" else self.moment + doubles.T @ doubles
        self._hold(sums, counts, moment)

    def scores(self, features: Tensor) -> Tensor:
        return (self._transformed(features) @ self.weights.T + self.bias).to(features.dtype).to(features.device)

    def without_class(self, label: int) -> bool:
        if self.settings.covariance == "shots":
            return False  # the moment is that of all classes together
        self._hold(without_row(self.sums, label), without_row(self.counts, label), self.moment)
        return True

    def state(self) -> LearnerState:
        return LearnerState(
            {"sums": self.sums.clone(), "counts": self.counts.clone(), "moment": self.moment.clone()}, {}
        )

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, {"sums", "counts", "moment"}, "discriminant")
        self._hold(*copied(state, self.sums.device, "sums", "counts", "moment"))

    def _transformed(self, features: Tensor) -> Tensor:
        return signed_root(exact(features)) if self.settings.root else exact(features)

    def _hold(self, sums: Tensor, counts: Tensor, moment: Tensor) -> None:
        if self.base_covariance is None:
            weights, bias = discriminant_weights(moment, sums, counts, self.settings.shrinkage)
        else:
            weights, bias = weights_of(sums, counts, self.base_covariance)
        self.sums, self.counts, self.moment, self.weights, self.bias = sums, counts, moment, weights, bias


def base_covariance(network: Network, settings: Discriminant.Settings) -> Tensor:
    """The covariance inside base classes that the network carries, shrunk."""
    name = "root_within" if settings.root else "within"
    covariance = exact(network.extra(name, f"covariance = 'base'{' with root' if settings.root else ''}"))
    shrunk = shrunk_by(covariance, float(settings.shrinkage))
    if int(torch.linalg.cholesky_ex(shrunk).info) != 0:
        raise MisuseError(
            f"the covariance inside the base classes ({name}) with shrinkage = {settings.shrinkage} has no inverse. Raise "
            "shrinkage, or take covariance = 'shots'."
        )
    return shrunk


def discriminant_weights(
    moment: Tensor, sums: Tensor, counts: Tensor, shrinkage: float | Literal["oas"] = "oas"
) -> tuple[Tensor, Tensor]:
    """Weights (n_classes, n_features) and bias (n_classes,) of Σ⁻¹μ · x − ½ μᵀΣ⁻¹μ, the log density of each class.

    Up to a number that is the same for all classes: means are taken from the mean of all shots, which costs fewer digits.
    """
    return weights_of(sums, counts, shrunk_covariance(moment, sums, counts, shrinkage))


def weights_of(sums: Tensor, counts: Tensor, covariance: Tensor | None) -> tuple[Tensor, Tensor]:
    """The same with a covariance that is known; without one, those of the nearest class mean."""
    centre = sums.sum(0) / counts.sum()
    means = sums / counts[:, None] - centre
    weights = means if covariance is None else torch.linalg.solve(covariance, means.T).T.contiguous()
    return weights, -(weights * (centre + means / 2)).sum(1)


def shrunk_covariance(
    moment: Tensor, sums: Tensor, counts: Tensor, shrinkage: float | Literal["oas"] = "oas"
) -> Tensor | None:
    """The covariance inside classes from Σ x xᵀ, shrunk towards the identity; None if the shots show no spread."""
    freedom = int(counts.sum()) - len(counts)
    scatter = within_scatter(moment, sums, counts)
    if freedom == 0 or bool(scatter.trace() <= ROUNDING * moment.trace()):
        return None
    covariance = scatter / freedom
    share = oas_shrinkage(covariance, freedom) if shrinkage == "oas" else shrinkage
    return shrunk_by(covariance, share)


def shrunk_by(covariance: Tensor, share: float) -> Tensor:
    """Mixed with a multiple of the identity that has the same trace."""
    target = covariance.trace() / len(covariance) * torch.eye(len(covariance)).to(covariance)
    return (1 - share) * covariance + share * target


def within_scatter(moment: Tensor, sums: Tensor, counts: Tensor) -> Tensor:
    """Σ (x − μ)(x − μ)ᵀ, μ the mean of the class of x."""
    return moment - sums.T @ (sums / counts[:, None])


def oas_shrinkage(covariance: Tensor, n: int, n_dimensions: int | None = None) -> float:
    """How far to shrink the covariance of `n` centred vectors: equation 23 of Chen et al.

    Shots minus their class means count as one vector fewer a class. A covariance in the space that the vectors span, which
    is all of it that is not zero, needs the `n_dimensions` that there are.
    """
    p = n_dimensions or len(covariance)
    squared, square = float(covariance.square().sum()), float(covariance.trace()) ** 2  # Tr(S²), Tr²(S)
    spread = squared - square / p  # of the eigenvalues; none means that S is its own target
    if spread <= ROUNDING * squared:
        return 1.0
    return min(((1 - 2 / p) * squared + square) / ((n + 1 - 2 / p) * spread), 1.0)


METHODS = (
    Method(
        "discriminant",
        Discriminant,
        "Streaming linear discriminant on the frozen embedding, with shrinkage.",
        "Hayes, Kanan 2020; Chen et al. 2010",
    ),
    Method(
        "slda",
        Discriminant,
        "Streaming linear discriminant on the frozen embedding, with the covariance inside base classes (base statistics).",
        "Hayes, Kanan 2020",
        {"covariance": "base", "shrinkage": 0.6},
    ),
)
