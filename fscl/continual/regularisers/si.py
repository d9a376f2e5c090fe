"""Synaptic intelligence: weights are held by how much their path through the task lowered the loss.

F. Zenke, B. Poole, S. Ganguli, "Continual Learning Through Synaptic Intelligence", 2017.

Departs from the paper: see importance.py and base.py; the head is not held.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fscl.continual.regularisers.base import ComingTask, LearnedTask, Regulariser, zeros_like
from fscl.continual.regularisers.importance import Importance, ImportanceSettings
from fscl.nets.params import Params


class Si(ImportanceSettings):
    """Path integral.

    Attributes:
        damping: ξ, which bounds the importance of weights that hardly moved.
    """

    kind: Literal["si"] = "si"
    damping: float = Field(default=0.1, gt=0)

    def start(self, params: Params) -> Regulariser:
        return PathImportance(self, params)


class PathImportance(Importance):
    """Importance is the gain along a weight's path, over the square of how far it came."""

    measure: ClassVar[str] = "path integral"
    follows_steps = True
    settings: Si

    def before_task(self, task: ComingTask) -> None:
        super().before_task(task)
        self.path = zeros_like(task.slow)

    def after_step(self, gradients: Params, before: Params, after: Params) -> None:
        for name, total in self.path.items():
            total.sub_(gradients[name] * (after[name] - before[name]))

    def measured(self, task: LearnedTask) -> Params:
        moved = {name: task.params[name] - task.before[name] for name in self.path}
        return path_importance(self.path, moved, self.settings.damping)


def path_importance(path: Mapping[str, Tensor], moved: Mapping[str, Tensor], damping: float) -> Params:
    """What a weight's path gained, over the square of how far it came; the damping bounds it for those that stood."""
    return {name: gained / (moved[name].square() + damping) for name, gained in path.items()}
