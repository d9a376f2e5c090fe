"""Tagging: the first step of two-step consolidation.

Before a task is learned, each weight is tagged with the size of the task's expected gradient at the slow weights; tags add
up over tasks, and a sigmoid around the layer's mean gates how firmly the weight is held.

L. Wang, Q. Li, Y. Zhong, J. Zhu, "Few-shot Continual Learning: a Brain-inspired Approach", 2021 (Eq. 1 and 2).

Departs from the paper: with `activity_scale = "layer"` tags are divided by the layer's mean tag, because raw gradients are
so small that the printed gate is 0.5 everywhere to within a few per cent; `"raw"` is the printed one.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fscl.continual.learner import HeldWeights
from fscl.continual.regularisers.base import (
    ComingTask,
    QuadraticPenalty,
    Regulariser,
    RegulariserSettings,
    gradient_sizes,
    zeros_like,
)
from fscl.nets.params import Params, trainable_copy

ActivityScale = Literal["raw", "layer"]


class Tagging(RegulariserSettings):
    """Gates by tags.

    Attributes:
        gate_slope: m, how steep the gate is.
        activity_scale: whether tags are divided by their layer's mean.
    """

    kind: Literal["tagging"] = "tagging"
    gate_slope: float = Field(default=1.0, ge=0)
    activity_scale: ActivityScale = "layer"

    def start(self, params: Params) -> Regulariser:
        return TagGates(self, params)


class TagGates(Regulariser):
    """Holds each weight to the slow one, by the tags of all tasks so far, the coming one included."""

    def __init__(self, settings: Tagging, params: Params) -> None:
        self.settings = settings
        self.tags = zeros_like(params)

    @property
    def strength(self) -> float:
        return self.settings.strength

    def before_task(self, task: ComingTask) -> None:
        slow = trainable_copy(task.slow)
        loss = task.loss(slow)
        new = {} if loss is None else gradient_sizes(loss, slow)
        self.tags = {name: total + new.get(name, 0.0) for name, total in self.tags.items()}
        self.penalty = QuadraticPenalty(self._gates(task.n_tasks + 1), task.slow)

    def held(self, slow: Params, n_tasks: int) -> HeldWeights | None:
        """The gates with which the last task was learned."""
        return HeldWeights("gate", self.strength, self._gates(n_tasks)) if n_tasks else None

    def tensors(self) -> dict[str, Params]:
        return {"tags": self.tags}

    def restore(self, groups: Mapping[str, Params]) -> None:
        self.tags = groups["tags"]

    def _gates(self, n_tasks: int) -> Params:
        return tag_gates(self.tags, n_tasks, self.settings.gate_slope, self.settings.activity_scale)


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
