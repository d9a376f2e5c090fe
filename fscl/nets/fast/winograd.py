"""3×3 convolutions, plain or with a quarter of the multiplications (Winograd's minimal filtering, F(4×4, 3×3)).

A convolution is three linear maps round a product: lift the maps, lift the filters, multiply, lower the result. Its
gradients are the same maps turned round. A plain convolution lifts nothing; Winograd's takes tiles of 4×4 pixels to 36
numbers each, and what was a convolution is then 36 products of matrices. Whoever needs one map in several convolutions, as
a second derivative does, lifts it once. Sums are lowered once.

Departs from Lavin and Gray (2016): tiles at the border are cut off by the matrices themselves, so nothing is padded, and the
gradients use the transposed matrices instead of algorithms of their own.

Maps are (n, height, width, channels) here, square.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

TILE, SIDE = 4, 6  # a tile of 4×4 outputs is made from 6×6 inputs
ONE, NONE = [1, 1], [0, 0]  # strides, paddings and dilations

INPUT = (  # from six pixels in a row to six numbers, whose products with those of `FILTER` are sufficient
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
FILTER = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)
OUTPUT = (
    (1, 1, 1, 1, 1, 0),
    (0, 1, -1, 2, -2, 0),
    (0, 1, 1, 4, 4, 0),
    (0, 1, -1, 8, -8, 1),
)


class Plain:
    """torch's own convolution: lifting does nothing."""

    most_images = 2**31  # to convolve at once

    def lift(self, x: Tensor) -> Tensor:
        """An input, ready for `convolve` and `d_filters`."""
        return x

    def lift_gradient(self, d_output: Tensor) -> Tensor:
        """A gradient at an output, ready for `d_input` and `d_filters`."""
        return d_output

    def lift_filters(self, filters: Tensor) -> Tensor:
        """Filters (outputs, inputs, 3, 3), ready for `convolve` and `d_input`."""
        return filters

    def convolve(self, *terms: tuple[Tensor, Tensor]) -> Tensor:
        """The sum of convolutions of inputs with filters."""
        return _sum([_nhwc(F.conv2d(_nchw(x), filters, padding=1)) for x, filters in terms])

    def d_input(self, *terms: tuple[Tensor, Tensor]) -> Tensor:
        """The gradient in the input, from gradients at the output and filters."""
        return _sum(
            [_nhwc(_backward(d_output, _like_input(d_output, filters), filters, 0)) for d_output, filters in terms]
        )

    def d_filters(self, *terms: tuple[Tensor, Tensor]) -> Tensor:
        """The gradient in the filters, from inputs and gradients at the output."""
        return _sum([_backward(d_output, x, _like_filters(x, d_output), 1) for x, d_output in terms])


class Winograd(Plain):
    """The same up to rounding, for maps of one size."""

    most_images = 25  # lifted maps, twice as large as they were, should fit a cache

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.into, self.out, self.from_into, self.from_out, self.filters, self.from_filters = _matrices(
            size, dtype, device
        )

    def lift(self, x: Tensor) -> Tensor:
        return _lift(self.into, x)

    def lift_gradient(self, d_output: Tensor) -> Tensor:
        return _lift(self.from_out, d_output)

    def lift_filters(self, filters: Tensor) -> Tensor:
        outputs, inputs, *_ = filters.shape
        return (self.filters @ filters.permute(2, 3, 1, 0).reshape(9, -1)).view(-1, inputs, outputs)

    def convolve(self, *terms: tuple[Tensor, Tensor]) -> Tensor:
        return _lower(self.out, _products(terms))

    def d_input(self, *terms: tuple[Tensor, Tensor]) -> Tensor:
        turned = [(d_output, filters.transpose(1, 2)) for d_output, filters in terms]
        return _lower(self.from_into, _products(turned))

    def d_filters(self, *terms: tuple[Tensor, Tensor]) -> Tensor:
        found = _products([(x.transpose(1, 2), d_output) for x, d_output in terms])
        return (self.from_filters @ found.flatten(1)).view(3, 3, *found.shape[1:]).permute(3, 2, 0, 1)


@lru_cache(maxsize=32)
def _matrices(size: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """For a row of pixels to its lifted numbers, tile after tile within each of the six, and back; then for filters."""
    n_tiles = -(-size // TILE)
    into = torch.zeros(SIDE, n_tiles, n_tiles * TILE + 2, dtype=torch.float64)
    out = torch.zeros(n_tiles * TILE, SIDE, n_tiles, dtype=torch.float64)
    for tile in range(n_tiles):
        into[:, tile, tile * TILE : tile * TILE + SIDE] = torch.tensor(INPUT)
        out[tile * TILE : (tile + 1) * TILE, :, tile] = torch.tensor(OUTPUT)
    into, out = into[:, :, 1 : size + 1].flatten(0, 1), out[:size].flatten(1)  # what is beyond the border is zero
    filters = torch.kron(*[torch.tensor(FILTER, dtype=torch.float64)] * 2)
    matrices = into, out, into.T, out.T, filters, filters.T
    return tuple(matrix.to(device, dtype).contiguous() for matrix in matrices)


def _lift(matrix: Tensor, maps: Tensor) -> Tensor:
    """Maps to (36, n · tiles, channels): the matrix along the columns and along the rows of each."""
    n, size, _, channels = maps.shape
    length, n_tiles = len(matrix), len(matrix) // SIDE
    columns = torch.matmul(matrix, maps.reshape(n, size, -1)).view(n * length, size, channels)
    both = torch.matmul(matrix, columns).view(n, SIDE, n_tiles, SIDE, n_tiles, channels)
    return both.permute(1, 3, 0, 2, 4, 5).reshape(SIDE * SIDE, -1, channels)


def _lower(matrix: Tensor, lifted: Tensor) -> Tensor:
    """The other way."""
    size, length = matrix.shape
    n_tiles, channels = length // SIDE, lifted.shape[-1]
    both = lifted.view(SIDE, SIDE, -1, n_tiles, n_tiles, channels).permute(2, 0, 3, 1, 4, 5)
    rows = torch.matmul(matrix, both.reshape(-1, length, channels))
    return torch.matmul(matrix, rows.view(-1, length, size * channels)).view(-1, size, size, channels)


def _products(terms: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    (left, right), *others = terms
    found = torch.bmm(left, right)
    for left, right in others:
        found.baddbmm_(left, right)
    return found


def _sum(terms: list[Tensor]) -> Tensor:
    first, *others = terms
    for other in others:
        first.add_(other)
    return first


def _backward(d_output: Tensor, x: Tensor, filters: Tensor, which: int) -> Tensor:
    """The gradient of a plain convolution in its input (0) or its filters (1)."""
    wanted = [which == 0, which == 1, False]
    maps = _nchw(d_output), _nchw(x)
    found: Tensor = torch.ops.aten.convolution_backward(*maps, filters, None, ONE, ONE, ONE, False, NONE, 1, wanted)[
        which
    ]
    return found


def _like_input(d_output: Tensor, filters: Tensor) -> Tensor:
    """An input of the right shape, whose values do not matter."""
    return d_output.new_empty(*d_output.shape[:3], filters.shape[1])


def _like_filters(x: Tensor, d_output: Tensor) -> Tensor:
    """Filters of the right shape, whose values do not matter."""
    filters = x.new_empty(d_output.shape[-1], x.shape[-1], 3, 3)
    return filters.to(memory_format=torch.channels_last)


def _nchw(maps: Tensor) -> Tensor:
    return maps.permute(0, 3, 1, 2)


def _nhwc(maps: Tensor) -> Tensor:
    return maps.permute(0, 2, 3, 1).contiguous()
