"""Fisher information: on paper, along the first task, along meta-training, and the figure."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fscl.analysis.fisher import FisherCourse, FisherObserver, FisherPoint, FisherReading, fisher_reading
from fscl.continual.learner import ContinualLearner
from fscl.continual.registry import make_learner
from fscl.data.pool import ClassPool, Examples, split_classes
from fscl.data.stream import Stream, Task
from fscl.evaluation.findings import load_finding
from fscl.experiment.record import RunRecord
from fscl.experiment.watch import TrainingCourse, observe_meta_training
from fscl.meta.train import meta_train
from fscl.nets.network import Network
from fscl.report.figures.fisher import fisher_rows, fisher_svg
from fscl.report.results import Results
from fscl.testing import noise_pool
from tests.analysis.small import base, learner_of
from tests.experiment.tiny import tiny


def points_of(learner: ContinualLearner, task: Task, *steps: int) -> tuple[FisherPoint, ...]:
    course = FisherObserver(FisherObserver.Settings(steps=steps), task).found(learner)
    return () if course is None else course.points


def test_the_fisher_trace_of_a_linear_softmax_is_what_it_is_on_paper():
    # With all weights 0, p = (½, ½), and ∂ log p(y) / ∂W = (e_y - p) xᵀ has squares ¼ x² in each of two rows:
    # for x = (3, 4) they sum to 2 · ¼ · 25 = 12.5, for x = (1, 0) to 0.5; the mean of both is 6.5. The loss is log 2.
    toy: Any = SimpleNamespace(
        to_input=lambda images: images.double(), features=lambda x, params, statistics: x @ params["w"].T
    )
    head = {"weight": torch.eye(2).double(), "bias": torch.zeros(2).double()}
    examples = Examples(torch.tensor([[3, 4], [1, 0]]), torch.tensor([0, 1]))
    reading = fisher_reading(toy, {"w": torch.zeros(2, 2).double()}, head, examples, None)
    assert reading is not None
    assert reading.trace == pytest.approx(6.5)
    assert reading.layers == {"w": pytest.approx(6.5)}
    assert reading.loss == pytest.approx(math.log(2))


def test_the_trace_is_the_sum_over_all_parameter_tensors():
    assert FisherReading(loss=0.5, layers={"a": 1.5, "b": 2.0}).trace == 3.5


@pytest.mark.parametrize("method", ["replay", "tsc", "si"])
def test_the_last_point_of_a_task_is_where_the_stream_s_own_first_task_ends(
    method: str, stream: Stream, small_pool: ClassPool
):
    task = stream.task(small_pool, 0)
    learner = learner_of(method)
    points = points_of(learner, task, 0, 2, 50)
    assert [point.step for point in points] == [0, 2, 6]  # 50 stands for the method's own 6
    untaught = base().params
    learner.learn_task(task.support)
    weights, head, statistics = learner.fast, learner.fast_head, learner.statistics
    assert points[-1].shots == fisher_reading(learner.network, weights, head, task.support, statistics)
    assert points[-1].test == fisher_reading(learner.network, weights, head, task.query, statistics)
    if method == "replay":
        assert points[0].shots.loss > points[-1].shots.loss
        fresh = learner_of(method, embedding_steps=0, steps=1, learning_rate=1e-12)
        fresh.learn_task(task.support)  # in effect no step at all
        start = fisher_reading(base(), untaught, fresh.fast_head, task.support, None)
        assert start is not None
        assert points[0].shots.trace == pytest.approx(start.trace, rel=1e-4)


def test_a_method_without_steps_has_no_course(stream: Stream, small_pool: ClassPool):
    assert points_of(make_learner("prototypes", base()), stream.task(small_pool, 0), 0, 2) == ()


def test_meta_training_that_was_killed_and_continued_was_observed_as_one_that_was_not(tmp_path: Path):
    splits = split_classes(noise_pool(24, 20), train=range(8), validation=range(8, 16), test=range(16, 24))
    config = tiny(observe={"fisher": {"episodes": 2}})
    plan = config.base.train.model_copy(update={"steps": 6})
    config = config.model_copy(update={"base": config.base.model_copy(update={"train": plan})})

    def train(folder: Path, stop_at: int | None = None) -> Path:
        record = RunRecord(folder)
        watch = observe_meta_training(config, splits, record)
        assert watch is not None

        def look(step: int, network: Network) -> None:
            watch(step, network)
            if step == stop_at:
                raise KeyboardInterrupt

        meta_train(
            config.base.learner,
            base().spec,
            splits.train,
            splits.validation,
            plan,
            seed=0,
            checkpoint=folder / "checkpoint.safetensors",
            on_validation=look,
        )
        return record.observed_path("fisher")

    whole = train(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "killed", stop_at=4)  # after it was looked at, before it was saved
    assert train(tmp_path / "killed").read_bytes() == whole.read_bytes()
    points = [FisherPoint.model_validate(point) for point in load_finding(whole, TrainingCourse).points]
    assert [point.step for point in points] == [0, 2, 4, 6]
    assert len({point.test.trace for point in points}) == 4
    record = RunRecord(tmp_path)
    assert observe_meta_training(tiny(), splits, record) is None  # nothing asked
    assert observe_meta_training(tiny(observe={"fisher": {"episodes": 0}}), splits, record) is None
    assert observe_meta_training(tiny(observe={"drift": {"after": [1]}}), splits, record) is None  # it looks at tasks


def test_rows_have_a_header_and_what_the_files_say(results: Results):
    rows = fisher_rows(results)
    tensors = len(results.training["fisher"][0]["shots"]["layers"])
    assert len(rows) == 1 + (2 + 3 + 3) * 2 * (1 + tensors)  # steps of meta-training, replay, tsc × images × tensors
    course = results.findings["fisher"]["replay"]
    assert isinstance(course, FisherCourse)
    whole = [row for row in rows if row[:5] == ("task", "replay", 6, "test", "all")]
    assert whole[0][5] == course.points[-1].test.trace


def test_the_figure_is_the_same_bytes_each_time_in_the_page_s_ink(results: Results):
    svg = fisher_svg(results)
    assert svg.startswith("<svg")
    assert svg == fisher_svg(results)
    assert "currentColor" in svg
    assert "#010203" not in svg
    assert "tsc" in svg


def test_gradients_that_are_all_zero_are_said_to_be_and_do_not_break_the_figure(results: Results):
    course = results.findings["fisher"]["tsc"]
    assert isinstance(course, FisherCourse)
    nothing = FisherReading(loss=0.0, layers=dict.fromkeys(course.points[0].shots.layers, 0.0))
    still = FisherCourse(points=(FisherPoint(step=0, shots=nothing, test=nothing),))
    svg = fisher_svg(replace(results, findings={"fisher": {"tsc": still}}, training={}))
    assert svg.count("0 at every step") == 5  # trace and loss, on shots and on test images, and the layers
