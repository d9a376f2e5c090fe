"""The first block of Conv-4 by patches: convolution, normalisation, pooling and ReLU of pictures of one channel.

The first block has by far the largest map, and next to nothing to compute on it: in plain torch a training step spends half
of its time moving that map through memory. Here it is never made whole:

- A filter's response is an inner product with a 3×3 patch, so its mean and variance over any set of patches follow from the
  patches' own mean and covariance, 9 and 9×9 numbers that do not depend on the weights. No pass over the map finds them
  (and they come out a thousand times as exact as torch's in single precision).
- Normalisation is then part of the filters, and pooling is the largest of four inner products, found for a few pictures at
  a time, which stay in the cache. The backward pass finds them again instead of keeping them.
- Windows without ink all have the same answer; only the others are computed.

A patch is a column of ten numbers, the tenth a 1 that meets the bias. Columns are in four equal parts, one for each of the
four pixels that pooling compares. Where some of them are exactly equal, they share the gradient.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fscl.nets.norm import EPSILON, BatchNorm, GroupNorm, Statistics

Moments = tuple[Tensor, Tensor]
SIDE = 3  # of a patch
AT_ONCE = 8  # pictures; their responses, a megabyte at 32 filters, stay in the cache


@dataclass(frozen=True, eq=False)
class Patches:
    """Pictures of one channel, cut into patches.

    Attributes:
        shape: how many pictures; height and width of their maps after pooling.
        pieces: for a few pictures each: the patches of windows with ink, (10, 4 · windows).
        places: for each piece, the numbers of its windows among all.
        mean, covariance: of the patches of each picture, (n, 9) and (n, 9, 9); or (1, …) of those of all.
    """

    shape: tuple[int, int, int]
    pieces: tuple[Tensor, ...]
    places: tuple[Tensor, ...]
    mean: Tensor
    covariance: Tensor

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        return self.mean.dtype

    @property
    def device(self) -> torch.device:
        return self.mean.device


def cut(x: Tensor, *, each: bool) -> Patches:
    """The patches of pictures (n, 1, height, width) of even height and width, with zeros around them.

    Args:
        each: whether moments are wanted of each picture, or of all of them together.
    """
    padded = F.pad(x[:, 0], (1, 1, 1, 1))
    inked = F.max_pool2d(padded.abs()[:, None], SIDE + 1, 2)[:, 0] > 0
    picture, row, column = inked.nonzero(as_tuple=True)
    place = (picture * inked.shape[1] + row) * inked.shape[2] + column
    down = padded.stride(1)
    corner = picture * padded.stride(0) + 2 * (row * down + column)
    n_inked: list[int] = inked.sum((1, 2)).tolist()
    sizes = [sum(n_inked[first : first + AT_ONCE]) for first in range(0, len(x), AT_ONCE)]
    taps = _taps(down)
    pieces = [_columns(padded, taps + corners) for corners in corner.split(sizes)]
    n_patches = x[0].numel()
    if each:
        counts = [tuple(n_inked[first : first + AT_ONCE]) for first in range(0, len(x), AT_ONCE)]
        grams = [_gram(part) for piece, n in zip(pieces, counts, strict=True) for part in _apart(piece, n)]
        mean, covariance = _moments(torch.stack(grams), n_patches)
    else:
        gram = torch.stack([_gram(piece) for piece in pieces]).sum(0, keepdim=True)
        mean, covariance = _moments(gram, n_patches * len(x))
    shape = len(x), inked.shape[1], inked.shape[2]
    return Patches(shape, tuple(pieces), place.split(sizes), mean.to(x.dtype), covariance.to(x.dtype))


def _taps(down: int) -> Tensor:
    """Where the nine pixels of a window's four patches are, from its upper left corner, (9, 4, 1)."""
    tap, pixel = torch.arange(SIDE), torch.arange(2)
    at = tap[:, None] + pixel
    return (at[:, None, :, None] * down + at[None, :, None, :]).view(SIDE**2, 4, 1)


def _columns(padded: Tensor, positions: Tensor) -> Tensor:
    """The pixels at positions (9, 4, windows) as patches, (10, 4 · windows)."""
    patches = padded.new_ones(SIDE**2 + 1, positions[0].numel())
    torch.index_select(padded.view(-1), 0, positions.view(-1), out=patches[:-1].view(-1))
    return patches


