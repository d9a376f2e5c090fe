"""Fast learning: steps of a tail on crops of replayed shots, by leaving one out."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fscl.continual.objectives import leave_one_out, spread
from fscl.continual.regularisers import ComingTask, Regulariser
from fscl.continual.tail.codes import Body
from fscl.continual.tail.settings import TailSettings
from fscl.nets.params import Params, frozen_copy, trainable_copy
from fscl.stopping import each


class Diverged(Exception):
    """The loss is no longer a number; says at which step."""


@dataclass(frozen=True, eq=False)
class Shots:
    """What a tail may learn from.

    Attributes:
        crops: activations (n, views, …) of each shot's crops.
        labels: their classes.
        allowed: which shots this tail may see; the others are left out, with all of their views.
    """

    crops: Tensor
    labels: Tensor
    allowed: Tensor

    def batch(self, settings: TailSettings, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Crops of a few classes, and their labels."""
        positions = []
        for label in self._classes(settings.classes_per_step, random):
            own = torch.where((self.labels == label) & self.allowed)[0]
            positions.append(own[torch.randperm(len(own), generator=random)[: settings.shots_per_step]])
        chosen = torch.cat(positions)
        views = torch.randint(self.crops.shape[1], (len(chosen),), generator=random)
        return self.crops[chosen, views], self.labels[chosen]

    def _classes(self, n: int, random: torch.Generator) -> list[int]:
        known = torch.unique(self.labels[self.allowed])
        return [int(label) for label in known[torch.randperm(len(known), generator=random)[:n]]]


def moved(
    body: Body,
    slow: Params,
    shots: Shots,
    regulariser: Regulariser,
    settings: TailSettings,
    *,
    steps: int,
    random: torch.Generator,
    n_tasks: int,
) -> Params:
    """Fast weights after so many steps from the slow ones."""
    tail = body.tail
    if tail is None or not bool(shots.allowed.any()):
        return slow
    first, labels = shots.batch(settings, random)
    temperature = settings.temperature * spread(body.features(first, slow), labels)

    def loss(params: Params, crops: Tensor, own: Tensor) -> Tensor | None:
        features = tail.features(tail.to_input(crops), params, statistics=tail.statistics)
        return leave_one_out(features, own.to(features.device), temperature)

    regulariser.before_task(ComingTask(n_tasks, slow, lambda params: loss(params, first, labels)))
    fast = trainable_copy(slow)
    optimiser = torch.optim.Adam(fast.values(), lr=settings.learning_rate, betas=settings.betas)
    for step in each(range(steps)):
        found = loss(fast, *(shots.batch(settings, random) if step else (first, labels)))
        if found is None:  # no class has two shots
            break
        if not math.isfinite(float(found.detach())):
            raise Diverged(f"the loss is {float(found.detach())} at step {step + 1}")
        optimiser.zero_grad()
        found.backward()
        penalty = regulariser.gradient(fast)
        for name, tensor in fast.items():
            if penalty is not None and tensor.grad is not None:
                tensor.grad += penalty[name]
        optimiser.step()
    return frozen_copy(fast)
