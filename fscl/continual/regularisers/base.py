"""What holds the embedding while it learns: strength · Σ_i g_i · (fast_i - anchor_i)², with a gate g for each weight.

A regulariser is one file. `before_task` says what is held and how firmly, `after_step` follows the weights where that is
needed, `after_task` measures what the task has made important.

One convention for all: no factor ½, so EWC's λ is twice `strength` here. The embedding alone is held, as in the TSC paper.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import torch
from pydantic import Field
from torch import Tensor

from fscl.continual.learner import HeldWeights
from fscl.continual.parts import Part
from fscl.data.pool import Examples
from fscl.nets.network import Network
from fscl.nets.norm import Statistics
from fscl.nets.params import Params


@dataclass(frozen=True)
class QuadraticPenalty:
    """How firmly each weight is held (`gates`), and where (`anchor`)."""

    gates: Params
    anchor: Params

    def gradient(self, fast: Mapping[str, Tensor], strength: float) -> Params:
        """The gradient of the penalty with respect to the fast weights."""
        return {
            name: 2 * strength * self.gates[name] * (tensor.detach() - self.anchor[name])
            for name, tensor in fast.items()
        }


@dataclass(frozen=True)
class ComingTask:
    """What a regulariser may ask before a task is learned.

    Attributes:
        n_tasks: how many were learned before.
        slow: the weights of the embedding that it starts from.
        loss: of the task's shots, as a function of those weights; None where they have nothing to teach.
    """

    n_tasks: int
    slow: Params
    loss: Callable[[Params], Tensor | None]


@dataclass(frozen=True)
class LearnedTask:
    """What a regulariser may ask after a task was learned: the weights before and after, and the task's shots."""

    n_tasks: int
    network: Network
    before: Params
    params: Params
    head: Params
    statistics: Statistics | None
    shots: Examples

    def inputs(self) -> Tensor:
        """The shots as network inputs."""
        return self.network.to_input(self.shots.images)


class RegulariserSettings(Part, ABC):
    """The settings of a regulariser; λ is `strength`."""

    strength: float = Field(default=0.0, ge=0)

    @abstractmethod
    def start(self, params: Params) -> "Regulariser":
        """A regulariser that knows of no task yet, for weights like these."""


class Regulariser(ABC):
    """Holds the embedding of one learner.

    A learner works on a copy while a task is learned, so that a task that fails changes nothing: tensors are replaced,
    never changed in place, unless the task itself has made them.
    """

    penalty: QuadraticPenalty | None = None
    follows_steps = False  # whether `after_step` is to be called

    @property
    @abstractmethod
    def strength(self) -> float:
        """λ."""

    def before_task(self, task: ComingTask) -> None:
        """Set the penalty that the task is learned under."""
        self.penalty = None

    def after_step(self, gradients: Params, before: Params, after: Params) -> None:
        """Follow one step: the gradients of the loss alone, and the weights before and after."""
        return

    def after_task(self, task: LearnedTask) -> None:
        """Take in what the task has made important."""
        return

    def gradient(self, fast: Mapping[str, Tensor]) -> Params | None:
        """The gradient of the penalty; None where nothing is held."""
        return None if self.penalty is None else self.penalty.gradient(fast, self.strength)

    def held(self, slow: Params, n_tasks: int) -> HeldWeights | None:
        """How firmly each weight is held after so many tasks."""
        return None

    def tensors(self) -> dict[str, Params]:
        """What it keeps from task to task, by group."""
        return {}

    def restore(self, groups: Mapping[str, Params]) -> None:
        """Keep what `tensors` returned."""
        return

    def copy(self) -> Self:
        """Another one that knows the same."""
        made = type(self).__new__(type(self))
        vars(made).update(vars(self))
        return made


def zeros_like(params: Mapping[str, Tensor]) -> Params:
    """Zeros in the shapes of some weights."""
    return {name: torch.zeros_like(tensor) for name, tensor in params.items()}


def gradient_sizes(loss: Tensor, params: Params) -> Params:
    """The absolute gradient of each weight."""
    grads = torch.autograd.grad(loss, list(params.values()))
    return {name: grad.abs() for name, grad in zip(params, grads, strict=True)}


def can_be_squared(gradient: Mapping[str, Tensor]) -> bool:
    """Whether Adam can take a step by this gradient. It divides by squares, and one that overflows lets go of its weight."""
    return all(bool(torch.isfinite(grad.square()).all()) for grad in gradient.values())


def gradient_ratio(of_penalty: Mapping[str, Tensor], of_loss: Mapping[str, Tensor]) -> float:
    """‖gradient of the penalty‖ / ‖gradient of the loss‖, at most the largest number there is."""
    norm = torch.linalg.vector_norm  # Tensor.norm takes a deprecated route on mps
    above, below = (norm(torch.stack([norm(grad) for grad in grads.values()])) for grads in (of_penalty, of_loss))
    limits = torch.finfo(below.dtype)
    return float((above / below.clamp_min(limits.tiny)).clamp_max(limits.max))
