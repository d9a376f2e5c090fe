"""Heads: how stored features and their classes become scores; one file a head."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from fscl.continual.heads.base import Head
from fscl.continual.heads.blend import Blend
from fscl.continual.heads.discriminant import LinearDiscriminant
from fscl.continual.heads.logistic import Logistic
from fscl.continual.heads.means import Means
from fscl.continual.heads.plda import Plda
from fscl.continual.heads.ridge import Ridge
from fscl.continual.heads.rooted import Rooted
from fscl.continual.parts import as_section

AnyHead = Annotated[
    Annotated[Means | Ridge | Logistic | LinearDiscriminant | Plda | Blend | Rooted, Field(discriminator="kind")],
    BeforeValidator(as_section),
]

__all__ = ["AnyHead", "Blend", "Head", "LinearDiscriminant", "Logistic", "Means", "Plda", "Ridge", "Rooted"]
