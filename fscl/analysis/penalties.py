"""Penalties: how firmly a regulariser holds each weight after some tasks (L. Wang et al. 2021, figure 5b)."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from fscl.analysis.drift import Count, Size
from fscl.continual.learner import ContinualLearner
from fscl.data.stream import Task
from fscl.evaluation.observer import Finding, Observer

N_BINS = 50


class Penalties(Finding):
    """How firmly the weights of the embedding are held: a histogram over all of them.

    Attributes:
        after: tasks learned.
        strength: what multiplies every one of the values in the penalty (λ).
        low, high: the ends of the histogram; its bins are of equal width.
    """

    measure: str
    after: int = Field(ge=1)
    strength: Size
    low: float
    high: float
    mean: float
    counts: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1, max_length=1000)

    @model_validator(mode="after")
    def _is_a_range(self) -> "Penalties":
        if self.high <= self.low:
            raise ValueError(f"the histogram goes from {self.low:g} to {self.high:g}")
        return self

    def edges(self) -> list[float]:
        """Where bins begin and end: one more than there are bins."""
        n = len(self.counts)
        return [self.low + (self.high - self.low) * place / n for place in range(n + 1)]


class PenaltiesObserver(Observer):
    """Looks once, at what `learner.held_weights` says."""

    class Settings(Observer.Settings):
        """When to look.

        Attributes:
            after: how many tasks were learned when penalties are looked at.
        """

        after: Annotated[Count, Field(ge=1)] = 5

        def last_moment(self) -> int:
            return self.after

    finding: ClassVar[type[Finding]] = Penalties
    settings: Settings

    def __init__(self, settings: Settings, task: Task) -> None:
        super().__init__(settings, task)
        self.penalties: Penalties | None = None

    def look(self, n_tasks: int, learner: ContinualLearner) -> None:
        if n_tasks == self.settings.after:
            self.penalties = penalties_of(learner, n_tasks)

    def found(self, learner: ContinualLearner) -> Penalties | None:
        return self.penalties


OBSERVER = PenaltiesObserver


def penalties_of(learner: ContinualLearner, n_tasks: int) -> Penalties | None:
    """What the learner's regulariser made of the tasks so far, over all weights of the embedding; None if it has none.

    For tagging it is the gate δ with which the last task was learned; for the others the importance that the next one meets.
    """
    held = learner.held_weights()
    if held is None or not all(bool(torch.isfinite(tensor).all()) for tensor in held.values.values()):
        return None
    return histogram(held.values, held.measure, n_tasks, held.strength)


def histogram(values: Mapping[str, Tensor], measure: str, after: int, strength: float) -> Penalties:
    """Counts over all entries of all tensors, in bins of equal width from the least to the greatest."""
    parts = [tensor.detach().cpu().double().flatten().numpy() for tensor in values.values()]
    low, high = min(float(part.min()) for part in parts), max(float(part.max()) for part in parts)
    if high - low <= 1e-9 * abs(low) or high == low:  # all alike: one bin holds them
        high = low + (abs(low) or 1.0)
    counts = sum(np.histogram(part, bins=N_BINS, range=(low, high))[0] for part in parts)
    mean = sum(float(part.sum()) for part in parts) / sum(len(part) for part in parts)
    return Penalties(
        measure=measure,
        after=after,
        strength=strength,
        low=low,
        high=high,
        mean=mean,
        counts=tuple(int(count) for count in np.asarray(counts)),
    )
