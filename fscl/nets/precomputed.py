"""Rows of numbers in the place of pictures: features that another model has made, to be learned as they are.

scikit-learn's data is of this kind. There is no network to run and no embedding to move, so the methods of two-step
consolidation learn their head alone, which for `tsc` means class means. Scale the columns first if they differ in size.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fscl.errors import MisuseError
from fscl.nets.network import Network
from fscl.nets.norm import Statistics
from fscl.nets.params import Params


class PrecomputedSpec(BaseModel):
    """How many numbers a row has."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: int = Field(ge=1)


@final
@dataclass(frozen=True, eq=False, repr=False)
class PrecomputedFeatures(Network):
    """A network whose features are its inputs: float64 rows (n, width)."""

    spec: PrecomputedSpec

    @property
    def n_features(self) -> int:
        return self.spec.width

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def picture_shape(self) -> None:
        return None

    def to_input(self, images: Tensor) -> Tensor:
        return images

    def features(
        self,
        x: Tensor,
        params: Mapping[str, Tensor] | None = None,
        *,
        statistics: Statistics | None = None,
        record: Statistics | None = None,
    ) -> Tensor:
        return x

    def embed(
        self, images: Tensor, params: Mapping[str, Tensor] | None = None, *, statistics: Statistics | None = None
    ) -> Tensor:
        return images

    def to(self, device: torch.device | str) -> Self:
        return self  # rows are learned where they are

    def with_weights(self, params: Params, statistics: Statistics | None = None) -> Self:
        return self

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def save(self, path: Path, details: Mapping[str, Any] | None = None) -> None:
        raise MisuseError("rows of numbers have no network to save: their width says it all.")

    def _shape(self) -> str:
        return f"rows of {self.spec.width} numbers"


def precomputed_features(width: int) -> PrecomputedFeatures:
    """The network for rows of so many numbers."""
    return PrecomputedFeatures(PrecomputedSpec(width=width), {})
