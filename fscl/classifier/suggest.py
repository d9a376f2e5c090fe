"""Which pictures to label next: those that the classifier is unsure of, and that are unlike one another.

Margin sampling with greedy k-centre: the first is the least sure (probability of its likeliest class minus that of the
next); each further one has the largest product of its unsureness and its distance to the nearest one chosen so far.
Uncertainty alone would choose ten pictures of one thing; diversity alone, what is known well. T. Scheffer et al., "Active
hidden Markov models for information extraction", 2001; O. Sener and S. Savarese, "Active learning for convolutional neural
networks", 2018.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fscl.classifier.explain import probabilities
from fscl.classifier.labels import Label
from fscl.classifier.teacher import Snapshot
from fscl.errors import MisuseError


@dataclass(frozen=True)
class Suggestion:
    """A picture worth a label.

    Attributes:
        source: where it came from; "" for an array.
        position: in what was given.
        ranked: the likeliest two classes with their probabilities; one, where no more are known.
        distance: to the nearest picture that was suggested before it; None for the first.
    """

    source: str
    position: int
    ranked: tuple[tuple[Label, float], ...]
    distance: float | None

    @property
    def reason(self) -> str:
        """Why, for people."""
        likely = " or ".join(f"{label} ({100 * chance:.0f} %)" for label, chance in self.ranked)
        return f"{likely}; " + ("the least sure of all" if self.distance is None else "unlike those before")


def suggest(snapshot: Snapshot, images: Tensor, sources: tuple[str, ...], *, n: int) -> list[Suggestion]:
    """The `n` pictures to label next, the most wanted first.

    Args:
        snapshot: what is known.
        images: without labels, as the learner takes them.
        sources: where they came from.
        n: how many at most.
    """
    if n < 1:
        raise MisuseError(f"n is {n}; at least 1 picture can be suggested.")
    if len(images) == 0:
        return []
    knowledge = snapshot.knowledge
    features = snapshot.learner.features(images)
    chances = probabilities(snapshot.learner.scores(features), knowledge.calibration.temperature)
    best = chances.topk(min(2, chances.shape[1]), 1)
    unsure = 1 - (best.values[:, 0] - (best.values[:, 1] if chances.shape[1] > 1 else 0))
    chosen, distances = chosen_positions(features.double(), unsure, n)
    found = []
    for position, distance in zip(chosen, distances, strict=True):
        ranked = tuple(
            (knowledge.classes[number], chance)
            for number, chance in zip(best.indices[position].tolist(), best.values[position].tolist(), strict=True)
        )
        found.append(Suggestion(sources[position], position, ranked, distance))
    return found


def chosen_positions(features: Tensor, unsure: Tensor, n: int) -> tuple[list[int], list[float | None]]:
    """Positions of the chosen, in order, and the distance of each to the nearest chosen before."""
    chosen = [int(unsure.argmax())]
    distances: list[float | None] = [None]
    nearest = (features - features[chosen[0]]).norm(dim=1)
    while len(chosen) < min(n, len(features)):
        worth = unsure * nearest
        worth[chosen] = -1.0
        following = int(worth.argmax())
        chosen.append(following)
        distances.append(float(nearest[following]))
        nearest = torch.minimum(nearest, (features - features[following]).norm(dim=1))
    return chosen, distances
