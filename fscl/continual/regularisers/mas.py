"""Memory aware synapses: weights are held by how far the squared length of the output moves with them; needs no labels.

R. Aljundi, F. Babiloni, M. Elhoseiny, M. Rohrbach, T. Tuytelaars, "Memory Aware Synapses: Learning what (not) to forget",
2018.

Departs from the paper: see importance.py and base.py; the head is not held.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from fscl.continual.regularisers.base import LearnedTask, Regulariser, zeros_like
from fscl.continual.regularisers.importance import Importance, ImportanceSettings
from fscl.nets.network import Network
from fscl.nets.norm import Statistics
from fscl.nets.params import Params, linear, trainable_copy


class Mas(ImportanceSettings):
    """Sensitivity of the output."""

    kind: Literal["mas"] = "mas"

    def start(self, params: Params) -> Regulariser:
        return SensitivityImportance(self, params)


class SensitivityImportance(Importance):
    """Importance is the sensitivity of the output at the weights that the task was learned with."""

    measure: ClassVar[str] = "output sensitivity"

    def measured(self, task: LearnedTask) -> Params:
        return output_sensitivity(task.network, task.params, task.head, task.inputs(), task.statistics)


def output_sensitivity(
    network: Network, params: Params, head: Params, x: Tensor, statistics: Statistics | None
) -> Params:
    """Mean over the examples of |∂ ‖scores‖² / ∂ weight|."""
    weights, sensitivity = trainable_copy(params), zeros_like(params)
    for example in x.split(1):
        output = linear(head, network.features(example, weights, statistics=statistics))
        grads = torch.autograd.grad(output.square().sum(), list(weights.values()))
        for total, grad in zip(sensitivity.values(), grads, strict=True):
            total.add_(grad.abs(), alpha=1 / len(x))
    return sensitivity
