"""Normalisation that never reads the other test images.

A layer is told what to normalise with, instead of being switched between modes:
- no `statistics`: BatchNorm uses those of the batch at hand, as it does in training, and writes them to `record` if given;
- `statistics` given: BatchNorm uses those, so that each image is treated alone.
GroupNorm looks at one image at a time and ignores both.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscl.errors import DataError

Statistics = dict[str, Tensor]
"""For each BatchNorm layer by name: its mean and variance, stacked as (2, channels)."""

NormName = Literal["group", "batch"]
EPSILON = 1e-5
GROUP_SIZE = 8  # channels in a group


def group_count(channels: int) -> int:
    """How many groups GroupNorm makes: as many as divide the channels evenly; below eight channels, one."""
    return math.gcd(channels, channels // GROUP_SIZE) if channels >= GROUP_SIZE else 1


class GroupNorm(nn.Module):
    """Normalises groups of about eight channels within one image (Wu and He 2018)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.groups = group_count(channels)
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, statistics: Statistics | None, record: Statistics | None) -> Tensor:
        return F.group_norm(x, self.groups, self.weight, self.bias, EPSILON)


class BatchNorm(nn.Module):
    """Normalises each channel over a batch (Ioffe and Szegedy 2015), or by frozen statistics."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.key = ""  # the layer's name in Statistics; set once the network is built
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, statistics: Statistics | None, record: Statistics | None) -> Tensor:
        if statistics is not None:
            return self._with(x, *statistics[self.key])
        if x.numel() == x.shape[1]:
            raise DataError(
                "BatchNorm cannot learn from one image whose map is a single pixel: there is nothing to normalise with. "
                "Give more images or larger ones, or use GroupNorm."
            )
        if record is not None:
            record[self.key] = _channel_statistics(x)
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=EPSILON)

    def _with(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        if not (mean.requires_grad or variance.requires_grad):
            return F.batch_norm(x, mean, variance, self.weight, self.bias, training=False, eps=EPSILON)
        # batch_norm would treat the statistics as constants; second-order methods differentiate through them
        scale = self.weight * torch.rsqrt(variance + EPSILON)
        shift = self.bias - mean * scale
        return x * scale[:, None, None] + shift[:, None, None]


def _channel_statistics(x: Tensor) -> Tensor:
    """Mean and variance of each channel, (2, channels). torch.var_mean is ten times slower in channels-last order."""
    rows = x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])
    rows = rows.to(torch.promote_types(x.dtype, torch.float32))  # under autocast x is bfloat16, of three digits
    mean = rows.mean(0)
    return torch.stack([mean, (rows - mean).square().mean(0)])


Norm = GroupNorm | BatchNorm


def make_norm(name: NormName, channels: int) -> Norm:
    """A normalisation layer by name."""
    return GroupNorm(channels) if name == "group" else BatchNorm(channels)
