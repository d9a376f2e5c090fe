"""Every weight held alike, at the middle of TSC's gate: the control that its paper calls CP."""

from typing import Literal

import torch

from fscl.continual.learner import HeldWeights
from fscl.continual.regularisers.base import ComingTask, QuadraticPenalty, Regulariser, RegulariserSettings
from fscl.nets.params import Params

GATE = 0.5


class Constant(RegulariserSettings):
    """A penalty that is the same for every weight."""

    kind: Literal["constant"] = "constant"

    def start(self, params: Params) -> Regulariser:
        return ConstantPenalty(self)


class ConstantPenalty(Regulariser):
    """Holds every weight to the slow one, with the same gate."""

    def __init__(self, settings: Constant) -> None:
        self.settings = settings

    @property
    def strength(self) -> float:
        return self.settings.strength

    def before_task(self, task: ComingTask) -> None:
        self.penalty = QuadraticPenalty(constant_gates(task.slow), task.slow)

    def held(self, slow: Params, n_tasks: int) -> HeldWeights | None:
        return HeldWeights("gate", self.strength, constant_gates(slow)) if n_tasks else None


def constant_gates(params: Params) -> Params:
    """The same gate everywhere."""
    return {name: torch.full_like(tensor, GATE) for name, tensor in params.items()}
