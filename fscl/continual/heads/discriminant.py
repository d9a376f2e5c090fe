"""Linear discriminant analysis: class means, told apart in the directions in which rows of a class agree (Fisher 1936).

One covariance is shared by all classes, and shrunk towards a multiple of the identity: as far as left-out rows are best
recognised, or by the estimate of Chen, Wiesel, Eldar and Hero 2010 (OAS), which shrinks less than features of photographs
need. Where the base carries the covariance inside its own classes, that is mixed in: few shots say little about a
covariance, and base classes have many.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.continual.frozen import ROUNDING
from fscl.continual.heads.base import Extras, Head, checked, coordinates, linear_head, linear_scores, without_own
from fscl.continual.held_out import with_company
from fscl.continual.methods.discriminant import oas_shrinkage, within_scatter
from fscl.errors import MisuseError
from fscl.nets.params import Params, class_sums

SHRINKAGES = (0.95, 0.9, 0.8, 0.6, 0.3)  # of equally good ones the first
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
LEAST_VARIANCE = 0.01  # added to a base covariance, as a share of its mean variance: it may come from few images

Shrinkage = Literal["auto", "oas"] | Annotated[float, Field(ge=0, le=1)]


class LinearDiscriminant(Head):
    """Log density of each class up to a number that is the same for all; equal class priors.

    Attributes:
        shrinkage: of the rows' covariance towards a multiple of the identity: a share from 0 to 1; "auto" takes the one of
            `SHRINKAGES` that recognises most left-out rows, and "oas" the estimate of Chen et al.
        base_share: how much of the covariance is that inside base classes (`extras["within"]`); "auto" takes the one of
            `SHARES` that recognises most left-out rows, all of it where every class has one row, and none where the base
            carries no such covariance.
    """

    kind: Literal["discriminant"] = "discriminant"
    shrinkage: Shrinkage = "auto"
    base_share: Literal["auto"] | Annotated[float, Field(ge=0, le=1)] = "auto"

    def fit(self, features: Tensor, labels: Tensor, n_classes: int, extras: Extras | None = None) -> Params:
        return self._scatter(features, labels, n_classes, extras).solve()

    def scores(self, fitted: Params, features: Tensor) -> Tensor:
        return linear_scores(fitted, features)

    def held_out(self, features: Tensor, labels: Tensor, n_classes: int, extras: Extras | None = None) -> Tensor:
        """Exact, up to a number for each row, but for shrinkage and share of the base, which are those of all rows."""
        scores = self._scatter(features, labels, n_classes, extras).left_out()
        return without_own(scores.to(features.dtype), labels, n_classes)

    def _scatter(self, features: Tensor, labels: Tensor, n_classes: int, extras: Extras | None) -> "Scatter":
        """The rows' scatter with shrinkage and share of the base chosen."""
        base = base_within(extras)
        if base is None and self.base_share not in ("auto", 0):
            raise MisuseError(
                f"base_share is {self.base_share}, but the base carries no covariance inside its classes. Set it to "
                '"auto" or 0, or take a base with an extra named "within".'
            )
        shots = Scatter(features, labels, n_classes)
        shots.shrink(self.shrinkage)
        if base is None:
            return shots
        mixed = Scatter(features, labels, n_classes, base)
        mixed.shrinkage = shots.shrinkage
        if self.base_share != "auto":
            mixed.base_share = self.base_share
        elif mixed.can_choose:
            mixed.base_share = min(SHARES, key=lambda share: mixed.mistakes(shots.shrinkage, share))
        return mixed


def base_within(extras: Extras | None) -> Tensor | None:
    """The covariance inside base classes, in double precision and invertible; None where the base carries none."""
    if not extras or "within" not in extras:
        return None
    within = extras["within"].detach().cpu().double()
    return within + LEAST_VARIANCE * within.diagonal().mean() * torch.eye(len(within)).to(within)


