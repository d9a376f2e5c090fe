"""Another head on the square roots of features, scaled to length 1.

Features after a rectifier are skewed: a few large ones decide about all distances. Their roots are closer to a Gaussian,
which discriminants and squared errors expect (a power transform, Tukey 1957; for few shots: Yang, Liu and Xu 2021).
"""

from typing import Annotated, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from fscl.continual.heads.base import Extras, Head
from fscl.continual.heads.blend import Blend
from fscl.continual.heads.discriminant import LinearDiscriminant
from fscl.continual.heads.logistic import Logistic
from fscl.continual.heads.means import Means
from fscl.continual.heads.ridge import Ridge
from fscl.continual.parts import as_section
from fscl.nets.params import Params

LEAST_NORM = 1e-6  # of roots; features of zero stay zero

Inner = Annotated[
    Annotated[Means | Ridge | Logistic | LinearDiscriminant | Blend, Field(discriminator="kind")],
    BeforeValidator(as_section),
]


class Rooted(Head):
    """Fits and asks another head on the roots of features.

    Statistics of base classes (`extras`) are those of plain features, and are not used.

    Attributes:
        head: the other one.
    """

    kind: Literal["rooted"] = "rooted"
    head: Inner = Blend()

    def fit(self, features: Tensor, labels: Tensor, n_classes: int, extras: Extras | None = None) -> Params:
        return self.head.fit(root(features), labels, n_classes)

    def scores(self, fitted: Params, features: Tensor) -> Tensor:
        return self.head.scores(fitted, root(features))

    def held_out(self, features: Tensor, labels: Tensor, n_classes: int, extras: Extras | None = None) -> Tensor:
        return self.head.held_out(root(features), labels, n_classes)


def root(features: Tensor) -> Tensor:
    """Square roots of features (n, d), with the sign kept, each row scaled to length 1."""
    roots = features.sign() * features.abs().sqrt()
    unit: Tensor = roots / torch.linalg.vector_norm(roots, dim=1, keepdim=True).clamp_min(LEAST_NORM)
    return unit
