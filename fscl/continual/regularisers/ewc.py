"""Elastic weight consolidation: weights are held by the diagonal of the Fisher information, from each example's gradient.

J. Kirkpatrick et al., "Overcoming catastrophic forgetting in neural networks", 2017.

Departs from the paper: see importance.py and base.py; the head is not held.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from fscl.continual.regularisers.base import LearnedTask, Regulariser, zeros_like
from fscl.continual.regularisers.importance import Importance, ImportanceSettings
from fscl.nets.network import Network
from fscl.nets.norm import Statistics
from fscl.nets.params import Params, linear, trainable_copy

FisherLabels = Literal["true", "all"]


class Ewc(ImportanceSettings):
    """Fisher information.

    Attributes:
        labels: whose gradients are squared: that of the "true" label, or "all" of them, weighed by their probability.
    """

    kind: Literal["ewc"] = "ewc"
    labels: FisherLabels = "true"

    def start(self, params: Params) -> Regulariser:
        return FisherImportance(self, params)


class FisherImportance(Importance):
    """Importance is the Fisher information at the weights that the task was learned with."""

    measure: ClassVar[str] = "fisher information"
    settings: Ewc

    def measured(self, task: LearnedTask) -> Params:
        labels, which = task.shots.labels, self.settings.labels
        return fisher_information(task.network, task.params, task.head, task.inputs(), labels, task.statistics, which)


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
    weights, information = trainable_copy(params), zeros_like(params)
    for example, label in zip(x.split(1), labels.tolist(), strict=True):
        log_p = log_softmax(linear(head, network.features(example, weights, statistics=statistics)), 1)[0]
        shares = {label: 1.0} if which == "true" else dict(enumerate(log_p.detach().exp().tolist()))
        for of_label, share in shares.items():
            grads = torch.autograd.grad(log_p[of_label], list(weights.values()), retain_graph=True)
            for total, grad in zip(information.values(), grads, strict=True):
                total.add_(grad.square(), alpha=share / len(x))
    return information
