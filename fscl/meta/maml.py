"""MAML: an initialisation from which a few gradient steps on the support set solve the query set.

Finn, Abbeel, Levine, "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks", 2017.

Departs from the paper:
- The inner loss is the *mean* cross-entropy. The authors' code sums over ways: its rate of 0.4 at five ways is 2.0 here.
- Prediction is inductive. With BatchNorm, query images are normalised with the statistics of the support set at the adapted
  weights, in training and at test; the paper's code uses those of the query batch, so that test images help each other.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.data.episode import Episode
from fscl.meta.base import BaseLearner
from fscl.nets.fast import Params, empty_head, gradient_step, grow_head, linear
from fscl.nets.network import Network, NetworkSpec, init_params
from fscl.nets.norm import Statistics


class Maml(BaseLearner):
    """Meta-trains an initialisation of backbone and head.

    Attributes:
        inner_steps: gradient steps on the support set, in training and at test.
        inner_rate: their learning rate (α in the paper, for the mean cross-entropy).
        first_order: treat the inner gradients as constants (FOMAML): cheaper, and a little worse.
    """

    fixed_way: ClassVar[bool] = True  # the head has a row for each way

    method: Literal["maml"] = "maml"
    inner_steps: int = Field(default=5, ge=1, le=100)
    inner_rate: float = Field(default=0.1, gt=0)
    first_order: bool = False

    def init(self, spec: NetworkSpec, *, n_way: int, n_classes: int, generator: torch.Generator) -> Params:
        params = init_params(spec, generator)
        head = grow_head(empty_head(Network(spec, params).n_features), n_way, [generator] * n_way)
        return _join(params, head)

    def network(self, spec: NetworkSpec, meta: Params) -> Network:
        params, head = _part(meta)
        return Network(spec, params, head)

    def loss(self, spec: NetworkSpec, meta: Params, episode: Episode, done: float = 0.0) -> Tensor:
        network = self.network(spec, meta)
        adapted = self._adapt(network, meta, episode, create_graph=not self.first_order)
        scores = self._scores(network, adapted, episode)
        return cross_entropy(scores, episode.query.labels)

    def query_scores(self, network: Network, meta: Params, episode: Episode) -> Tensor:
        meta = {name: tensor.detach().requires_grad_() for name, tensor in meta.items()}
        adapted = self._adapt(network, meta, episode, create_graph=False)
        with torch.no_grad():
            return self._scores(network, adapted, episode)

    def _adapt(self, network: Network, start: Params, episode: Episode, *, create_graph: bool) -> Params:
        x = network.to_input(episode.support.images)
        adapted = start
        for _ in range(self.inner_steps):
            params, head = _part(adapted)
            loss = cross_entropy(linear(head, network.features(x, params)), episode.support.labels)
            grads = torch.autograd.grad(loss, list(adapted.values()), create_graph=create_graph)
            adapted = gradient_step(adapted, grads, self.inner_rate)
        return adapted

    def _scores(self, network: Network, adapted: Params, episode: Episode) -> Tensor:
        params, head = _part(adapted)
        statistics: Statistics | None = None
        if network.spec.norm == "batch":
            statistics = {}
            network.features(network.to_input(episode.support.images), params, record=statistics)
        features = network.features(network.to_input(episode.query.images), params, statistics=statistics)
        return linear(head, features)


def _join(params: Params, head: Params) -> Params:
    return params | {f"head/{name}": tensor for name, tensor in head.items()}


def _part(meta: Params) -> tuple[Params, Params]:
    head = {name.removeprefix("head/"): tensor for name, tensor in meta.items() if name.startswith("head/")}
    return {name: tensor for name, tensor in meta.items() if not name.startswith("head/")}, head
