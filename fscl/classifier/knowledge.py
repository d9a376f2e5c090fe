"""What a classifier knows, as one value that is never changed: every call makes a new one, and the old one can be kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fscl.classifier.labels import Label
from fscl.data.pool import Examples

CallName = Literal["fit", "learn", "correct", "forget", "rename", "remove", "move", "merge"]


@dataclass(frozen=True)
class Lesson:
    """Examples to learn: images or rows with their labels, and where each came from.

    Attributes:
        call: "fit" starts from nothing, "learn" and "correct" go on.
        when: the time of the call, ISO 8601 in UTC.
        originals: each picture as it shall be kept beside the example; none where they are not kept.
        id: chosen by who teaches it, so that the same lesson sent again is known to be the same; None where nobody asks.
    """

    examples: Tensor
    labels: tuple[Label, ...]
    sources: tuple[str, ...]
    call: CallName
    when: str
    originals: tuple[bytes, ...] = ()
    id: str | None = None

    def __repr__(self) -> str:
        return f"<Lesson {self.call!r}: {len(self.labels)} examples of {len(set(self.labels))} classes>"


@dataclass(frozen=True)
class Event:
    """One line of history: a call, and what it left.

    Attributes:
        number: of the call, from 1.
        new, known: the classes that it brought, and those that it had more examples of (or forgot, or renamed, or took
            an example from).
        n_examples: how many were taught.
        n_classes: how many are known afterwards.
        accuracy: estimated afterwards by leaving one out; None where no class has two stored examples.
        lesson: the id that its lesson was given; None where it had none.
    """

    number: int
    call: CallName
    when: str
    new: tuple[Label, ...]
    known: tuple[Label, ...]
    n_examples: int
    n_classes: int
    accuracy: float | None
    lesson: str | None = None

    def details(self) -> dict[str, Any]:
        """As a JSON value; an id that was not given is left out."""
        content = {**vars(self), "new": list(self.new), "known": list(self.known)}
        return {name: value for name, value in content.items() if name != "lesson" or value is not None}


@dataclass(frozen=True)
class Calibration:
    """What leaving one stored example out at a time says; see calibrate.py.

    Attributes:
        accuracy: share of the left-out examples that are answered right; None where nothing could be left out.
        per_class: the same for each class.
        temperature: what divides the scores, so that probabilities match the accuracy.
        threshold: of the score of unknown (unknown.py): pictures above it are of no class that was taught; None where no
            example could be left out.
        interval: of the accuracy, at 95 %.
        n_left_out: how many examples were asked for.
        unknown_in_base: whether that score is of the base's features, because the learner's own have learned from them.
        n_repeats: how many examples show what another one shows; these count once.
        doubts: examples whose label is probably wrong: position, number of the likelier class, probability.
    """

    accuracy: float | None = None
    per_class: tuple[float | None, ...] = ()
    temperature: float = 1.0
    threshold: float | None = None
    interval: tuple[float, float] | None = None
    n_left_out: int = 0
    unknown_in_base: bool = False
    n_repeats: int = 0
    doubts: tuple[tuple[int, int, float], ...] = ()


@dataclass(frozen=True)
class MemoryUse:
    """The stored examples: how many of each class, their bytes, and the bound on them (None for no bound)."""

    n_examples: int
    per_class: dict[Label, int]
    n_bytes: int
    max_bytes: int | None


@dataclass(frozen=True, repr=False)
class Knowledge:
    """Everything learned so far, apart from what the learner itself holds.

    Attributes:
        classes: the label of each class, in the order of arrival, which is how the learner numbers them.
        examples: those stored, numbered as the learner does; None if there is none. Where the learner replays examples,
            they are the very ones that it replays, and its state holds none of its own.
        replayed: whether they are.
        sources: where each stored example came from.
        features: of the stored examples, by the weights that answer now.
        base_features: of the stored examples, by weights that have not learned from them: the base's. The same as
            `features` where the embedding stands still.
        unknown: what the score of unknown is computed with; empty where there is none.
    """

    classes: tuple[Label, ...] = ()
    examples: Examples | None = None
    replayed: bool = False
    sources: tuple[str, ...] = ()
    features: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    base_features: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    calibration: Calibration = Calibration()
    unknown: Mapping[str, Tensor] = field(default_factory=dict)
    tells_unknown: bool = False
    history: tuple[Event, ...] = ()

    def with_unknown(self, unknown: Mapping[str, Tensor] | None) -> "Knowledge":
        """The same with what the score of unknown is computed with, if there is one."""
        return replace(self, unknown={} if unknown is None else unknown, tells_unknown=unknown is not None)

    @property
    def counts(self) -> list[int]:
        """Stored examples of each class."""
        if self.examples is None:
            return [0] * len(self.classes)
        return [int(count) for count in torch.bincount(self.examples.labels, minlength=len(self.classes))]

    @property
    def n_bytes(self) -> int:
        """Bytes of the stored examples and their labels."""
        return 0 if self.examples is None else self.examples.images.nbytes + self.examples.labels.nbytes

    @property
    def class_accuracy(self) -> dict[Label, float | None]:
        """The estimated accuracy of each class."""
        return dict(zip(self.classes, self.calibration.per_class, strict=True))

    def memory_use(self, max_bytes: int | None) -> MemoryUse:
        """What is stored of the examples, beside the bound on it."""
        counts = self.counts
        return MemoryUse(sum(counts), dict(zip(self.classes, counts, strict=True)), self.n_bytes, max_bytes)

    def details(self) -> dict[str, Any]:
        """All but the tensors, as a JSON value."""
        return {
            "classes": list(self.classes),
            "labels": [] if self.examples is None else self.examples.labels.tolist(),
            "replayed": self.replayed,
            "sources": list(self.sources),
            "calibration": vars(self.calibration),
            "history": [event.details() for event in self.history],
        }

    def __repr__(self) -> str:
        n_examples = 0 if self.examples is None else len(self.examples)
        return f"<Knowledge: {len(self.classes)} classes, {n_examples} stored examples, {len(self.history)} calls>"
