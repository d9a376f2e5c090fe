"""Pictures that are unknown or uncertain, grouped by likeness, the most useful first.

Two pictures are alike as far as the base's features of them are: those do not change with what is taught. What is usual for
two pictures of one class is known from the stored examples; a group is pictures that are no farther from one another on
average (average linkage).
"""

import math
import threading
from collections.abc import Sequence
from typing import Any

import torch
from sklearn.cluster import AgglomerativeClustering
from torch import Tensor

from fscl.classifier.explain import Explanation
from fscl.classifier.knowledge import Knowledge
from fscl.serve.answers import is_uncertain
from fscl.serve.present import Present
from fscl.serve.tray import Kept

LOOSER = 1.1  # than is usual inside a class: what is new is known less well
LEAST_EXAMPLES = 2
NOT_ASKED = Explanation(
    ranked=(), nearest=(), unknown_score=math.inf, threshold=0.0
)  # where no class is known: unknown


class Likeness:
    """The base's features of pictures in the tray, each computed once."""

    def __init__(self) -> None:
        self._features: dict[str, Tensor] = {}
        self._lock = threading.Lock()

    def features(self, present: Present, keys: Sequence[str], images: Tensor) -> Tensor:
        """(n, d), a row for each picture."""
        with self._lock:
            new = [position for position, key in enumerate(keys) if key not in self._features]
            if new:
                base = present.model.network
                blind = base.needs_statistics and base.statistics is None
                rows = present.snapshot.learner.features(images[new]) if blind else base.embed(images[new])
                self._features |= {keys[position]: row for position, row in zip(new, rows, strict=True)}
            found = torch.stack([self._features[key] for key in keys])
            self._features = {key: self._features[key] for key in keys}  # what left the inbox is forgotten
            return found


def grouped(
    present: Present, kept: Sequence[Kept], found: Sequence[Explanation], features: Tensor
) -> list[dict[str, Any]]:
    """The groups.

    Args:
        present: the state that answered.
        kept: the pictures.
        found: the answer to each.
        features: of each, by the base.
    """
    open_ones = [position for position, each in enumerate(found) if each.unknown or is_uncertain(each)]
    settled = [position for position in range(len(found)) if position not in set(open_ones)]
    groups = [[open_ones[place] for place in group] for group in alike(features[open_ones], present.knowledge)]
    worth = [_worth(each) for each in found]
    for group in groups:
        group.sort(key=lambda position: -worth[position])
    groups.sort(key=lambda group: -sum(worth[position] for position in group))
    listed = [_group(number, group, kept, found) for number, group in enumerate(groups, start=1)]
    if settled:
        listed.append({**_group(len(groups) + 1, settled, kept, found), "name": "known meanwhile", "settled": True})
    return listed


def alike(features: Tensor, knowledge: Knowledge) -> list[list[int]]:
    """Positions of rows that belong together."""
    if len(features) < LEAST_EXAMPLES:
        return [[position] for position in range(len(features))]
    rows = features.double()
    usual = usual_distance(rows, knowledge)
    clustering = AgglomerativeClustering(n_clusters=None, distance_threshold=LOOSER * usual, linkage="average")
    members: dict[int, list[int]] = {}
    for position, number in enumerate(clustering.fit_predict(rows.numpy()).tolist()):
        members.setdefault(number, []).append(position)
    return list(members.values())


def usual_distance(rows: Tensor, knowledge: Knowledge) -> float:
    """Of two pictures of one class: the median over stored examples; where none has company, 0.7 of that over all rows."""
    if knowledge.examples is not None and len(knowledge.base_features):
        stored, labels = knowledge.base_features.double(), knowledge.examples.labels
        same = torch.triu(labels[:, None] == labels, 1)
        if bool(same.any()) and stored.shape[1] == rows.shape[1]:
            return max(1e-9, float(torch.cdist(stored, stored)[same].median()))
    distances = torch.cdist(rows, rows)[torch.ones(len(rows), len(rows)).triu(1).bool()]
    return max(1e-9, 0.7 * float(distances.median()))


def _worth(found: Explanation) -> float:
    second = found.ranked[1][1] if len(found.ranked) > 1 else 0.0
    return 1.0 if found.unknown else 1.0 - (found.probability - second)


def _group(number: int, positions: Sequence[int], kept: Sequence[Kept], found: Sequence[Explanation]) -> dict[str, Any]:
    labels = [found[position].label for position in positions if not found[position].unknown]
    return {
        "name": f"group {number}",
        "guess": max(labels, key=labels.count) if labels else None,
        "unknown": any(found[position].unknown for position in positions),
        "settled": False,
        "pictures": [_picture(kept[position], found[position]) for position in positions],
    }


def _picture(kept: Kept, found: Explanation) -> dict[str, Any]:
    return {
        "id": kept.id,
        "name": kept.name,
        "url": f"/api/v1/pictures/{kept.id}",
        "label": None if found.unknown else found.label,
        "probability": found.probability if found.ranked else 0.0,
        "unknown": found.unknown,
        "uncertain": is_uncertain(found),
        "ranked": [{"label": label, "probability": chance} for label, chance in found.ranked[:2]],
    }
