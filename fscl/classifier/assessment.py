"""What a classifier gets right of pictures that it was not taught, as one value: `ContinualClassifier.test`.

Pictures of classes that are not known are counted apart: there the right answer is "unknown". Intervals are Wilson's, which
hold for shares near 0 and 1 and for few pictures.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fscl.classifier.explain import Explanation, explain
from fscl.classifier.labels import Label
from fscl.classifier.teacher import Snapshot
from fscl.nets.network import Network

Z_95 = 1.959963984540054  # the normal distribution's quantile of 97.5 %
BATCH = 256  # pictures that are answered at once: an answer holds every class


@dataclass(frozen=True)
class Share:
    """How many of `n` there are, and the share with its 95 % interval.

    Examples:
        >>> [round(bound, 3) for bound in Share(8, 10).interval]
        [0.49, 0.943]
    """

    count: int
    n: int

    @property
    def value(self) -> float:
        """The share; NaN of none."""
        return self.count / self.n if self.n else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's, from 0 to 1; all of it where there is nothing to go by."""
        if not self.n:
            return 0.0, 1.0
        squared = Z_95**2 / self.n
        middle = (self.value + squared / 2) / (1 + squared)
        half = math.sqrt(squared * self.value * (1 - self.value) + squared**2 / 4) / (1 + squared)
        return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Answer:
    """One picture that was asked about.

    Attributes:
        source: where it came from; "" for an array.
        label: what it shows.
        found: what was answered, and why.
        picture: as the base sees it, light and dark as they were given.
    """

    source: str
    label: Label
    found: Explanation
    picture: NDArray[np.generic] = field(repr=False)

    @property
    def right(self) -> bool:
        """Whether the likeliest class is the right one."""
        return self.found.label == self.label


@dataclass(frozen=True)
class ClassResult:
    """One class: how many of its pictures were answered right, and how many were called unknown."""

    label: Label
    right: Share
    unknown: Share


@dataclass(frozen=True)
class Confusion:
    """Pictures of one class that were taken for another."""

    label: Label
    answer: Label
    n: int


@dataclass(frozen=True, repr=False)
class Assessment:
    """The answers to pictures that were not taught, and what they add up to.

    Attributes:
        answers: to pictures of known classes.
        strangers: answers to pictures of classes that are not known.
        n_taught: how many of the pictures are stored examples, which a test should not have.
        can_reject: whether there is a threshold of unknown at all; where there is none, nothing is called unknown.
    """

    answers: tuple[Answer, ...]
    strangers: tuple[Answer, ...] = ()
    n_taught: int = 0
    can_reject: bool = True

    @property
    def accuracy(self) -> Share:
        """Right answers to pictures of known classes."""
        return _right(self.answers)

    @property
    def called_unknown(self) -> Share:
        """Pictures of known classes that `reject` would call unknown: false alarms."""
        return _unknown(self.answers)

    @property
    def caught(self) -> Share:
        """Pictures of classes that are not known which `reject` would call unknown."""
        return _unknown(self.strangers)

    @property
    def per_class(self) -> tuple[ClassResult, ...]:
        """Each known class that was asked for, the worst first."""
        return tuple(sorted(_by_class(self.answers), key=lambda each: (each.right.value, str(each.label))))

    @property
    def stranger_classes(self) -> tuple[ClassResult, ...]:
        """Each class that is not known, by name; none of its pictures can be answered right."""
        return tuple(sorted(_by_class(self.strangers), key=lambda each: str(each.label)))

    @property
    def confusions(self) -> tuple[Confusion, ...]:
        """Which class was taken for which, the most often first."""
        pairs = Counter((each.label, each.found.label) for each in self.answers if not each.right)
        order = sorted(pairs.items(), key=lambda item: (-item[1], str(item[0])))
        return tuple(Confusion(label, answer, n) for (label, answer), n in order)

    @property
    def mistakes(self) -> tuple[Answer, ...]:
        """The wrong answers, the surest first."""
        wrong = (each for each in self.answers if not each.right)
        return tuple(sorted(wrong, key=lambda each: -each.found.probability))

    def __repr__(self) -> str:
        low, high = self.accuracy.interval
        return (
            f"<Assessment: {self.accuracy.count} of {self.accuracy.n} right, {self.accuracy.value:.3f} "
            f"[{low:.3f}, {high:.3f}], {len(self.strangers)} pictures of unknown classes>"
        )


def ask_for_all(
    base: Network,
    snapshot: Snapshot,
    images: Tensor,
    labels: Sequence[Label],
    sources: Sequence[str],
    *,
    inverted: bool = False,
) -> Assessment:
    """Ask for every picture.

    Args:
        base: the network that the classifier began with.
        snapshot: what is known.
        images: as the learner takes them.
        labels: what they show.
        sources: where they came from.
        inverted: whether light and dark were exchanged when they were read.
    """
    found: list[Explanation] = []
    for start in range(0, len(images), BATCH):
        found += explain(base, snapshot, images[start : start + BATCH], n_nearest=1)
    return assessed(snapshot, images, labels, sources, found, inverted=inverted)


def assessed(
    snapshot: Snapshot,
    images: Tensor,
    labels: Sequence[Label],
    sources: Sequence[str],
    found: Sequence[Explanation],
    *,
    inverted: bool = False,
) -> Assessment:
    """What answers add up to that are there already; arguments as of `ask_for_all`."""
    known = set(snapshot.knowledge.classes)
    shown = 255 - images if inverted and images.dtype == torch.uint8 else images
    answers = [
        Answer(source, label, answer, picture.numpy())
        for source, label, answer, picture in zip(sources, labels, found, shown, strict=True)
    ]
    return Assessment(
        tuple(each for each in answers if each.label in known),
        tuple(each for each in answers if each.label not in known),
        n_taught=_n_stored(snapshot, images),
        can_reject=snapshot.knowledge.calibration.threshold is not None,
    )


def _n_stored(snapshot: Snapshot, images: Tensor) -> int:
    stored = snapshot.knowledge.examples
    if stored is None:
        return 0
    known = {example.numpy().tobytes() for example in stored.images}
    return sum(image.numpy().tobytes() in known for image in images)


def _right(answers: Sequence[Answer]) -> Share:
    return Share(sum(each.right for each in answers), len(answers))


def _unknown(answers: Sequence[Answer]) -> Share:
    return Share(sum(each.found.unknown for each in answers), len(answers))


def _by_class(answers: Sequence[Answer]) -> list[ClassResult]:
    of_class: dict[Label, list[Answer]] = {}
    for each in answers:
        of_class.setdefault(each.label, []).append(each)
    return [ClassResult(label, _right(these), _unknown(these)) for label, these in of_class.items()]
