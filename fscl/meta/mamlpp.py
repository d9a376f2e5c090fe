"""MAML++: six changes that make MAML train better. Each is a switch, so that an ablation is a configuration.

Antoniou, Edwards, Storkey, "How to Train Your MAML", 2019.

- `multi_step_loss`: early in training, queries are scored after every inner step, not only after the last.
- `learned_rates`: each layer has a rate of its own for each inner step, learned in the outer loop.
- `per_step_affine`: the scale and shift of each normalisation are learned for each inner step, and the steps do not
  move them.
- `per_step_statistics`: with BatchNorm, queries are normalised by statistics of the inner step at hand, not by one set
  for all steps (off: the mean over the steps, taken as a constant).
- `first_order_until`: inner gradients are constants up to this part of the training (derivative-order annealing).
- a falling outer rate: `base.train.schedule = "cosine"`.

Departs from the paper:
- Prediction is inductive: statistics come from the support set at the weights of the step. The authors' code always
  normalises a batch by itself, also at test (`transductive = true` here), and its per-step running statistics are never
  read.
- Each rate vector has one entry for each step; the authors' has one more, which no step uses.
- The annealing of the multi-step loss follows the step, not the epoch of 500 steps. The outer rate falls to nearly 0,
  not to 1e-5.
- The figure is one network's. The authors' test figures are of an ensemble of the five best checkpoints.
- ReLU, not leaky ReLU.
"""

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.data.episode import Episode
from fscl.meta.inner import (
    InnerLoopLearner,
    adapt,
    shared_statistics,
    support_and_query,
    unrolled_gradient,
    with_statistics,
)
from fscl.nets.curvature import Scored, part, scores
from fscl.nets.fast.conv4_curvature import curvature_of
from fscl.nets.network import Network
from fscl.nets.params import Params
from fscl.nets.trained import NetworkSpec, TrainedNetwork

PER_STEP, RATE = "per-step/", "rate/"
LEAST_SHARE = 0.03  # of an equal share: what an early step keeps of the multi-step loss


