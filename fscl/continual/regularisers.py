"""What pulls fast weights back to the slow ones: λ · Σ_i δ_i · (fast_i - slow_i)², with a gate δ for each weight.

*Tagging* is the first step of two-step consolidation: before a task is learned, each weight is tagged with the size of
the task's expected gradient at the slow weights; tags add up over tasks, and a sigmoid around the layer's mean gates how
firmly the weight is held (TSC paper, Eq. 1 and 2). *Constant* holds every weight alike, at the gate's middle (its CP).

Departs from the paper: `activity_scale="layer"` divides tags by the layer's mean tag, because raw gradients are so small
that the printed gate is 0.5 everywhere to within a few per cent; `"raw"` is the printed one.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from fscl.nets.fast import Params

RegulariserName = Literal["none", "constant", "tagging"]
ActivityScale = Literal["raw", "layer"]
CONSTANT_GATE = 0.5


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


def pull(
    fast: Mapping[str, Tensor], slow: Mapping[str, Tensor], gates: Mapping[str, Tensor], strength: float
) -> Params:
    """The gradient of `strength` · `penalty` with respect to the fast weights."""
    return {name: 2 * strength * gates[name] * (tensor.detach() - slow[name]) for name, tensor in fast.items()}


def penalty(fast: Mapping[str, Tensor], slow: Mapping[str, Tensor], gates: Mapping[str, Tensor]) -> Tensor:
    """Σ_i δ_i · (fast_i - slow_i)², the sum in Eq. 1."""
    terms = [(gates[name] * (tensor - slow[name]).square()).sum() for name, tensor in fast.items()]
    return torch.stack(terms).sum()
