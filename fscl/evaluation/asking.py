"""How test images are asked: each alone, or, under its name only, together.

*Inductive*: every image is answered alone, as in use. Everything here is, unless a heading says otherwise.

*Transductive*: BatchNorm normalises test images by statistics of the batch that they are asked in, as some published code
does, so that they influence each other. Accuracy then depends on how batches are put together, and so there are two ways:
batches mixed over all classes, and batches of one class each. Only a network that has BatchNorm differs at all.
"""

import math
import time
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from fscl.continual.learner import ContinualLearner
from fscl.data.pool import Examples
from fscl.rng import generator

Prediction = Literal["inductive", "transductive-mixed", "transductive-sorted"]
TOGETHER = 75  # images in a mixed batch, or a few more or fewer: the queries of a task of five classes
IN_WORDS: dict[Prediction, str] = {
    "inductive": "inductive",
    "transductive-mixed": "TRANSDUCTIVE (test images normalised together, in batches mixed over classes)",
    "transductive-sorted": "TRANSDUCTIVE (test images normalised together, in batches of one class each)",
}


class Asker:
    """Asks a learner the same queries again and again, as it learns; one that stands still sees each image once.

    Attributes:
        seconds: what the last answers took, counting features that were computed before as when they were.
    """

    def __init__(self, learner: ContinualLearner, how: Prediction) -> None:
        self._learner, self._how = learner, how
        self._known: dict[Any, tuple[Tensor, float]] = {}
        self.seconds = 0.0

    def scores(self, queries: Mapping[Any, Examples], *, seed: int) -> dict[Any, Tensor]:
        """As `ask`."""
        begin = time.perf_counter()
        if self._how != "inductive" or self._learner.moves_embedding:
            scores = ask(self._learner, queries, self._how, seed=seed)
            self.seconds = time.perf_counter() - begin
            return scores
        self._learner.check_can_predict()
        scores, before = {}, 0.0
        for key, query in queries.items():
            if key in self._known:
                before += self._known[key][1]
            else:
                start = time.perf_counter()
                features = self._learner.features(query.images)
                self._known[key] = features, time.perf_counter() - start
            scores[key] = self._learner.scores(self._known[key][0]).cpu()
        self.seconds = before + time.perf_counter() - begin
        return scores


def ask(learner: ContinualLearner, queries: Mapping[Any, Examples], how: Prediction, *, seed: int) -> dict[Any, Tensor]:
    """Scores of queries by name, on the CPU.

    Args:
        seed: of the order in which mixed batches are drawn.
    """
    if how == "inductive":
        return {key: learner.predict(query.images).cpu() for key, query in queries.items()}
    images, labels = (torch.cat([getattr(query, part) for query in queries.values()]) for part in ("images", "labels"))
    batches = _mixed(len(labels), seed) if how == "transductive-mixed" else _sorted(labels)
    order, answers = torch.cat(batches), [learner.predict_together(images[batch]).cpu() for batch in batches]
    scores = torch.cat(answers)[torch.argsort(order)]
    return dict(zip(queries, scores.split([len(query) for query in queries.values()]), strict=True))


def _mixed(n: int, seed: int) -> list[Tensor]:
    """Positions in batches of equal size, drawn at random; so no batch is left with a single image."""
    order = torch.randperm(n, generator=generator(seed, "asked-together"))
    return list(order.tensor_split(math.ceil(n / TOGETHER)))


def _sorted(labels: Tensor) -> list[Tensor]:
    """Positions in batches, each of one class."""
    return [torch.where(labels == label)[0] for label in torch.unique(labels)]
