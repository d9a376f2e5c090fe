"""What a classifier knows, as one value that is never changed: every call makes a new one, and the old one can be kept."""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from fscl.classifier.labels import Label
from fscl.continual.learner import LearnerState
from fscl.data.pool import Examples

CallName = Literal["fit", "learn", "correct", "forget", "rename"]


@dataclass(frozen=True)
class Lesson:
    """Examples to learn: images or rows with their labels, and where each came from.

    Attributes:
        call: "fit" starts from nothing, "learn" and "correct" go on.
        when: the time of the call, ISO 8601 in UTC.
    """

    examples: Tensor
    labels: tuple[Label, ...]
    sources: tuple[str, ...]
    call: CallName
    when: str


@dataclass(frozen=True)
class Event:
    """One line of history: a call, and what it left.

    Attributes:
        number: of the call, from 1.
        new, known: the classes that it brought, and those that it had more examples of (or forgot, or renamed).
        n_examples: how many were taught.
        n_classes: how many are known afterwards.
        accuracy: estimated afterwards by leaving one out; None where no class has two stored examples.
    """

    number: int
    call: CallName
    when: str
    new: tuple[Label, ...]
    known: tuple[Label, ...]
    n_examples: int
    n_classes: int
    accuracy: float | None


@dataclass(frozen=True)
class Judgement:
    """What leaving one stored example out at a time says; see judging.py.

    Attributes:
        accuracy: share of the left-out examples that are answered right; None where nothing could be left out.
        per_class: the same for each class.
        temperature: what divides the scores, so that probabilities are honest.
        threshold: how far a picture may be from its class's mean and still be known; None where unknown.
    """

    accuracy: float | None = None
    per_class: tuple[float | None, ...] = ()
    temperature: float = 1.0
    threshold: float | None = None


@dataclass(frozen=True)
class Knowledge:
    """Everything learned so far.

    Attributes:
        classes: the label of each class, in the order of arrival, which is how the learner numbers them.
        learner: what the method has learned; None before the first example.
        shots: the stored examples, numbered as the learner does; None if there is none.
        sources: where each stored example came from.
        features: of the stored examples, by the weights that answer now.
        fair: of the stored examples, by weights that have not learned from them: the base's. The same as `features` where
            the embedding stands still.
    """

    classes: tuple[Label, ...] = ()
    learner: LearnerState | None = None
    shots: Examples | None = None
    sources: tuple[str, ...] = ()
    features: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    fair: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    judgement: Judgement = Judgement()
    history: tuple[Event, ...] = ()

    @property
    def counts(self) -> list[int]:
        """Stored examples of each class."""
        if self.shots is None:
            return [0] * len(self.classes)
        return [int(count) for count in torch.bincount(self.shots.labels, minlength=len(self.classes))]

    def details(self) -> dict[str, Any]:
        """All but the tensors, as a JSON value."""
        return {
            "classes": list(self.classes),
            "labels": [] if self.shots is None else self.shots.labels.tolist(),
            "sources": list(self.sources),
            "judgement": {**vars(self.judgement), "per_class": list(self.judgement.per_class)},
            "history": [{**vars(event), "new": list(event.new), "known": list(event.known)} for event in self.history],
            "learner": None if self.learner is None else self.learner.details,
        }
