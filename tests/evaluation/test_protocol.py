"""The protocol against a learner whose every answer is written down."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fscl.continual.learner import ContinualLearner, LearnerState
from fscl.data.pool import ClassPool, Examples
from fscl.data.stream import Stream, StreamSpec, sample_stream
from fscl.evaluation.protocol import evaluate_stream, matrix_from_rows
from fscl.nets.network import Network
from fscl.nets.trained import NetworkSpec, init_network
from fscl.rng import generator

N_QUERY = 2


class Scripted(ContinualLearner):
    """Knows the label of every image by heart, but calls the labels of `mistaken` by the label given there.

    `mistaken` says, for each number of tasks learned, which label is answered instead of which.
    """

    def __init__(self, labels: dict[bytes, int], mistaken: dict[int, dict[int, int]]) -> None:
        self.labels, self.mistaken = labels, mistaken
        self.learned: list[Examples] = []
        self.events: list[str] = []

    @property
    def n_classes(self) -> int:
        return 1 + max((int(task.labels.max()) for task in self.learned), default=-1)

    def learn_task(self, support: Examples) -> None:
        self.learned.append(support)
        self.events.append("learn")

    def features(self, images: Tensor) -> Tensor:
        return torch.tensor([self.labels[image.numpy().tobytes()] for image in images])

    def scores(self, features: Tensor) -> Tensor:
        self.events.append("predict")
        right = features.tolist()
        wrong = self.mistaken.get(len(self.learned), {})
        scores = torch.zeros(len(right), self.n_classes)
        for row, label in enumerate(right):
            scores[row, label] += 0.5  # the right one is second best where another is answered
            scores[row, wrong.get(label, label)] += 0.6
        return scores

    def starting_point(self) -> Network:
        return init_network(NetworkSpec(width=4, image_size=16), generator(len(self.learned), "weights"))

    def diagnostics(self) -> dict[str, float]:
        return {"tasks": float(len(self.learned))}

    def stored_bytes(self) -> dict[str, int]:
        return {"weights": 10 * len(self.learned)}

    def state(self) -> LearnerState:
        raise NotImplementedError

    def restore(self, state: LearnerState) -> None:
        raise NotImplementedError


def stream_of(pool: ClassPool, **spec: Any) -> Stream:
    return sample_stream(
        pool, StreamSpec(**{"n_tasks": 3, "n_way": 2, "n_shot": 3, "n_query": N_QUERY, **spec}), generator(0, "stream")
    )


def scripted(stream: Stream, pool: ClassPool, mistaken: dict[int, dict[int, int]]) -> Scripted:
    labels: dict[bytes, int] = {}
    for number in range(len(stream)):
        query = stream.task(pool, number).query
        labels |= {image.numpy().tobytes(): int(label) for image, label in zip(query.images, query.labels, strict=True)}
    return Scripted(labels, mistaken)


def test_every_query_of_every_task_so_far_is_asked_among_all_classes(small_pool: ClassPool):
    stream = stream_of(small_pool)
    # after two tasks label 0 is called 1 (of its own task); after three label 2 is called 5 (of another)
    result = evaluate_stream(scripted(stream, small_pool, {2: {0: 1}, 3: {2: 5}}), stream, small_pool)
    nan = np.nan
    assert result.top1 == pytest.approx(np.array([[1, nan, nan], [0.5, 1, nan], [1, 0.5, 1]]), nan_ok=True)
    assert result.restricted == pytest.approx(np.array([[1, nan, nan], [0.5, 1, nan], [1, 1, 1]]), nan_ok=True)
    assert result.top5 == pytest.approx(np.array([[1, nan, nan], [1, 1, nan], [1, 1, 1]]), nan_ok=True)
    expected = np.diag([N_QUERY] * 6).astype(float)
    expected[2, 2], expected[2, 5] = 0, N_QUERY  # rows are right, columns are answered
    assert result.confusion == pytest.approx(expected)
    assert result.answers == [[0, 0, 1, 1], [5, 5, 3, 3], [4, 4, 5, 5]]
    assert result.diagnostics == [{"tasks": 1.0}, {"tasks": 2.0}, {"tasks": 3.0}]
    assert result.stored_bytes == {"weights": 30}


def test_the_learner_gets_the_shots_of_each_task_once_and_no_query(small_pool: ClassPool):
    stream = stream_of(small_pool)
    learner = scripted(stream, small_pool, {})
    evaluate_stream(learner, stream, small_pool)
    assert len(learner.learned) == 3
    for number, given in enumerate(learner.learned):
        task = stream.task(small_pool, number)
        assert torch.equal(given.images, task.support.images)
        assert torch.equal(given.labels, task.support.labels)
        assert not any(torch.equal(shot, query) for shot in given.images for query in task.query.images)


def test_observers_see_the_learner_before_the_first_task_and_after_each(small_pool: ClassPool):
    stream = stream_of(small_pool)
    learner, seen, told = scripted(stream, small_pool, {}), [], []
    evaluate_stream(
        learner,
        stream,
        small_pool,
        on_task=lambda course: told.append(course.n_done),
        on_learned=lambda n_tasks, observed: seen.append((n_tasks, observed is learner, len(learner.learned))),
    )
    assert seen == [(0, True, 0), (1, True, 1), (2, True, 2), (3, True, 3)]
    assert told == [1, 2, 3]


def test_classes_that_return_are_asked_for_before_they_are_learned_again_and_counted_once(small_pool: ClassPool):
    stream = stream_of(small_pool, setting="new_instance", n_tasks=2)
    learner = scripted(stream, small_pool, {1: {0: 1}})
    result = evaluate_stream(learner, stream, small_pool)
    assert result.before == [None, 0.5]  # with what one task taught
    assert learner.events == ["learn", "predict", "predict", "learn", "predict"]  # the same images are asked once
    assert result.confusion == pytest.approx(np.diag([N_QUERY, N_QUERY]).astype(float))
    assert result.result()["before"] == [None, 0.5]
    new = stream_of(small_pool)
    assert "before" not in evaluate_stream(scripted(new, small_pool, {}), new, small_pool).result()


def test_the_result_is_json_that_gives_the_matrix_back(small_pool: ClassPool):
    stream = stream_of(small_pool)
    result = evaluate_stream(scripted(stream, small_pool, {2: {0: 1}}), stream, small_pool)
    written = json.loads(json.dumps(result.result()))
    assert written["top1"] == [[1.0], [0.5, 1.0], [1.0, 1.0, 1.0]]
    assert matrix_from_rows(written["top1"]) == pytest.approx(result.top1, nan_ok=True)
    cost = json.loads(json.dumps(result.cost()))
    assert {len(cost[key]) for key in ("learn_seconds", "predict_seconds", "multiply_adds")} == {3}
    assert not written.keys() & cost.keys()
