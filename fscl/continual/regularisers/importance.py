"""What ewc, si and mas share: importance is measured after each task, adds up, and holds nothing in the first one, unless
`first_strength` says so: the base is worth holding, too.

Departs from the papers: a term for each task (`accumulate = "each"`) is kept as one quadratic with the same gradient: the
summed importance, around the mean of the old weights that it weighs.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fscl.continual.learner import HeldWeights
from fscl.continual.regularisers.base import (
    ComingTask,
    LearnedTask,
    QuadraticPenalty,
    Regulariser,
    RegulariserSettings,
    zeros_like,
)
from fscl.continual.regularisers.constant import constant_gates
from fscl.nets.params import Params

Accumulate = Literal["sum", "mean", "each"]


class ImportanceSettings(RegulariserSettings):
    """How importance adds up over tasks.

    Attributes:
        accumulate: as a sum, as a mean, or as a sum that holds every task's own weights ("each") instead of the last ones.
        decay: what a new task leaves of the sum.
        first_strength: how firmly every weight is held to the base, all alike, while the first task is learned, when nothing
            has been found important yet; as the strength of the regulariser "constant".
    """

    accumulate: Accumulate = "sum"
    decay: float = Field(default=1.0, ge=0, le=1)
    first_strength: float = Field(default=0.0, ge=0)


class Importance(Regulariser):
    """Holds each weight by what it has meant to earlier tasks; a subclass measures that."""

    measure: ClassVar[str]

    def __init__(self, settings: ImportanceSettings, params: Params) -> None:
        self.settings = settings
        self.in_first = True
        self.importance = zeros_like(params)
        self.weighted = zeros_like(params) if settings.accumulate == "each" else {}  # importance · weights, summed

    @property
    def strength(self) -> float:
        return self.settings.strength

    def before_task(self, task: ComingTask) -> None:
        self.in_first = task.n_tasks == 0
        if self.in_first:
            held = self.settings.first_strength > 0
            self.penalty = QuadraticPenalty(constant_gates(task.slow), task.slow) if held else None
            return
        anchor = weighed_anchor(self.importance, self.weighted, task.slow) if self.weighted else task.slow
        self.penalty = QuadraticPenalty(self.importance, anchor)

    def gradient(self, fast: Mapping[str, Tensor]) -> Params | None:
        strength = self.settings.first_strength if self.in_first else self.strength
        return None if self.penalty is None else self.penalty.gradient(fast, strength)

    @abstractmethod
    def measured(self, task: LearnedTask) -> Params:
        """The importance of each weight to the task that was just learned."""

    def after_task(self, task: LearnedTask) -> None:
        new = self.measured(task)
        if self.weighted:
            new = {name: tensor.clamp_min(0) for name, tensor in new.items()}
        settings = self.settings
        self.importance = accumulated(self.importance, new, task.n_tasks, settings.accumulate, settings.decay)
        self.weighted = {
            name: settings.decay * old + new[name] * task.params[name] for name, old in self.weighted.items()
        }

    def held(self, slow: Params, n_tasks: int) -> HeldWeights | None:
        """The importance that the next task meets."""
        return HeldWeights(self.measure, self.strength, self.importance) if n_tasks else None

    def tensors(self) -> dict[str, Params]:
        return {"importance": self.importance, "weighted": self.weighted}

    def restore(self, groups: Mapping[str, Params]) -> None:
        self.importance, self.weighted = groups["importance"], groups["weighted"]


def accumulated(
    total: Mapping[str, Tensor], new: Mapping[str, Tensor], n_tasks: int, how: Accumulate, decay: float
) -> Params:
    """Importance over all tasks: a sum in which earlier ones count `decay` times less each time, or the plain mean."""
    if how == "mean":
        return {name: ((t * n_tasks + new[name]) / (n_tasks + 1)).clamp_min(0) for name, t in total.items()}
    return {name: (decay * tensor + new[name]).clamp_min(0) for name, tensor in total.items()}


def weighed_anchor(
    importance: Mapping[str, Tensor], weighted: Mapping[str, Tensor], slow: Mapping[str, Tensor]
) -> Params:
    """Σ_j F_j θ_j / Σ_j F_j: where the sum of the tasks' own penalties is least; `slow` where nothing is important."""
    return {
        name: torch.where(total > 0, weighted[name] / total.clamp_min(torch.finfo(total.dtype).tiny), slow[name])
        for name, total in importance.items()
    }