class Scatter:
    """Rows around the means of their classes.

    Without a base everything happens in the space that the rows span: outside it the covariance is a multiple of the
    identity, and neither rows nor means have a part there.

    Args:
        features: (n, n_features).
        labels: (n,).
        n_classes: how many there are.
        base: a covariance (n_features, n_features) to mix in.
    """

    def __init__(self, features: Tensor, labels: Tensor, n_classes: int, base: Tensor | None = None) -> None:
        self.base, self.labels, self.n_dimensions = base, labels, features.shape[1]
        self.basis: Tensor | None = None
        if base is None:
            space = coordinates(features)
            self.centre, self.rows, self.basis = space.centre, space.rows * space.unit, space.basis
        else:
            self.centre = checked(features).mean(0)
            self.rows = features.double() - self.centre
        sums, self.counts = class_sums(self.rows, labels, n_classes)
        self.means = sums / self.counts[:, None]
        self.several = with_company(labels, n_classes)
        self.freedom = len(labels) - n_classes
        self.inside = within_scatter(self.rows.T @ self.rows, sums, self.counts)
        self.has_spread = self.freedom > 0 and float(self.inside.trace()) > ROUNDING * float(
            features.double().square().sum()
        )
        self.shrinkage, self.base_share = 1.0, 1.0 if base is not None else 0.0

    @property
    def can_choose(self) -> bool:
        """Whether there are rows to leave out, and spread to tell settings by."""
        return self.has_spread and bool(self.several.any())

    def shrink(self, shrinkage: float | Literal["auto", "oas"]) -> None:
        """Set the shrinkage, or find it."""
        if shrinkage == "oas":
            covariance = self.inside / max(self.freedom, 1)
            self.shrinkage = oas_shrinkage(covariance, self.freedom, self.n_dimensions) if self.has_spread else 1.0
        elif shrinkage != "auto":
            self.shrinkage = shrinkage
        elif self.can_choose:
            self.shrinkage = min(SHRINKAGES, key=lambda share: self.mistakes(share, self.base_share))

    def covariance(self, shrinkage: float, base_share: float, freedom: int) -> Tensor:
        """The covariance inside classes, of the rows and of the base together; the identity if neither has one."""
        identity = torch.eye(self.rows.shape[1], dtype=torch.float64)
        if not self.has_spread:
            return identity if self.base is None else self.base
        variance = float(self.inside.trace()) / self.n_dimensions / self.freedom
        own = (1 - shrinkage) * self.inside / freedom + shrinkage * variance * identity
        return own if self.base is None else (1 - base_share) * own + base_share * self.base

    def solve(self) -> Params:
        """The linear head: Σ⁻¹μ · x − ½ μᵀΣ⁻¹μ, seen from the centre."""
        covariance = self.covariance(self.shrinkage, self.base_share, self.freedom)
        weights = torch.linalg.solve(covariance, self.means.T).T
        offset = -(weights * self.means).sum(1) / 2
        return linear_head(weights if self.basis is None else weights @ self.basis.T, offset, self.centre)

    def left_out(self, shrinkage: float | None = None, base_share: float | None = None) -> Tensor:
        """Scores (n, n_classes) of each row by the means and the covariance of the others.

        Without a row x of a class of n with mean μ, the mean is μ − v / (n − 1), v = x − μ, and the scatter is less by
        n / (n − 1) v vᵀ; the inverse follows by the formula of Sherman and Morrison.
        """
        shrinkage = self.shrinkage if shrinkage is None else shrinkage
        base_share = self.base_share if base_share is None else base_share
        freedom = max(self.freedom - 1, 1)
        factor = torch.linalg.cholesky(self.covariance(shrinkage, base_share, freedom))
        centre = torch.zeros_like(self.means[:1])
        rows, means = (
            torch.linalg.solve_triangular(factor, points.T, upper=False).T
            for points in (self.rows, torch.cat([self.means, centre]))
        )
        n = self.counts[self.labels].double()
        grown = torch.where(self.several, n / (n - 1).clamp_min(1), 0)[:, None]
        v = rows - means[self.labels]
        squared = torch.cdist(rows, means, compute_mode="donot_use_mm_for_euclid_dist").square()
        along = (rows * v).sum(1, keepdim=True) - v @ means.T  # vᵀ (x − mean) for every mean
        own, norm = self.labels[:, None], v.square().sum(1, keepdim=True)
        squared = squared.scatter(1, own, grown.square() * norm)  # x − (μ − v / (n − 1)) = n / (n − 1) v
        along = along.scatter(1, own, grown * norm)
        less = grown * ((1 - base_share) * (1 - shrinkage) / freedom if self.has_spread else 0)
        squared = squared + less * along.square() / (1 - less * norm)
        scores: Tensor = (squared[:, -1:] - squared[:, :-1]) / 2
        return scores

    def mistakes(self, shrinkage: float, base_share: float) -> tuple[int, float]:
        """How many left-out rows are taken for another class, and their cross-entropy; of rows whose class has another."""
        scores, labels = self.left_out(shrinkage, base_share)[self.several], self.labels[self.several]
        return int((scores.argmax(1) != labels).sum()), float(cross_entropy(scores, labels))
