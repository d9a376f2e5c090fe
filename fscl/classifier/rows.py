"""Rows of numbers in the place of pictures: features that another model has made, to be learned as they are.

scikit-learn's data is of this kind. There is no network to run and no embedding to move, so the methods of two-step
consolidation learn their head alone, which for `tsc` means class means. Scale the columns first if they differ in size.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fscl.nets.network import Network, NetworkSpec
from fscl.nets.norm import Statistics

# what is left of a method when there is no embedding
STILL: dict[str, Any] = {
    "embedding_steps": 0,
    "regulariser": "none",
    "accumulate": "sum",
    "views": 1,
    "jitter": 0.0,
    "mirror": False,
    "memory": "shots",
    "start": "base",
}


@dataclass(frozen=True, eq=False)
class Rows(Network):
    """A network whose features are its inputs: float64 rows (n, width)."""

    width: int = 0

    @property
    def n_features(self) -> int:
        return self.width

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64

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


def rows_network(width: int) -> Rows:
    """The network for rows of so many numbers."""
    return Rows(NetworkSpec(), {}, width=width)
