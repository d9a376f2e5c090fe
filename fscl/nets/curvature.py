"""Gradients and Hessian-vector products of the cross-entropy: what second-order meta-learning is made of.

A gradient step θ' = θ - α g(θ) passes a cotangent v back as v - α H(θ) v. `Autograd` finds both for any network by letting
torch differentiate twice; `fscl.nets.fast.conv4_curvature` does the same for Conv-4 by hand, in half the time and memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.nets.network import Network
from fscl.nets.norm import Statistics
from fscl.nets.params import Params, linear

HEAD = "head/"


@dataclass(frozen=True)
class Scored:
    """A batch whose last len(labels) images are scored, and whose first `n_given` images BatchNorm takes its statistics
    from.

    A support set is its own source: all its images are given and all are scored. Queries that are scored one by one
    (inductive) come after the support set and are not given. Queries alone, all given, help each other (transductive).
    Where `statistics` are there, BatchNorm takes those instead, as constants.
    """

    x: Tensor
    labels: Tensor
    n_given: int
    statistics: Statistics | None = None

    @property
    def n_scored(self) -> int:
        return len(self.labels)


class Curvature(ABC):
    """First and second derivatives of the mean cross-entropy of scored images, in weights joined by `join`."""

    @abstractmethod
    def gradient(self, weights: Params, batch: Scored, *, keep: bool) -> tuple[Tensor, Params, Any]:
        """The loss, its gradient, and a tape for `product` if `keep`. A tape is good for one product."""

    @abstractmethod
    def product(self, tape: Any, direction: Mapping[str, Tensor]) -> Params:
        """The Hessian at the tape's weights times `direction`; weights that the direction leaves out stand still."""


def join(params: Mapping[str, Tensor], head: Mapping[str, Tensor]) -> Params:
    """Backbone and head weights in one dict."""
    return dict(params) | {f"{HEAD}{name}": tensor for name, tensor in head.items()}


def part(weights: Mapping[str, Tensor]) -> tuple[Params, Params]:
    """Backbone and head weights again."""
    head = {name.removeprefix(HEAD): tensor for name, tensor in weights.items() if name.startswith(HEAD)}
    return {name: tensor for name, tensor in weights.items() if not name.startswith(HEAD)}, head


def scores(network: Network, weights: Params, batch: Scored) -> Tensor:
    """Scores (n_scored, n_rows) by plain, differentiable evaluation: the definition that `Curvature` differentiates."""
    params, head = part(weights)
    if batch.statistics is not None:
        return linear(head, network.features(batch.x[-batch.n_scored :], params, statistics=batch.statistics))
    if batch.n_given == len(batch.x) or not network.needs_statistics:
        return linear(head, network.features(batch.x[-batch.n_scored :], params))
    statistics: Statistics = {}
    network.features(batch.x[: batch.n_given], params, record=statistics)
    return linear(head, network.features(batch.x[-batch.n_scored :], params, statistics=statistics))


@dataclass(frozen=True)
class AutogradTape:
    """Weights and their gradient, joined by the graph between them."""

    weights: Params
    grads: Params


@dataclass(frozen=True)
class Autograd(Curvature):
    """Curvature of any network, by differentiating twice."""

    network: Network

    def gradient(self, weights: Params, batch: Scored, *, keep: bool) -> tuple[Tensor, Params, Any]:
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in weights.items()}
        loss = cross_entropy(scores(self.network, leaves, batch), batch.labels)
        found = torch.autograd.grad(loss, list(leaves.values()), create_graph=keep)
        grads = dict(zip(leaves, found, strict=True))
        plain = {name: grad.detach() for name, grad in grads.items()}
        return loss.detach(), plain, AutogradTape(leaves, grads) if keep else None

    def product(self, tape: Any, direction: Mapping[str, Tensor]) -> Params:
        moved = [name for name in tape.grads if name in direction]
        found = torch.autograd.grad(
            [tape.grads[name] for name in moved],
            list(tape.weights.values()),
            [direction[name] for name in moved],
            materialize_grads=True,
        )
        return dict(zip(tape.weights, found, strict=True))
