"""What pulls fast weights back: strength · Σ_i g_i · (fast_i - anchor_i)², with a gate g for each weight.

*Tagging* is the first step of two-step consolidation: before a task is learned, each weight is tagged with the size of
the task's expected gradient at the slow weights; tags add up over tasks, and a sigmoid around the layer's mean gates how
firmly the weight is held (TSC paper, Eq. 1 and 2). *Constant* holds every weight alike, at the gate's middle (its CP).

The classic three measure importance after a task instead, and hold nothing in the first one:
- *ewc*: the diagonal of the Fisher information, from the gradient of each example (Kirkpatrick et al. 2017);
- *si*: how much each weight's path through the task lowered the loss (Zenke, Poole, Ganguli 2017);
- *mas*: how far the squared length of the output moves with the weight; needs no labels (Aljundi et al. 2018).

Departs from the papers:
- Tagging with `activity_scale="layer"` divides tags by the layer's mean tag, because raw gradients are so small that the
  printed gate is 0.5 everywhere to within a few per cent; `"raw"` is the printed one.
- One convention for all: no factor ½, so EWC's λ is twice `strength` here.
- The embedding alone is held, as in the TSC paper; the others hold the head as well.
- EWC with a term for each task (`accumulate="each"`) is kept as one quadratic with the same gradient: the summed
  importance, around the mean of the old weights that it weighs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from fscl.nets.network import Network
from fscl.nets.norm import Statistics
from fscl.nets.params import Params, linear, trainable_copy

RegulariserName = Literal["none", "constant", "tagging", "ewc", "si", "mas"]
ActivityScale = Literal["raw", "layer"]
Accumulate = Literal["sum", "mean", "each"]
FisherLabels = Literal["true", "all"]
CONSTANT_GATE = 0.5


@dataclass(frozen=True)
class Hold:
    """How firmly each weight is held, and where."""

    gates: Params
    anchor: Params

    def pull(self, fast: Mapping[str, Tensor], strength: float) -> Params:
        """The gradient of the penalty with respect to the fast weights."""
        return {
            name: 2 * strength * self.gates[name] * (tensor.detach() - self.anchor[name])
            for name, tensor in fast.items()
        }


def tag_gates(activity: Mapping[str, Tensor], n_tasks: int, gate_slope: float, scale: ActivityScale) -> Params:
    """Eq. 2: δ = σ(m · (a_{1:t} - mean(a_{1:t}) / t)), a layer being one parameter tensor.

    Args:
        activity: for each tensor, the tags summed over tasks (a_{1:t}).
        n_tasks: how many tasks were summed (t).
        gate_slope: m in the paper.
        scale: "layer" first divides by the layer's mean tag of one task, so that m = 1 spreads the gates.
    """
    gates = {}
    for name, total in activity.items():
        per_task = total.mean() / n_tasks
        centred = total - per_task
        if scale == "layer":
            centred = centred / per_task.clamp_min(torch.finfo(total.dtype).tiny)
        gates[name] = torch.sigmoid(gate_slope * centred)
    return gates


def constant_gates(params: Mapping[str, Tensor]) -> Params:
    """The same gate everywhere."""
    return {name: torch.full_like(tensor, CONSTANT_GATE) for name, tensor in params.items()}


def fisher_information(
    network: Network,
    params: Params,
    head: Params,
    x: Tensor,
    labels: Tensor,
    statistics: Statistics | None,
    which: FisherLabels,
) -> Params:
    """Mean over the examples of the squared gradient of log p(y | x): of the true label, or of all, weighed by p."""
    weights, found = trainable_copy(params), _zeros(params)
    for example, label in zip(x.split(1), labels.tolist(), strict=True):
        log_p = log_softmax(linear(head, network.features(example, weights, statistics=statistics)), 1)[0]
        asked = {label: 1.0} if which == "true" else dict(enumerate(log_p.detach().exp().tolist()))
        for of_label, share in asked.items():
            grads = torch.autograd.grad(log_p[of_label], list(weights.values()), retain_graph=True)
            for total, grad in zip(found.values(), grads, strict=True):
                total.add_(grad.square(), alpha=share / len(x))
    return found


def output_sensitivity(
    network: Network, params: Params, head: Params, x: Tensor, statistics: Statistics | None
) -> Params:
    """Mean over the examples of |∂ ‖scores‖² / ∂ weight|."""
    weights, found = trainable_copy(params), _zeros(params)
    for example in x.split(1):
        output = linear(head, network.features(example, weights, statistics=statistics))
        grads = torch.autograd.grad(output.square().sum(), list(weights.values()))
        for total, grad in zip(found.values(), grads, strict=True):
            total.add_(grad.abs(), alpha=1 / len(x))
    return found


def path_importance(path: Mapping[str, Tensor], moved: Mapping[str, Tensor], damping: float) -> Params:
    """SI: what a weight's path gained, over the square of how far it came; the damping bounds it for those that stood."""
    return {name: gained / (moved[name].square() + damping) for name, gained in path.items()}


def accumulated(
    total: Mapping[str, Tensor], found: Mapping[str, Tensor], n_tasks: int, how: Accumulate, decay: float
) -> Params:
    """Importance over all tasks: a sum in which earlier ones count `decay` times less each time, or the plain mean."""
    if how == "mean":
        return {name: ((t * n_tasks + found[name]) / (n_tasks + 1)).clamp_min(0) for name, t in total.items()}
    return {name: (decay * tensor + found[name]).clamp_min(0) for name, tensor in total.items()}


def weighed_anchor(
    importance: Mapping[str, Tensor], weighted: Mapping[str, Tensor], slow: Mapping[str, Tensor]
) -> Params:
    """Σ_j F_j θ_j / Σ_j F_j: where the sum of the tasks' own penalties is least; `slow` where nothing is important."""
    return {
        name: torch.where(total > 0, weighted[name] / total.clamp_min(torch.finfo(total.dtype).tiny), slow[name])
        for name, total in importance.items()
    }


def gradient_sizes(loss: Tensor, params: Params) -> Params:
    """The absolute gradient of each weight."""
    grads = torch.autograd.grad(loss, list(params.values()))
    return {name: grad.abs() for name, grad in zip(params, grads, strict=True)}


def can_be_squared(pulled: Mapping[str, Tensor]) -> bool:
    """Whether Adam can take a step by this pull. It divides by squares, and one that overflows lets go of its weight."""
    return all(bool(torch.isfinite(grad.square()).all()) for grad in pulled.values())


def pull_ratio(pulled: Mapping[str, Tensor], by_loss: Mapping[str, Tensor]) -> float:
    """‖gradient of the penalty‖ / ‖gradient of the loss‖, at most the largest number there is."""
    norm = torch.linalg.vector_norm  # Tensor.norm takes a deprecated route on mps
    above, below = (norm(torch.stack([norm(grad) for grad in grads.values()])) for grads in (pulled, by_loss))
    limits = torch.finfo(below.dtype)
    return float((above / below.clamp_min(limits.tiny)).clamp_max(limits.max))


def _zeros(params: Mapping[str, Tensor]) -> Params:
    return {name: torch.zeros_like(tensor) for name, tensor in params.items()}
