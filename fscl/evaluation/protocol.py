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
from fscl.data.pool import ClassPool, Examples
from fscl.data.stream import Stream
from fscl.evaluation.asking import Asker, Prediction, ask
from fscl.evaluation.contamination import SeenBefore, seen_before
from fscl.evaluation.course import Course
from fscl.evaluation.metrics import Matrix
from fscl.evaluation.probe import Probe
from fscl.nets.work import counted_work

Asked = tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]
"""Classes, and the positions of their images that are asked for."""


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
    begun: Course | None = None,
    on_task: Callable[[Course], None] | None = None,
    on_learned: Callable[[int, ContinualLearner], None] | None = None,
) -> StreamResult:
    """Learn every task of `stream` in turn; after each, score the queries of all tasks so far.

    A base that has seen the data before gives a `SeenBefore` warning.

    Examples:
        >>> import fscl
        >>> pool = fscl.load_glyphs().test
        >>> stream = fscl.sample_stream(pool, fscl.StreamSpec(n_tasks=2), fscl.generator(0, "my stream"))
        >>> learner = fscl.make_learner("prototypes", fscl.load_base("glyphs-protonet-conv4"))
        >>> result = evaluate_stream(learner, stream, pool)
        >>> result.top1.shape, bool(fscl.final_accuracy(result.top1) > 0.9)
        ((2, 2), True)

    Args:
        learner: has learned nothing yet, or as much as `begun` says.
        stream: what it learns.
        pool: where the stream was drawn from.
        probes: by name, what to probe the learner with along the way; see probe.py.
        prediction: whether test images are answered each alone, or together (asking.py).
        begun: what was measured by a learner that is at the same point as this one (course.py); the rest follows.
        on_task: called after each task with what was measured so far.
        on_learned: called with the number of tasks learned, from 0 on, and the learner, which it must not change.
    """
    warning = seen_before(learner.starting_point(), pool.name)
    if warning is not None:
        warnings.warn(warning, SeenBefore, stacklevel=2)
    course, asker = begun or Course(), Asker(learner, prediction)
    probes = probes or {}
    if course.n_done == 0:
        _probe(learner, probes, course)
        if on_learned is not None:
            on_learned(0, learner)
    scores: dict[Asked, Tensor] = {}
    for number in range(course.n_done, len(stream)):
        scores = _learn_and_ask(learner, asker, stream, pool, course, prediction)
        _probe(learner, probes, course)
        if on_learned is not None:
            on_learned(number + 1, learner)
        if on_task is not None:
            on_task(course)
    if not scores:  # all was done before
        scores = asker.scores(_queries(stream, pool, len(stream) - 1), seed=len(stream) - 1)
    confusion, answers = _mistaken(stream, pool, scores)
    return StreamResult(
        top1=matrix_from_rows(course.top1),
        top5=matrix_from_rows(course.top5),
        restricted=matrix_from_rows(course.restricted),
        confusion=confusion,
        diagnostics=course.diagnostics,
        learn_seconds=course.learn_seconds,
        predict_seconds=course.predict_seconds,
        probes=course.probes,
        probe_seconds=course.probe_seconds,
        before=course.before,
        answers=answers,
        multiply_adds=course.multiply_adds,
        stored_bytes=learner.stored_bytes(),
    )


def _learn_and_ask(
    learner: ContinualLearner, asker: Asker, stream: Stream, pool: ClassPool, course: Course, prediction: Prediction
) -> dict[Asked, Tensor]:
    """Learn the next task, ask for all tasks so far, and note both; the scores of the queries."""
    number = course.n_done
    task = stream.task(pool, number)
    seen = {name for earlier in stream.tasks[:number] for name in earlier.classes}
    if seen.issuperset(stream.tasks[number].classes):
        known = ask(learner, {0: task.query}, prediction, seed=number)[0]
        course.before.append(top_k_accuracy(known, task.query.labels, 1))
    else:
        course.before.append(None)
    begin = time.perf_counter()
    with counted_work() as work:
        learner.learn_task(task.support)
    course.learn_seconds.append(time.perf_counter() - begin)
    course.multiply_adds.append(work.multiply_adds)
    course.diagnostics.append(learner.diagnostics())
    queries = _queries(stream, pool, number)
    scores = asker.scores(queries, seed=number)
    course.predict_seconds.append(asker.seconds)
    asked = [_asked(stream, each) for each in range(number + 1)]
    course.top1.append([top_k_accuracy(scores[key], queries[key].labels, 1) for key in asked])
    course.top5.append([top_k_accuracy(scores[key], queries[key].labels, 5) for key in asked])
    course.restricted.append([restricted_accuracy(scores[key], queries[key].labels) for key in asked])
    return scores


def _asked(stream: Stream, number: int) -> Asked:
    """What names the queries of a task: when classes return, so do their queries, and are asked once."""
    return stream.tasks[number].classes, stream.tasks[number].query


def _queries(stream: Stream, pool: ClassPool, number: int) -> dict[Asked, Examples]:
    """The queries of all tasks up to one, each once."""
    return {_asked(stream, each): stream.task(pool, each).query for each in range(number + 1)}


def _mistaken(stream: Stream, pool: ClassPool, scores: Mapping[Asked, Tensor]) -> tuple[Matrix, list[list[int]]]:
    """After the last task: how often each label was called which, and the answer to each query of each task."""
    confusion = np.zeros((stream.spec.n_labels, stream.spec.n_labels))
    answers = []
    for number in range(len(stream)):
        labels = stream.task(pool, number).query.labels
        answer, once = scores[_asked(stream, number)].argmax(1), stream.first_asked(number)  # each image counts once
        np.add.at(confusion, (labels[once].numpy(), answer[once].numpy()), 1)
        answers.append(answer.tolist())
    return confusion, answers


def _probe(learner: ContinualLearner, probes: Mapping[str, Probe], course: Course) -> None:
    """Probe the learner where its time has come, and note the accuracies and how long it took."""
    begin = time.perf_counter()
    for name, probe in probes.items():
        found = course.probes.setdefault(name, {})
        if course.n_done in probe.spec.after:
            found[course.n_done] = probe.of(learner)
    course.probe_seconds += time.perf_counter() - begin


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
