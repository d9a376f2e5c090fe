"""What can hold the embedding while it learns: one file a regulariser."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from fscl.continual.parts import as_section
from fscl.continual.regularisers.base import (
    ComingTask,
    LearnedTask,
    QuadraticPenalty,
    Regulariser,
    can_be_squared,
    gradient_ratio,
)
from fscl.continual.regularisers.constant import Constant
from fscl.continual.regularisers.ewc import Ewc
from fscl.continual.regularisers.mas import Mas
from fscl.continual.regularisers.none import Unregularised
from fscl.continual.regularisers.si import Si
from fscl.continual.regularisers.tagging import Tagging

AnyRegulariser = Annotated[
    Annotated[Unregularised | Constant | Tagging | Ewc | Si | Mas, Field(discriminator="kind")],
    BeforeValidator(as_section),
]

__all__ = [
    "AnyRegulariser",
    "ComingTask",
    "Constant",
    "Ewc",
    "LearnedTask",
    "Mas",
    "QuadraticPenalty",
    "Regulariser",
    "Si",
    "Tagging",
    "Unregularised",
    "can_be_squared",
    "gradient_ratio",
]
