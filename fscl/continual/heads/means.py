"""Class means: the nearest by squared Euclidean distance (Mensink et al. 2013; Snell, Swersky, Zemel 2017)."""

from typing import Literal

from torch import Tensor

from fscl.continual.heads.base import Extras, Head, checked, linear_head, linear_scores, without_own
from fscl.nets.params import Params, class_sums


class Means(Head):
    """Scores a class by minus the squared distance to its mean, up to the square of the row itself."""

    kind: Literal["means"] = "means"

    def fit(self, features: Tensor, labels: Tensor, n_classes: int, extras: Extras | None = None) -> Params:
        doubles = checked(features)
        sums, counts = class_sums(doubles, labels, n_classes)
        means, centre = sums / counts[:, None], doubles.mean(0)
        offset = 2 * means @ centre - means.square().sum(1)
        return linear_head(2 * means, offset, centre)

    def scores(self, fitted: Params, features: Tensor) -> Tensor:
        return linear_scores(fitted, features)

    def held_out(self, features: Tensor, labels: Tensor, n_classes: int, extras: Extras | None = None) -> Tensor:
        """Exact: a row moves no mean but that of its own class."""
        doubles = checked(features)
        sums, counts = class_sums(doubles, labels, n_classes)
        means = sums / counts[:, None]
        without = (sums[labels] - doubles) / (counts[labels] - 1).clamp_min(1)[:, None]
        scores = 2 * doubles @ means.T - means.square().sum(1)
        own = 2 * (doubles * without).sum(1) - without.square().sum(1)
        scores = scores.scatter(1, labels[:, None], own[:, None])
        return without_own(scores.to(features.dtype), labels, n_classes)
