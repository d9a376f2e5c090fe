"""Nothing holds the embedding."""

from typing import Literal

from fscl.continual.parts import Part
from fscl.continual.regularisers.base import Regulariser
from fscl.nets.params import Params


class Unregularised(Part):
    """No penalty."""

    kind: Literal["none"] = "none"

    @property
    def strength(self) -> float:
        """None."""
        return 0.0

    def start(self, params: Params) -> Regulariser:
        return _Nothing()


class _Nothing(Regulariser):
    @property
    def strength(self) -> float:
        return 0.0
