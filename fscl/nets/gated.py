"""Gated Conv-4: a second, smaller Conv-4 looks at the same picture, and gates the features of the first.

The network of ANML (Beaulieu et al., "Learning to Continually Learn", 2020), where the gate is called neuromodulatory. What
a gate closes is neither seen nor learned from, because the gradient in a row of a linear head is a multiple of the feature.

Departs from the paper: Conv-4 instead of three blocks; the gate has 7/16 of the body's filters, as there (112 of 256).
"""

import torch
from torch import Tensor, nn

from fscl.nets.backbone import Backbone
from fscl.nets.conv4 import Conv4
from fscl.nets.fast.patches import Patches
from fscl.nets.norm import NormName, Statistics

BODY = "body."  # how the names of its tensors begin; all others belong to the gate


class Gated4(Backbone):
    """Maps (n, channels, size, size) to (n, width · (size // 16)²): body(x) · sigmoid(opening(gate(x)))."""

    def __init__(self, *, channels: int, width: int, image_size: int, norm: NormName) -> None:
        super().__init__()
        self.widths = [width, max(1, 7 * width // 16)]
        self.body, self.gate = (
            Conv4(channels=channels, width=each, image_size=image_size, norm=norm) for each in self.widths
        )
        self.opening = nn.Linear(self.gate.n_features, self.body.n_features)
        self.n_features = self.body.n_features
        both = [
            tuple(f"{branch}{prefix}" for branch in (BODY, "gate.") for prefix in stage) for stage in self.body.stages
        ]
        self.stages = (*both[:-1], (*both[-1], "opening."))

    def stage(
        self, number: int, x: Tensor | Patches, statistics: Statistics | None, record: Statistics | None
    ) -> Tensor:
        """One stage of both, whose maps lie one after the other, so that the network can be split."""
        inputs = x.split(self.widths, 1) if number and isinstance(x, Tensor) else (x, x)
        branches = zip((self.body, self.gate), inputs, strict=True)
        return torch.cat([branch.stage(number, maps, statistics, record) for branch, maps in branches], 1)

    def pool(self, x: Tensor) -> Tensor:
        body, gate = x.split(self.widths, 1)
        gated: Tensor = body.flatten(1) * torch.sigmoid(self.opening(gate.flatten(1)))
        return gated
