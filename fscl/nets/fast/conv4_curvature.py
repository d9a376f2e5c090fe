"""Curvature of Conv-4, by hand: the forward pass, the backward pass, and the derivative of both along a direction.

What makes it fast, beside differentiating only once:
- Pooling picks the same pixels before normalisation as after it (turned round where the scale γ is negative), so only the
  picked quarter of a map is ever scaled, rectified and differentiated through.
- The gradient at a convolution's output is "picked values + A + B · output" with A and B one number a channel (and
  image, for GroupNorm), so the dense part of the normalisation's backward pass is one multiply-add.
- Along a direction, each convolution meets plain convolutions only; torch's own second derivative of a convolution makes the
  weight gradient a convolution with a kernel as large as the picture, which takes twice the time.

Notation: c = conv(x, w) less its mean; p(c) are the pixels that pooling picks; ĉ = c · rate, where rate = 1 /
sqrt(variance + ε); z = γ · p(ĉ) + β; the output is max(z, 0). `d_` stands for the gradient of the loss, `dot_` for the
derivative along the direction. Maps are (n, height, width, channels) here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fscl.device import is_autocast
from fscl.nets.curvature import HEAD, Autograd, Curvature, Scored
from fscl.nets.fast.winograd import TILE, Plain, Winograd
from fscl.nets.norm import EPSILON, NormName, group_count
from fscl.nets.params import Params
from fscl.nets.trained import NetworkSpec, TrainedNetwork

N_BLOCKS = 4
FEWEST_FILTERS = 48  # for Winograd's convolution: with fewer, lifting takes longer than multiplying


def curvature_of(network: TrainedNetwork) -> Curvature:
    """The fastest exact derivatives there are for this network; those written out by hand know one precision only."""
    by_hand = network.spec.backbone == "conv4" and not is_autocast()
    return Conv4Curvature(network.spec) if by_hand else Autograd(network)


@dataclass(frozen=True)
class Conv4Tape:
    """A gradient's intermediate values, from which the Hessian is applied."""

    blocks: "tuple[_Block, ...]"
    top: "_Top"


@dataclass(frozen=True)
class Conv4Curvature(Curvature):
    """Curvature of Conv-4 with a linear head. Equal to `Autograd`, up to rounding."""

    spec: NetworkSpec

    def gradient(self, weights: Params, batch: Scored, *, keep: bool) -> tuple[Tensor, Params, Any]:
        if batch.statistics is not None:  # an ablation of MAML++, and first order only
            return Autograd(TrainedNetwork(self.spec, {})).gradient(weights, batch, keep=keep)
        x = batch.x if self.spec.norm == "batch" else batch.x[-batch.n_scored :]  # GroupNorm needs no one else
        blocks = _forward(weights, x, self.spec.norm, min(batch.n_given, len(x)))
        head = weights[f"{HEAD}weight"].detach(), weights[f"{HEAD}bias"].detach()
        top = _Top(blocks[-1].output, *head, batch.labels)
        d_x, d_weight, d_bias = top.backward()
        grads = _backward(blocks, d_x, keep=keep) | {f"{HEAD}weight": d_weight, f"{HEAD}bias": d_bias}
        return top.loss, {name: grads[name] for name in weights}, Conv4Tape(tuple(blocks), top)

    def product(self, tape: Any, direction: Mapping[str, Tensor]) -> Params:
        dot_x = None
        for number, block in enumerate(tape.blocks):
            dot_x = block.forward_along(dot_x, *(direction.get(name) for name in _names(number)))
        assert dot_x is not None
        dot_d_x, *found = tape.top.along(dot_x, direction[f"{HEAD}weight"], direction[f"{HEAD}bias"])
        result = dict(zip((f"{HEAD}weight", f"{HEAD}bias"), found, strict=True))
        for number in reversed(range(N_BLOCKS)):
            dot_d_x, *found = tape.blocks[number].backward_along(dot_d_x)
            result |= dict(zip(_names(number), found, strict=True))
        return result


def _forward(weights: Params, x: Tensor, norm: NormName, n_given: int) -> "list[_Block]":
    x, blocks = _nhwc(x), []
    for number in range(N_BLOCKS):
        weight, gamma, beta = (weights[name].detach() for name in _names(number))
        cover = _Cover(group_count(len(gamma)) if norm == "group" else None, n_given)
        blocks.append(_Block(x, weight, gamma, beta, cover))
        x = blocks[-1].output
    return blocks


