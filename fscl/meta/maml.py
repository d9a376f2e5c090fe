"""MAML: an initialisation from which a few gradient steps on the support set solve the query set.

Finn, Abbeel, Levine, "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks", 2017. With `adapt = "head"`
the steps move the head alone: ANIL (Raghu, Raghu, Bengio, Vinyals, "Rapid Learning or Feature Reuse?", 2020).

Two traps, which make figures of different implementations incomparable:
- The inner loss is the *mean* cross-entropy. The authors' code divides by the shots only, so its gradient is as many
  times larger as there are ways: their rate of 0.4 at five ways is `inner_rate = 2.0` here.
- The authors normalise test images by the statistics of all test images of the task, which lets them help each other. Here
  prediction is inductive: with BatchNorm, queries are normalised by the support set at the adapted weights, in training
  and at test. `transductive = true` is the authors' way; `fscl train` reports it beside the inductive figure, under its
  name.

Departs from the paper:
- BatchNorm has a scale γ, and the steps adapt γ and β along with the filters (the authors' code has only an offset, which it
  does not adapt).
- The head starts from torch's usual uniform draw, and the outer loss is the mean over the tasks of a step, not the sum.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.data.episode import Episode
from fscl.meta.inner import InnerLoopLearner, adapt, support_and_query, unrolled_gradient
from fscl.nets.curvature import HEAD, part, scores
from fscl.nets.fast.conv4_curvature import curvature_of
from fscl.nets.norm import Statistics
from fscl.nets.params import Params, gradient_step, linear
from fscl.nets.trained import NetworkSpec, TrainedNetwork


class Maml(InnerLoopLearner):
    """Meta-trains an initialisation of backbone and head.

    Attributes:
        inner_steps: gradient steps on the support set, in training and at test.
        inner_rate: their learning rate (α in the paper, for the mean cross-entropy).
        first_order: treat the inner gradients as constants (FOMAML): cheaper, and a little worse.
        adapt: what the steps move: every weight, or the head alone (ANIL).
    """

    method: str = "maml"
    inner_steps: int = Field(default=5, ge=1, le=100)
    inner_rate: float = Field(default=0.1, gt=0)
    first_order: bool = False
    adapt: Literal["all", "head"] = "all"

    def init(self, spec: NetworkSpec, *, n_way: int, n_classes: int, generator: torch.Generator) -> Params:
        return self.backbone_and_head(spec, n_way, generator)

    def network(self, spec: NetworkSpec, meta: Params) -> TrainedNetwork:
        return TrainedNetwork(spec, part(meta)[0])

    def loss(self, spec: NetworkSpec, meta: Params, episode: Episode, done: float = 0.0) -> Tensor:
        """By plain differentiation through the steps: slower than `gradients`, and its definition."""
        network = self.network(spec, meta)
        if self.adapt == "head":
            return cross_entropy(self._head_only_scores(network, meta, episode), episode.query.labels)
        support, query = support_and_query(network, episode, transductive=self.transductive)
        weights = meta
        for _ in range(self.inner_steps):
            inner = cross_entropy(scores(network, weights, support), support.labels)
            grads = torch.autograd.grad(inner, list(weights.values()), create_graph=not self.first_order)
            weights = gradient_step(weights, grads, self.inner_rate)
        return cross_entropy(scores(network, weights, query), query.labels)

    def gradients(
        self, spec: NetworkSpec, meta: Params, episode: Episode, done: float = 0.0
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        if self.adapt == "head":
            return super().gradients(spec, meta, episode, done)
        network = self.network(spec, meta)
        support, query = support_and_query(network, episode, transductive=self.transductive)
        start = {name: tensor.detach() for name, tensor in meta.items()}
        shares = [0.0] * (self.inner_steps - 1) + [1.0]
        unrolled = unrolled_gradient(
            curvature_of(network),
            start,
            [{}] * self.inner_steps,
            self._rates(start),
            support,
            query,
            shares,
            first_order=self.first_order,
        )
        return unrolled.loss, tuple(unrolled.start[name] for name in meta)

    def query_scores(self, network: TrainedNetwork, meta: Params, episode: Episode) -> Tensor:
        start = {name: tensor.detach() for name, tensor in meta.items()}
        if self.adapt == "head":
            head_alone = {name: tensor.requires_grad_(name.startswith(HEAD)) for name, tensor in start.items()}
            return self._head_only_scores(network, head_alone, episode).detach()
        support, query = support_and_query(network, episode, transductive=self.transductive)
        points, _ = adapt(
            curvature_of(network), start, [{}] * self.inner_steps, self._rates(start), support, keep=False
        )
        with torch.no_grad():
            return scores(network, points[-1], query)

    def _rates(self, start: Params) -> list[dict[str, Tensor | float]]:
        return [dict.fromkeys(start, self.inner_rate)] * self.inner_steps

    def _head_only_scores(self, network: TrainedNetwork, meta: Params, episode: Episode) -> Tensor:
        params, head = part(meta)
        support, query = support_and_query(network, episode, transductive=self.transductive)
        record: Statistics = {}
        known = network.features(support.x, params, record=record)
        given = record if record and not self.transductive else None
        asked = network.features(query.x[-query.n_scored :], params, statistics=given)
        for _ in range(self.inner_steps):
            inner = cross_entropy(linear(head, known), support.labels)
            grads = torch.autograd.grad(inner, list(head.values()), create_graph=True)
            if self.first_order:
                grads = tuple(grad.detach() for grad in grads)
            head = gradient_step(head, grads, self.inner_rate)
        return linear(head, asked)
