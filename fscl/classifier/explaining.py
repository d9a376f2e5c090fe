"""Answers for people: the classes that a picture may be, how sure that is, and which stored examples it is most like."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fscl.classifier.judging import fair_features, features_of, nearest_mean, scores_of
from fscl.classifier.knowledge import Knowledge
from fscl.classifier.labels import Label
from fscl.continual.learner import ContinualLearner
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
        distance: to the nearest class mean, in the embedding that the threshold is of (judging.py).
        threshold: beyond which a picture is unknown; None where the stored examples cannot tell.
    """

    ranked: tuple[tuple[Label, float], ...]
    nearest: tuple[Neighbour, ...]
    distance: float
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
        return self.threshold is not None and not self.distance <= self.threshold


def probabilities(scores: Tensor, temperature: float) -> Tensor:
    """Calibrated probabilities (n, n_classes), in double precision."""
    return torch.softmax(scores.double() / temperature, 1)


def far_from_all(learner: ContinualLearner, knowledge: Knowledge, fair: Tensor) -> Tensor:
    """Whether each of the pictures is unknown, by its fair features, or an error where the stored examples cannot tell."""
    threshold, shots = knowledge.judgement.threshold, knowledge.shots
    if threshold is None or shots is None:
        raise MisuseError(
            "no stored class has two examples, so there is nothing to set a threshold by; teach a second example of a "
            "class, or predict without reject."
        )
    return ~(nearest_mean(fair, knowledge.fair, shots.labels, learner.n_classes) <= threshold)


def explain(
    base: Network, learner: ContinualLearner, knowledge: Knowledge, images: Tensor, *, n_nearest: int = 3
) -> list[Explanation]:
    """Explain the answer to each image."""
    features = features_of(learner, images)
    chances = probabilities(scores_of(learner, features), knowledge.judgement.temperature)
    shots = knowledge.shots
    if shots is None:
        distances, means = torch.zeros(len(features), 0), torch.full((len(features),), torch.inf)
    else:
        distances = torch.cdist(features, knowledge.features, compute_mode="donot_use_mm_for_euclid_dist")
        fair = fair_features(base, learner, images, features)
        means = nearest_mean(fair, knowledge.fair, shots.labels, learner.n_classes)
    found = []
    for row, chance, mean in zip(distances, chances, means.tolist(), strict=True):
        order = torch.argsort(chance, descending=True, stable=True).tolist()
        nearest = torch.argsort(row, stable=True)[:n_nearest].tolist()
        found.append(
            Explanation(
                ranked=tuple((knowledge.classes[i], float(chance[i])) for i in order),
                nearest=tuple(_neighbour(knowledge, i, float(row[i])) for i in nearest),
                distance=mean,
                threshold=knowledge.judgement.threshold,
            )
        )
    return found


def _neighbour(knowledge: Knowledge, position: int, distance: float) -> Neighbour:
    if knowledge.shots is None:
        raise MisuseError("no example is stored.")
    label = knowledge.classes[int(knowledge.shots.labels[position])]
    return Neighbour(label, distance, knowledge.sources[position], knowledge.shots.images[position].numpy().copy())