def _apart(piece: Tensor, n_windows: Sequence[int]) -> Iterator[Tensor]:
    """The patches of each picture of a piece."""
    for part in piece.view(len(piece), 4, -1).split(list(n_windows), 2):
        yield part.reshape(len(piece), -1)


def _gram(patches: Tensor) -> Tensor:
    return (patches @ patches.T).double()


def _moments(gram: Tensor, n_patches: int) -> Moments:
    """Mean and covariance of patches, of which only those with ink are in the sums of their products."""
    gram = gram / n_patches
    mean = gram[:, -1, :-1]
    return mean, gram[:, :-1, :-1] - mean[:, :, None] * mean[:, None, :]


class _Largest(torch.autograd.Function):
    """The largest of each window's four responses to filters (n_filters, 10), (windows, n_filters)."""

    @staticmethod
    def forward(ctx: Any, filters: Tensor, patches: Patches) -> Tensor:
        ctx.save_for_backward(filters)
        ctx.patches = patches
        largest = filters[:, -1].repeat(math.prod(patches.shape), 1)  # without ink there is the bias alone
        for piece, places in zip(patches.pieces, patches.places, strict=True):
            largest.index_copy_(0, places, _responses(piece, filters).amax(0))
        return largest

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (filters,) = ctx.saved_tensors
        d_filters = torch.zeros_like(filters).T.contiguous()
        d_filters[-1] = grad.sum(0)
        for piece, places in zip(ctx.patches.pieces, ctx.patches.places, strict=True):
            inked = grad.index_select(0, places)
            d_filters[-1] -= inked.sum(0)  # theirs comes with their patches
            winners = _responses(piece, filters)
            winners.eq_(winners.amax(0))
            winners.mul_(inked.div_(winners.sum(0)))
            d_filters.addmm_(piece, winners.view(-1, len(filters)))
        return d_filters.T, None


def _largest(filters: Tensor, patches: Patches) -> Tensor:
    found: Tensor = _Largest.apply(filters, patches)  # type: ignore[no-untyped-call]  # torch annotates it nowhere
    return found


def _responses(piece: Tensor, filters: Tensor) -> Tensor:
    """(4, windows, n_filters)"""
    return torch.mm(piece.T, filters.T).view(4, piece.shape[1] // 4, len(filters))


def first_block(patches: Patches, weight: Tensor, gamma: Tensor, beta: Tensor, moments: Moments) -> Tensor:
    """ReLU(pool(norm(convolution))) of the pictures, (n, n_filters, height, width).

    Args:
        weight, gamma, beta: the filters (n_filters, 1, 3, 3), the scales and the shifts after normalisation.
        moments: mean and variance that normalisation takes for each channel, or for each picture and channel.
    """
    mean, variance = moments
    scale = gamma * torch.rsqrt(variance + EPSILON)
    shift = beta - mean * scale
    flat = weight.reshape(len(weight), -1)
    if scale.ndim == 1:
        z = _largest(torch.cat([flat * scale[:, None], shift[:, None]], 1), patches)
    else:  # each picture has a scale of its own, but they agree on the sign, and so on which response is picked
        sign = torch.where(gamma < 0, -1.0, 1.0)
        picked = _largest(F.pad(flat * sign[:, None], (0, 1)), patches).view(len(patches), -1, len(flat))
        z = torch.addcmul(shift[:, None], picked, (scale * sign)[:, None])
    return F.relu(z).view(*patches.shape, len(flat)).permute(0, 3, 1, 2)


def batch_moments(patches: Patches, weight: Tensor) -> Moments:
    """Mean and variance of each filter's responses over all pictures, (n_filters,)."""
    flat = weight.reshape(len(weight), -1)
    return flat @ patches.mean[0], ((flat @ patches.covariance[0]) * flat).sum(1)


def group_moments(patches: Patches, weight: Tensor, groups: int) -> Moments:
    """Mean and variance of the responses of each group of filters within each picture, (n, n_filters)."""
    flat = weight.reshape(len(weight), -1)
    means = (patches.mean @ flat.T).view(len(patches), groups, -1)
    variances = ((flat @ patches.covariance) * flat).sum(2).view(means.shape)
    mean = means.mean(2, keepdim=True)
    variance = (variances + (means - mean).square()).mean(2, keepdim=True)
    return mean.expand_as(means).flatten(1), variance.expand_as(means).flatten(1)


def first_block_of(
    x: Patches, conv: nn.Module, norm: nn.Module, statistics: Statistics | None, record: Statistics | None
) -> Tensor:
    """The first block with the weights of its layers, normalised as they would."""
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
