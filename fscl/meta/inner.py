"""The inner loop of MAML and its kin, and the exact gradient through it.

A few gradient steps on the support set make fast weights; the query loss is differentiated through those steps. Going
back, a step θ' = θ - α g(θ) turns a cotangent v into v - H(θ)(α v), so all it takes is a Hessian-vector product a step:
no graph over all steps is ever built.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fscl.data.episode import Episode
from fscl.meta.base import BaseLearner
from fscl.nets.curvature import Curvature, Scored, join, part
from fscl.nets.norm import Statistics
from fscl.nets.params import Params, empty_head, grow_head
from fscl.nets.trained import NetworkSpec, TrainedNetwork, init_params

Rates = Sequence[Mapping[str, Tensor | float]]
"""For each inner step, the rate of each fast weight."""


@dataclass(frozen=True)
class Unrolled:
    """The outer loss and its gradients: in the fast weights' start, in each step's fixed weights, and in each step's
    rates."""

    loss: Tensor
    start: Params
    fixed: list[Params]
    rates: list[Params]


class InnerLoopLearner(BaseLearner):
    """A learner that adapts by gradient steps, with a head that has a row for each way.

    Attributes:
        transductive: normalise queries by each other, with BatchNorm.
        zero_head: let the head start at zero instead of at random, so that the first step alone decides how it tells
            classes apart (Kao, Chiu, Chen, "MAML is a Noisy Contrastive Learner in Classification", 2022).
    """

    has_fixed_way: ClassVar[bool] = True

    transductive: bool = False
    zero_head: bool = False

    def backbone_and_head(self, spec: NetworkSpec, n_way: int, generator: torch.Generator) -> Params:
        """Random weights of a backbone, and a head with a row for each way."""
        params = init_params(spec, generator)
        head = grow_head(empty_head(TrainedNetwork(spec, params).n_features), n_way, [generator] * n_way)
        if self.zero_head:
            head = {name: torch.zeros_like(tensor) for name, tensor in head.items()}
        return join(params, head)

    @property
    def inference(self) -> str:
        return "transductive BatchNorm" if self.transductive else ""

    def test_variants(self, spec: NetworkSpec) -> dict[str, BaseLearner]:
        if spec.norm != "batch":
            return {"": self}
        variants = (self.model_copy(update={"transductive": flag}) for flag in (False, True))
        return {variant.inference: variant for variant in variants}


def support_and_query(network: TrainedNetwork, episode: Episode, *, transductive: bool) -> tuple[Scored, Scored]:
    """The two batches of an episode. Queries are normalised by the support set, or (transductive) by each other."""
    support, query = network.to_input(episode.support.images), network.to_input(episode.query.images)
    learned = Scored(support, episode.support.labels, len(support))
    if transductive:
        return learned, Scored(query, episode.query.labels, len(query))
    both = torch.cat([support, query]) if network.spec.norm == "batch" else query
    return learned, Scored(both, episode.query.labels, min(len(support), len(both)))


def adapt(
    curvature: Curvature, start: Params, fixed: Sequence[Params], rates: Rates, support: Scored, *, keep: bool = False
) -> tuple[list[Params], list[tuple[Params, object]]]:
    """The fast weights before and after each step, and each step's gradient with its tape."""
    points, records = [start], []
    for of_step, rate in zip(fixed, rates, strict=True):
        _, grads, tape = curvature.gradient(points[-1] | of_step, support, keep=keep)
        records.append((grads, tape))
        points.append({name: tensor - rate[name] * grads[name] for name, tensor in points[-1].items()})
    return points, records


def unrolled_gradient(
    curvature: Curvature,
    start: Params,
    fixed: Sequence[Params],
    rates: Rates,
    support: Scored,
    queries: Sequence[Scored] | Scored,
    shares: Sequence[float],
    *,
    first_order: bool,
) -> Unrolled:
    """Adapt by len(fixed) steps; the outer loss is Σ shares[j] · (query loss after step j + 1).

    `fixed` are weights that a step uses and does not move. First order takes the inner gradients as constants.
    """
    points, records = adapt(curvature, start, fixed, rates, support, keep=not first_order)
    total = support.x.new_zeros(())
    back = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
    d_fixed: list[Params] = []
    d_rates: list[Params] = []
    for step in reversed(range(len(fixed))):
        of_step = {name: torch.zeros_like(tensor) for name, tensor in fixed[step].items()}
        if shares[step] > 0:
            query = queries if isinstance(queries, Scored) else queries[step]
            loss, grads, _ = curvature.gradient(points[step + 1] | fixed[step], query, keep=False)
            total = total + shares[step] * loss
            back = {name: tensor + shares[step] * grads[name] for name, tensor in back.items()}
            of_step = {name: tensor + shares[step] * grads[name] for name, tensor in of_step.items()}
        grads, tape = records.pop()
        d_rates.append({name: -(tensor * grads[name]).sum() for name, tensor in back.items()})
        if not first_order:
            turned = curvature.product(tape, {name: rates[step][name] * tensor for name, tensor in back.items()})
            back = {name: tensor - turned[name] for name, tensor in back.items()}
            of_step = {name: tensor - turned[name] for name, tensor in of_step.items()}
        d_fixed.append(of_step)
    return Unrolled(total, back, d_fixed[::-1], d_rates[::-1])


def shared_statistics(
    network: TrainedNetwork, points: Sequence[Params], fixed: Sequence[Params], support: Scored
) -> Statistics:
    """BatchNorm statistics of the support set, averaged over the weights after each inner step: one set for all of them."""
    found: list[Statistics] = []
    for point, of_step in zip(points[1:], fixed, strict=True):
        record: Statistics = {}
        with torch.no_grad():
            network.features(support.x, part(point | of_step)[0], record=record)
        found.append(record)
    return {layer: torch.stack([record[layer] for record in found]).mean(0) for layer in found[0]}


def with_statistics(query: Scored, statistics: Statistics) -> Scored:
    """The same queries, normalised by these."""
    return replace(query, statistics=statistics)
