"""Answers for people: the classes that a picture may be, how sure that is, and which stored examples it is most like."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fscl.classifier.calibrate import base_features
from fscl.classifier.knowledge import Knowledge
from fscl.classifier.labels import Label
from fscl.classifier.teacher import Snapshot
from fscl.classifier.unknown import unknown_score
from fscl.errors import MisuseError
from fscl.nets.network import Network


@dataclass(frozen=True)
class Neighbour:
    """A stored example, how far it is in the learner's features, and where it came from ("" for an array)."""

    label: Label
    distance: float
    source: str
    example: NDArray[np.generic] = field(repr=False)


@dataclass(frozen=True)
class Explanation:
    """An answer with its reasons.

    Attributes:
        ranked: every class with its calibrated probability, the likeliest first.
        nearest: the stored examples that the picture is most like, the nearest first.
        unknown_score: how much the picture looks like none of the classes (unknown.py).
        threshold: above which a picture is unknown; None where the stored examples cannot tell.
    """

    ranked: tuple[tuple[Label, float], ...]
    nearest: tuple[Neighbour, ...]
    unknown_score: float
    threshold: float | None

    @property
    def label(self) -> Label:
        """The likeliest class."""
        return self.ranked[0][0]

    @property
    def probability(self) -> float:
        """That of the likeliest class."""
        return self.ranked[0][1]

    @property
    def unknown(self) -> bool:
        """Whether the picture is too far from every class to be one of them."""
        return self.threshold is not None and not self.unknown_score <= self.threshold


def probabilities(scores: Tensor, temperature: float) -> Tensor:
    """Calibrated probabilities (n, n_classes), in double precision."""
    return torch.softmax(scores.double() / temperature, 1)


def far_from_all(base: Network, snapshot: Snapshot, images: Tensor, features: Tensor) -> Tensor:
    """Whether each of the images is unknown, or an error where the stored examples cannot tell.

    Args:
        base: the network that the classifier began with.
        snapshot: what is known.
        images: those that are asked about.
        features: of the images, by the snapshot's learner.
    """
    knowledge = snapshot.knowledge
    if knowledge.calibration.threshold is None:
        raise MisuseError(
            "too few examples are stored to leave some out, so there is nothing to set a threshold by; teach more examples "
            "of a class, or predict without reject."
        )
    scores = snapshot.learner.scores(features)
    return ~(_unknown_scores(base, snapshot, images, features, scores) <= knowledge.calibration.threshold)


def explain(base: Network, snapshot: Snapshot, images: Tensor, *, n_nearest: int = 3) -> list[Explanation]:
    """Explain the answer to each image."""
    knowledge, learner = snapshot.knowledge, snapshot.learner
    features = learner.features(images)
    scores = learner.scores(features)
    chances = probabilities(scores, knowledge.calibration.temperature)
    if knowledge.examples is None:
        to_examples = torch.zeros(len(features), 0)
    else:
        to_examples = torch.cdist(features, knowledge.features, compute_mode="donot_use_mm_for_euclid_dist")
    answers = []
    strange = _unknown_scores(base, snapshot, images, features, scores).tolist()
    for row, chance, unknown in zip(to_examples, chances, strange, strict=True):
        order = torch.argsort(chance, descending=True, stable=True).tolist()
        nearest = torch.argsort(row, stable=True)[:n_nearest].tolist()
        answers.append(
            Explanation(
                ranked=tuple((knowledge.classes[i], float(chance[i])) for i in order),
                nearest=tuple(_neighbour(knowledge, i, float(row[i])) for i in nearest),
                unknown_score=unknown,
                threshold=knowledge.calibration.threshold,
            )
        )
    return answers


def _unknown_scores(base: Network, snapshot: Snapshot, images: Tensor, features: Tensor, scores: Tensor) -> Tensor:
    """How much each image looks like none of the classes."""
    knowledge = snapshot.knowledge
    if not knowledge.tells_unknown:
        return torch.full((len(features),), torch.inf)
    in_base = knowledge.calibration.unknown_in_base
    own = base_features(base, snapshot.learner, images, features) if in_base else features
    return unknown_score(knowledge.unknown, own, scores)


def _neighbour(knowledge: Knowledge, position: int, distance: float) -> Neighbour:
    if knowledge.examples is None:
        raise MisuseError("no example is stored.")
    label = knowledge.classes[int(knowledge.examples.labels[position])]
    return Neighbour(label, distance, knowledge.sources[position], knowledge.examples.images[position].numpy().copy())
