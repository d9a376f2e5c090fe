"""The single-head protocol: learn a stream task by task, and after each ask for every class seen so far.

The learner gets support sets only. Queries stay here.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fscl.continual.learner import ContinualLearner
from fscl.data.pool import ClassPool
from fscl.data.stream import Stream
from fscl.evaluation.asking import Asker, Prediction, ask
from fscl.evaluation.contamination import SeenBefore, seen_before
from fscl.evaluation.metrics import Matrix
from fscl.evaluation.probe import Probe
from fscl.nets.work import counted_work


@dataclass(frozen=True)
class StreamResult:
    """What one learner did on one stream.

    Attributes:
        top1, top5: accuracy matrices R[i, j]; top-5 counts as right when the class is among the five best scores.
        restricted: as top1, but with the scores of the task's own classes alone.
        confusion: after the last task, how many images of label i (row) were called j (column).
        diagnostics: for each task, what the learner says of how it went.
        learn_seconds, predict_seconds: for each task, to learn it, and to answer all queries after it; what was computed
            of a query before counts as it took then.
        probes: for each probe by name, the accuracy of each of its problems after so many tasks.
        probe_seconds: what probing took in all.
        before: for each task, the accuracy on it just before it was learned; None where it brings new classes.
        answers: after the last task, the answer to each query of each task.
        multiply_adds: for each task, to learn it (nets/work.py); None where nobody counted.
        stored_bytes: what the learner keeps after the last task, by kind.
    """

    top1: Matrix
    top5: Matrix
    restricted: Matrix
    confusion: Matrix
    diagnostics: list[dict[str, float]]
    learn_seconds: list[float]
    predict_seconds: list[float]
    probes: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    probe_seconds: float = 0.0
    before: list[float | None] = field(default_factory=list)
    answers: list[list[int]] = field(default_factory=list)
    multiply_adds: list[int | None] = field(default_factory=list)
    stored_bytes: dict[str, int] = field(default_factory=dict)

    def result(self) -> dict[str, Any]:
        """The part that depends on nothing but the configuration, as JSON."""
        return {
            "top1": _rows(self.top1),
            "top5": _rows(self.top5),
            "restricted": _rows(self.restricted),
            "confusion": [[int(count) for count in row] for row in self.confusion],
            "diagnostics": self.diagnostics,
            **({"probes": _named(self.probes)} if self.probes else {}),
            **({"before": self.before} if any(accuracy is not None for accuracy in self.before) else {}),
        }

    def cost(self) -> dict[str, Any]:
        """The part that depends on the machine, as JSON."""
        probing = {"probe_seconds": self.probe_seconds} if self.probes else {}
        return {
            "learn_seconds": self.learn_seconds,
            "predict_seconds": self.predict_seconds,
            "multiply_adds": self.multiply_adds,
            "stored_bytes": self.stored_bytes,
            **probing,
        }


def evaluate_stream(
    learner: ContinualLearner,
    stream: Stream,
    pool: ClassPool,
    *,
    probes: Mapping[str, Probe] | None = None,
    prediction: Prediction = "inductive",
    on_task: Callable[[int], None] | None = None,
    on_learned: Callable[[int, ContinualLearner], None] | None = None,
) -> StreamResult:
    """Learn every task of `stream` in turn; after each, score the queries of all tasks so far.

    A base that has seen the data before gives a `SeenBefore` warning.

    Args:
        probes: by name, what to probe the learner with along the way; see probe.py.
        prediction: whether test images are answered each alone, or together (asking.py).
        on_task: called with the number of tasks done.
        on_learned: called with the number of tasks learned, from 0 on, and the learner, which it must not change.
    """
    warning = seen_before(learner.starting_point(), pool.name)
    if warning is not None:
        warnings.warn(warning, SeenBefore, stacklevel=2)
    n_tasks = len(stream)
    top1, top5, restricted = (np.full((n_tasks, n_tasks), np.nan) for _ in range(3))
    n_labels = stream.spec.n_labels
    confusion = np.zeros((n_labels, n_labels))
    diagnostics, learn_seconds, predict_seconds = [], [], []
    seen: set[str] = set()
    before: list[float | None] = []
    answers: list[list[int]] = []
    multiply_adds: list[int | None] = []
    probed: dict[str, dict[int, list[float]]] = {name: {} for name in probes or {}}
    probe_seconds, asker = _probe(learner, probes or {}, 0, probed), Asker(learner, prediction)
    if on_learned is not None:
        on_learned(0, learner)
    for number in range(n_tasks):
        task = stream.task(pool, number)
        known = seen.issuperset(stream.tasks[number].classes)
        seen.update(stream.tasks[number].classes)
        before.append(
            top_k_accuracy(ask(learner, {0: task.query}, prediction, seed=number)[0], task.query.labels, 1)
            if known
            else None
        )
        begin = time.perf_counter()
        with counted_work() as work:
            learner.learn_task(task.support)
        learned = time.perf_counter()
        multiply_adds.append(work.multiply_adds)
        diagnostics.append(learner.diagnostics())
        so_far = [(stream.tasks[each].classes, stream.tasks[each].query) for each in range(number + 1)]
        queries = {images: stream.task(pool, each).query for each, images in enumerate(so_far)}  # each image once
        known_scores = asker.scores(queries, seed=number)
        for earlier, images in enumerate(so_far):
            query, scores = queries[images], known_scores[images]
            top1[number, earlier] = top_k_accuracy(scores, query.labels, 1)
            top5[number, earlier] = top_k_accuracy(scores, query.labels, 5)
            restricted[number, earlier] = restricted_accuracy(scores, query.labels)
            if number == n_tasks - 1:
                answer, once = scores.argmax(1), stream.first_asked(earlier)  # each image counts once
                np.add.at(confusion, (query.labels[once].numpy(), answer[once].numpy()), 1)
                answers.append(answer.tolist())
        learn_seconds.append(learned - begin)
        predict_seconds.append(asker.seconds)
        probe_seconds += _probe(learner, probes or {}, number + 1, probed)
        if on_learned is not None:
            on_learned(number + 1, learner)
        if on_task is not None:
            on_task(number + 1)
    return StreamResult(
        top1=top1,
        top5=top5,
        restricted=restricted,
        confusion=confusion,
        diagnostics=diagnostics,
        learn_seconds=learn_seconds,
        predict_seconds=predict_seconds,
        probes=probed,
        probe_seconds=probe_seconds,
        before=before,
        answers=answers,
        multiply_adds=multiply_adds,
        stored_bytes=learner.stored_bytes(),
    )


def _probe(
    learner: ContinualLearner, probes: Mapping[str, Probe], n_tasks: int, probed: dict[str, dict[int, list[float]]]
) -> float:
    """Probe the learner where its time has come, write the accuracies to `probed`, and say how long it took."""
    begin = time.perf_counter()
    for name, probe in probes.items():
        if n_tasks in probe.spec.after:
            probed[name][n_tasks] = probe.of(learner)
    return time.perf_counter() - begin


def top_k_accuracy(scores: Tensor, labels: Tensor, k: int) -> float:
    """Share of rows whose label is among the `k` best scores; with fewer than `k` classes all of them count."""
    best = scores.topk(min(k, scores.shape[1]), dim=1).indices
    return float((best == labels[:, None]).any(1).double().mean())


def restricted_accuracy(scores: Tensor, labels: Tensor) -> float:
    """Accuracy when only the classes that occur in `labels` may be answered."""
    own = torch.unique(labels)
    return float((own[scores[:, own].argmax(1)] == labels).double().mean())


def _named(probes: dict[str, dict[int, list[float]]]) -> dict[str, dict[str, list[float]]]:
    """With keys as JSON has them."""
    return {name: {str(n_tasks): shares for n_tasks, shares in found.items()} for name, found in probes.items()}


def _rows(matrix: Matrix) -> list[list[float]]:
    """The measured part: row t has the entries up to the diagonal."""
    return [[float(value) for value in row[: number + 1]] for number, row in enumerate(matrix)]


def matrix_from_rows(rows: list[list[float]]) -> Matrix:
    """The matrix that `_rows` wrote."""
    matrix = np.full((len(rows), len(rows)), np.nan)
    for number, row in enumerate(rows):
        matrix[number, : len(row)] = row
    return matrix