def _backward(blocks: "list[_Block]", d_x: Tensor, *, keep: bool) -> Params:
    """Gradients by name. Forgets the blocks on the way unless `keep`: their maps are the bulk of the memory."""
    grads: Params = {}
    for number in reversed(range(N_BLOCKS)):
        block = blocks[number] if keep else blocks.pop()
        d_x, *found = block.backward(d_x, keep=keep, needs_d_x=number > 0)
        grads |= dict(zip(_names(number), found, strict=True))
    return grads


def _names(number: int) -> tuple[str, str, str]:
    return f"convs.{number}.weight", f"norms.{number}.weight", f"norms.{number}.bias"


@dataclass(frozen=True)
class _Cover:
    """What one normalisation covers: a channel of the first `n_given` images (BatchNorm), or a group within an image."""

    groups: int | None
    n_given: int

    def size(self, values: Tensor) -> int:
        """How many numbers of these maps one normalisation covers."""
        _, height, width, channels = values.shape
        return height * width * (self.n_given if self.groups is None else channels // self.groups)

    def sums(self, values: Tensor) -> Tensor:
        """Sums of each channel: over all images (BatchNorm), or for each image (GroupNorm)."""
        if self.groups is None:
            return _channel_sums(values)
        n, *_, channels = values.shape
        return values.reshape(n, -1, channels).sum(1).view(n, 1, 1, channels)

    def pooled(self, sums: Tensor) -> Tensor:
        """Sums of each channel, added up over all that one normalisation covers."""
        if self.groups is None:
            return sums
        each = sums.view(len(sums), self.groups, -1)
        return each.sum(2, keepdim=True).expand_as(each).reshape(sums.shape)

    def mean(self, values: Tensor) -> Tensor:
        """Means over what each normalisation covers; of the given images alone."""
        given = values[: self.n_given] if self.groups is None else values
        return self.pooled(self.sums(given)) / self.size(values)


class _Convolution:
    """A block's convolution at one batch, a few images at a time."""

    def __init__(self, x: Tensor, weight: Tensor) -> None:
        self.weight, self.way = weight, _way(x, weight)
        self.pieces = x.split(self.way.most_images)

    def forward(self) -> Tensor:
        way, filters = self.way, self.way.lift_filters(self.weight)
        return _joined([way.convolve((way.lift(x), filters)) for x in self.pieces])

    def backward(self, d_c: Tensor, *, needs_d_x: bool) -> tuple[Tensor, Tensor]:
        """Gradients in the input (nothing where it is not needed) and the filters."""
        way, filters = self.way, self.way.lift_filters(self.weight)
        d_x, d_weight = [], torch.zeros_like(self.weight)
        for x, piece in zip(self.pieces, d_c.split(way.most_images), strict=True):
            lifted = way.lift_gradient(piece)
            d_weight += way.d_filters((way.lift(x), lifted))
            if needs_d_x:
                d_x.append(way.d_input((lifted, filters)))
        return _joined(d_x), d_weight

    def forward_along(self, dot_x: Tensor | None, dot_weight: Tensor | None) -> Tensor:
        """The derivative of the result. What a direction leaves out stands still."""
        way = self.way
        self.filters = way.lift_filters(self.weight)
        self.dot_filters = way.lift_filters(torch.zeros_like(self.weight) if dot_weight is None else dot_weight)
        self.lifted = [way.lift(x) for x in self.pieces]
        if dot_x is None:
            self.dot_lifted = None
            return _joined([way.convolve((x, self.dot_filters)) for x in self.lifted])
        self.dot_lifted = [way.lift(piece) for piece in dot_x.split(way.most_images)]
        both = zip(self.lifted, self.dot_lifted, strict=True)
        return _joined([way.convolve((x, self.dot_filters), (dot_x, self.filters)) for x, dot_x in both])

    def backward_along(self, find_d_c: Callable[[], Tensor], dot_d_c: Tensor) -> tuple[Tensor, Tensor]:
        """The derivatives of what `backward` returns."""
        way, dot_d_x, dot_d_weight = self.way, [], torch.zeros_like(self.weight)
        dot_pieces = dot_d_c.split(way.most_images)
        if self.dot_lifted is None:  # the first block: its input stands still
            for x, dot_piece in zip(self.lifted, dot_pieces, strict=True):
                dot_d_weight += way.d_filters((x, way.lift_gradient(dot_piece)))
            return _joined([]), dot_d_weight
        pieces = find_d_c().split(way.most_images)
        for x, dot_x, piece, dot_piece in zip(self.lifted, self.dot_lifted, pieces, dot_pieces, strict=True):
            d, dot_d = way.lift_gradient(piece), way.lift_gradient(dot_piece)
            dot_d_weight += way.d_filters((x, dot_d), (dot_x, d))
            dot_d_x.append(way.d_input((dot_d, self.filters), (d, self.dot_filters)))
        return _joined(dot_d_x), dot_d_weight


class _Block:
    """One block of Conv-4 at one batch. `a_sum` and the like are sums of each channel, see `_Cover`."""

    def __init__(self, x: Tensor, weight: Tensor, gamma: Tensor, beta: Tensor, cover: _Cover) -> None:
        self.gamma, self.cover = gamma, cover
        self.conv = _Convolution(x, weight)
        c = self.conv.forward()
        self.c = c.sub_(cover.mean(c))
        self.rate = (cover.mean(c.square()) + EPSILON).rsqrt()
        picked, self.places = _pick(c, gamma)
        self.normal = picked.mul_(self.rate)  # p(ĉ)
        self.output = torch.addcmul(beta, self.normal, gamma).relu_()

    def backward(self, d_output: Tensor, *, keep: bool, needs_d_x: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Gradients in the input, the filters, γ and β."""
        cover, size = self.cover, self.cover.size(self.c)
        self.d_z = _where_above_zero(d_output, self.output)
        self.d_z_sum, self.product_sum = cover.sums(self.d_z), cover.sums(self.d_z * self.normal)
        self.first = cover.pooled(self.d_z_sum * self.gamma) / size
        self.second = cover.pooled(self.product_sum * self.gamma) / size
        # the largest map of all: where it has served, its gradient takes its place
        d_c = self._d_c(None if keep else self.c)
        d_x, d_weight = self.conv.backward(d_c, needs_d_x=needs_d_x)
        return d_x, d_weight, _channel_sums(self.product_sum), _channel_sums(self.d_z_sum)

    def forward_along(
        self, dot_x: Tensor | None, dot_weight: Tensor | None, dot_gamma: Tensor | None, dot_beta: Tensor | None
    ) -> Tensor:
        """The derivative of the output. What a direction leaves out stands still."""
        zero = torch.zeros_like(self.gamma)
        self.dot_gamma = zero if dot_gamma is None else dot_gamma
        dot_beta = zero if dot_beta is None else dot_beta
        dot_c = self.conv.forward_along(dot_x, dot_weight)
        self.dot_c = dot_c.sub_(self.cover.mean(dot_c))
        self.dot_rate = -self.rate.pow(3) * self.cover.mean(self.c * dot_c)
        dot_picked = dot_c.view(-1).index_select(0, self.places).view(self.normal.shape)
        self.dot_normal = dot_picked.mul_(self.rate).addcmul_(self.normal, self.dot_rate / self.rate)
        dot_z = torch.addcmul(dot_beta, self.dot_normal, self.gamma).addcmul_(self.normal, self.dot_gamma)
        return _where_above_zero(dot_z, self.output)

    def backward_along(self, dot_d_output: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The derivatives of what `backward` returns."""
        cover, size, gamma, rate, d_z = self.cover, self.cover.size(self.c), self.gamma, self.rate, self.d_z
        dot_gamma, dot_rate = self.dot_gamma, self.dot_rate
        dot_d_z = _where_above_zero(dot_d_output, self.output)
        dot_d_z_sum = cover.sums(dot_d_z)
        dot_product_sum = cover.sums((dot_d_z * self.normal).addcmul_(d_z, self.dot_normal))
        dot_first = cover.pooled(dot_d_z_sum * gamma + self.d_z_sum * dot_gamma) / size
        dot_second = cover.pooled(dot_product_sum * gamma + self.product_sum * dot_gamma) / size
        dot_shift = dot_rate * self.first + rate * dot_first
        dot_factor = 2 * rate * dot_rate * self.second + rate.square() * dot_second
        dot_d_c = torch.addcmul(-dot_shift, self.c, -dot_factor).addcmul_(self.dot_c, -self.rate.square() * self.second)
        dot_d_picked = (dot_d_z * (gamma * rate)).addcmul_(d_z, dot_gamma * rate + gamma * dot_rate)
        dot_d_c.view(-1).index_add_(0, self.places, dot_d_picked.view(-1))
        dot_d_x, dot_d_weight = self.conv.backward_along(self._d_c, dot_d_c)
        return dot_d_x, dot_d_weight, _channel_sums(dot_product_sum), _channel_sums(dot_d_z_sum)

    def _d_c(self, place: Tensor | None = None) -> Tensor:
        """The gradient at c, in a given place or a new one. Found again when needed: kept, it would cost memory."""
        d_c = torch.addcmul(-self.rate * self.first, self.c, -self.rate.square() * self.second, out=place)
        if self.cover.groups is None:
            d_c[self.cover.n_given :] = 0  # these images have no say in the statistics
        d_c.view(-1).index_add_(0, self.places, (self.d_z * (self.gamma * self.rate)).view(-1))
        return d_c


class _Top:
    """The linear head and the mean cross-entropy, on the last len(labels) images."""

    def __init__(self, x: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> None:
        self.shape, self.weight, self.n = x.shape, weight, len(labels)
        self.features = _flat(x[-self.n :])
        scores = torch.addmm(bias, self.features, weight.T)
        self.loss = F.cross_entropy(scores, labels)
        self.chances = scores.softmax(1)
        self.d_scores = self.chances.clone()
        self.d_scores[torch.arange(self.n, device=labels.device), labels] -= 1
        self.d_scores /= self.n

    def backward(self) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients in the input (zero for images that are not scored), the weight and the bias."""
        return self._spread(self.d_scores @ self.weight), self.d_scores.T @ self.features, self.d_scores.sum(0)

    def along(self, dot_x: Tensor, dot_weight: Tensor, dot_bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The derivatives of what `backward` returns."""
        dot_features = _flat(dot_x[-self.n :])
        dot_scores = dot_features @ self.weight.T + self.features @ dot_weight.T + dot_bias
        mean = (self.chances * dot_scores).sum(1, keepdim=True)
        dot_d_scores = self.chances * (dot_scores - mean) / self.n
        dot_d_features = dot_d_scores @ self.weight + self.d_scores @ dot_weight
        dot_d_weight = dot_d_scores.T @ self.features + self.d_scores.T @ dot_features
        return self._spread(dot_d_features), dot_d_weight, dot_d_scores.sum(0)

    def _spread(self, d_features: Tensor) -> Tensor:
        n, height, width, channels = self.shape
        d_x = d_features.view(-1, channels, height, width).permute(0, 2, 3, 1)
        return torch.cat([d_x.new_zeros(n - self.n, height, width, channels), d_x]).contiguous()


def _joined(pieces: list[Tensor]) -> Tensor:
    if len(pieces) > 1:
        return torch.cat(pieces)
    return pieces[0] if pieces else torch.empty(0)


def _flat(x: Tensor) -> Tensor:
    """Features in the order that the network has them: channel after channel."""
    return x.permute(0, 3, 1, 2).flatten(1)


def _nchw(values: Tensor) -> Tensor:
    return values.permute(0, 3, 1, 2)


def _nhwc(values: Tensor) -> Tensor:
    return values.permute(0, 2, 3, 1).contiguous()


def _channel_sums(values: Tensor) -> Tensor:
    return values.reshape(-1, values.shape[-1]).sum(0)


def _pick(c: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    """The pixels of `c` that pooling will pick once they are scaled by γ, and their places in a flat `c`."""
    n, height, width, channels = c.shape
    upright = c if bool((gamma >= 0).all()) else c * gamma.sign()
    pooled, indices = F.max_pool2d(_nchw(upright), 2, return_indices=True)
    places = torch.add(_origins(n, height * width, channels, c.device), _nhwc(indices), alpha=channels).view(-1)
    if c.numel() < 2**31:
        places = places.int()  # half the memory, for as long as the tape lives
    if upright is c:
        return _nhwc(pooled), places
    return c.view(-1).index_select(0, places).view(n, height // 2, width // 2, channels), places


@lru_cache(maxsize=32)
def _origins(n: int, n_pixels: int, channels: int, device: torch.device) -> Tensor:
    """The place of the first pixel of each image and channel in flat maps in channels-last order."""
    images, within = torch.arange(n, device=device), torch.arange(channels, device=device)
    return (images * (n_pixels * channels)).view(n, 1, 1, 1) + within


def _where_above_zero(values: Tensor, output: Tensor) -> Tensor:
    """`values` where the rectified output is above zero, and 0 elsewhere."""
    kept: Tensor = torch.ops.aten.threshold_backward(values, output, 0)
    return kept


def _way(x: Tensor, weight: Tensor) -> Plain:
    """How to convolve. Lifting pays where there are many filters to multiply with, and maps that hold a tile; on a GPU the
    library chooses for itself."""
    size = x.shape[1]
    if x.device.type != "cpu" or min(weight.shape[:2]) < FEWEST_FILTERS or size < TILE:
        return Plain()
    return Winograd(size, x.dtype, x.device)
