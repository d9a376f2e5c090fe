"""Ridge regression and linear discriminant analysis together: the sum of their scores, each in units of its own spread.

Which of the two is better changes from set to set and from embedding to embedding, and a few left-out shots cannot tell it
reliably. On validation classes their sum was within a point of the better one or above it, on each of four sets.
"""

from typing import Literal

from torch import Tensor

from fscl.continual.heads.base import Extras, Head, linear_scores
from fscl.continual.heads.discriminant import LinearDiscriminant
from fscl.continual.heads.ridge import ONE_SHOT_STRENGTH, Ridge
from fscl.continual.held_out import with_company
from fscl.nets.params import Params


class Blend(Head):
    """The sum of two linear heads; ridge regression alone where every class has one row.

    Attributes:
        ridge: the first of them.
        discriminant: the second.
    """

    kind: Literal["blend"] = "blend"
    ridge: Ridge = Ridge(strength=ONE_SHOT_STRENGTH)
    discriminant: LinearDiscriminant = LinearDiscriminant()

    def fit(self, features: Tensor, labels: Tensor, n_classes: int, extras: Extras | None = None) -> Params:
        ridge = self.ridge.fit(features, labels, n_classes, extras)
        if n_classes < 2 or not bool(with_company(labels, n_classes).any()):
            return ridge
        parts = [ridge, self.discriminant.fit(features, labels, n_classes, extras)]
        spreads = [float(linear_scores(part, features).double().std(1).mean()) for part in parts]
        units = [spread if spread > 0 else 1.0 for spread in spreads]
        return {
            name: sum((part[name] / unit for part, unit in zip(parts, units, strict=True)), start=0 * ridge[name])
            for name in ridge
        }

    def scores(self, fitted: Params, features: Tensor) -> Tensor:
        return linear_scores(fitted, features)