class MamlPlusPlus(InnerLoopLearner):
    """Meta-trains an initialisation, and how fast each layer leaves it at each step.

    Attributes:
        inner_steps: gradient steps on the support set, in training and at test.
        inner_rate: their rate, or where the learned rates start.
        multi_step_until: the part of the training after which only the last step's loss counts.
        first_order_until: the part of the training in which inner gradients are taken as constants.
    """

    method: str = "maml++"
    inner_steps: int = Field(default=5, ge=1, le=100)
    inner_rate: float = Field(default=0.1, gt=0)
    multi_step_loss: bool = True
    multi_step_until: float = Field(default=0.1, gt=0, le=1)
    learned_rates: bool = True
    per_step_affine: bool = True
    per_step_statistics: bool = True
    first_order_until: float = Field(default=0.0, ge=0, le=1)

    def init(self, spec: NetworkSpec, *, n_way: int, n_classes: int, generator: torch.Generator) -> Params:
        meta: Params = {}
        for name, tensor in self.backbone_and_head(spec, n_way, generator).items():
            if self.per_step_affine and _is_affine(name):
                meta[f"{PER_STEP}{name}"] = tensor.repeat(self.inner_steps, 1)
            else:
                meta[name] = tensor
        if self.learned_rates:
            fast = [name for name in meta if not name.startswith(PER_STEP)]
            meta |= {f"{RATE}{name}": torch.full((self.inner_steps,), self.inner_rate) for name in fast}
        return meta

    def started_from(self, meta: Params, network: Network) -> Params:
        each = {f"{PER_STEP}{name}": t.repeat(self.inner_steps, 1) for name, t in network.params.items() if t.ndim == 1}
        return {name: each.get(name, tensor) for name, tensor in super().started_from(meta, network).items()}

    def network(self, spec: NetworkSpec, meta: Params) -> TrainedNetwork:
        """With the scales and shifts of the last inner step: continual learning goes far beyond it."""
        weights = {
            name.removeprefix(PER_STEP): tensor[-1] if name.startswith(PER_STEP) else tensor
            for name, tensor in meta.items()
            if not name.startswith(RATE)
        }
        return TrainedNetwork(spec, part(weights)[0])

    def loss(self, spec: NetworkSpec, meta: Params, episode: Episode, done: float = 0.0) -> Tensor:
        """By plain differentiation through the steps: slower than `gradients`, and its definition."""
        network = self.network(spec, meta)
        support, query = support_and_query(network, episode, transductive=self.transductive)
        start, fixed, rates = self._parts(meta)
        points = [start]
        for of_step, rate in zip(fixed, rates, strict=True):
            inner = cross_entropy(scores(network, points[-1] | of_step, support), support.labels)
            exact = not self._is_first_order(done)
            grads = torch.autograd.grad(inner, list(points[-1].values()), create_graph=exact)
            points.append(
                {n: tensor - rate[n] * grad for (n, tensor), grad in zip(points[-1].items(), grads, strict=True)}
            )
        query = self._normalised(network, query, points, fixed, support)
        losses = [
            share * cross_entropy(scores(network, points[step + 1] | fixed[step], query), query.labels)
            for step, share in enumerate(self._shares(done))
            if share > 0
        ]
        return torch.stack(losses).sum()

    def gradients(
        self, spec: NetworkSpec, meta: Params, episode: Episode, done: float = 0.0
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        network = self.network(spec, meta)
        support, query = support_and_query(network, episode, transductive=self.transductive)
        start, fixed, rates = self._parts({name: tensor.detach() for name, tensor in meta.items()})
        curvature = curvature_of(network)
        if not self.per_step_statistics and spec.norm == "batch" and not self.transductive:
            points, _ = adapt(curvature, start, fixed, rates, support)
            query = self._normalised(network, query, points, fixed, support)
        unrolled = unrolled_gradient(
            curvature,
            start,
            fixed,
            rates,
            support,
            query,
            self._shares(done),
            first_order=self._is_first_order(done),
        )
        grads = dict(unrolled.start)
        for name in fixed[0]:
            grads[f"{PER_STEP}{name}"] = torch.stack([of_step[name] for of_step in unrolled.fixed])
        for name in start:
            grads[f"{RATE}{name}"] = torch.stack([of_step[name] for of_step in unrolled.rates])
        return unrolled.loss, tuple(grads[name] for name in meta)

    def query_scores(self, network: TrainedNetwork, meta: Params, episode: Episode) -> Tensor:
        support, query = support_and_query(network, episode, transductive=self.transductive)
        start, fixed, rates = self._parts({name: tensor.detach() for name, tensor in meta.items()})
        points, _ = adapt(curvature_of(network), start, fixed, rates, support)
        query = self._normalised(network, query, points, fixed, support)
        with torch.no_grad():
            return scores(network, points[-1] | fixed[-1], query)

    def _parts(self, meta: Params) -> tuple[Params, list[Params], list[dict[str, Tensor | float]]]:
        """What the inner steps move, what each of them uses and does not move, and its rates."""
        start = {name: tensor for name, tensor in meta.items() if not name.startswith((PER_STEP, RATE))}
        per_step = {n.removeprefix(PER_STEP): tensor for n, tensor in meta.items() if n.startswith(PER_STEP)}
        steps = range(self.inner_steps)
        fixed = [{name: tensor[step] for name, tensor in per_step.items()} for step in steps]
        rates: list[dict[str, Tensor | float]] = [
            {name: meta[f"{RATE}{name}"][step] if self.learned_rates else self.inner_rate for name in start}
            for step in steps
        ]
        return start, fixed, rates

    def _normalised(
        self, network: TrainedNetwork, query: Scored, points: list[Params], fixed: list[Params], support: Scored
    ) -> Scored:
        if self.per_step_statistics or self.transductive or network.spec.norm != "batch":
            return query
        return with_statistics(query, shared_statistics(network, points, fixed, support))

    def _shares(self, done: float) -> list[float]:
        if not self.multi_step_loss:
            return step_shares(self.inner_steps, 1.0)
        return step_shares(self.inner_steps, done / self.multi_step_until)

    def _is_first_order(self, done: float) -> bool:
        return done < self.first_order_until


def step_shares(n_steps: int, annealed: float) -> list[float]:
    """What the query loss after each inner step counts for: equal shares at 0, the last step alone from 1 on."""
    if annealed >= 1 or n_steps == 1:
        return [0.0] * (n_steps - 1) + [1.0]
    early = max((1 - annealed) / n_steps, LEAST_SHARE / n_steps)
    last = min(1 / n_steps + annealed * (n_steps - 1) / n_steps, 1 - (n_steps - 1) * LEAST_SHARE / n_steps)
    return [early] * (n_steps - 1) + [last]


def _is_affine(name: str) -> bool:
    """Whether a weight is the scale or shift of a normalisation: the backbones have no other vectors."""
    return "norm" in name
