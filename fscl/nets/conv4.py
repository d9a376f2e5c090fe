"""Conv-4: four blocks of 3×3 convolution, normalisation, 2×2 max-pooling and ReLU; the field's small backbone.

Departs from the usual: pooling comes before ReLU (exactly equal, and less memory traffic), and the convolutions have no
bias, because the normalisation that follows has one.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fscl.nets.fast.patches import Patches, batch_moments, first_block, group_moments
from fscl.nets.norm import BatchNorm, GroupNorm, NormName, Statistics, make_norm


class Conv4(nn.Module):
    """Maps (n, channels, size, size) to (n, width · (size // 16)²)."""

    def __init__(self, *, channels: int, width: int, image_size: int, norm: NormName) -> None:
        super().__init__()
        inputs = [channels, width, width, width]
        self.convs = nn.ModuleList(nn.Conv2d(n, width, 3, padding=1, bias=False) for n in inputs)
        self.norms = nn.ModuleList(make_norm(norm, width) for _ in inputs)
        self.n_features = width * (image_size // 16) ** 2

    def forward(
        self, x: Tensor | Patches, statistics: Statistics | None = None, record: Statistics | None = None
    ) -> Tensor:
        first = 0
        if isinstance(x, Patches):
            x, first = self._first_block(x, statistics, record), 1
        for conv, norm in list(zip(self.convs, self.norms, strict=True))[first:]:
            x = F.relu(F.max_pool2d(norm(conv(x), statistics, record), 2))
        return x.flatten(1)

    def _first_block(self, x: Patches, statistics: Statistics | None, record: Statistics | None) -> Tensor:
        conv, norm = self.convs[0], self.norms[0]
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, GroupNorm | BatchNorm)
        if isinstance(norm, GroupNorm):
            moments = group_moments(x, conv.weight, norm.groups)
        elif statistics is not None:
            mean, variance = statistics[norm.key]
            moments = mean, variance
        else:
            moments = batch_moments(x, conv.weight)
            if record is not None:
                record[norm.key] = torch.stack(moments)
        return first_block(x, conv.weight, norm.weight, norm.bias, moments)
