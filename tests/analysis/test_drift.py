"""Drift: closed forms on toys, the features that answer, and the figure."""

import pytest
import torch

from fscl.analysis.drift import Drift, DriftObserver, drift_of, principal_plane, scatter_ratio
from fscl.continual.learner import ContinualLearner
from fscl.continual.registry import make_learner
from fscl.data.augment import view
from fscl.data.pool import ClassPool
from fscl.data.stream import Stream
from fscl.report.figures.drift import drift_rows, drift_svg
from fscl.report.results import Results
from tests.analysis.small import base, learner_of, watched

AFTER = DriftObserver.Settings(after=(0, 1, 2))


def drift_along(learner: ContinualLearner, stream: Stream, pool: ClassPool) -> Drift | None:
    observer = DriftObserver(AFTER, stream.task(pool, 0))
    watched(learner, stream, pool, observer)
    return observer.found(learner)


def test_a_cloud_that_moves_as_a_whole_moves_by_its_distance_over_its_spread():
    cloud = torch.tensor([[2.0, 0, 0], [-2, 0, 0], [0, 2, 0], [0, -2, 0]])  # spread 2
    away = cloud + torch.tensor([0, 0, 10.0])
    drift = drift_of({1: cloud, 3: cloud, 7: away}, torch.tensor([0, 0, 1, 1]))
    assert drift is not None
    assert drift.after == (1, 3, 7)
    assert drift.moved == pytest.approx((0, 0, 5))
    assert drift.apart[0] == drift.apart[1] == pytest.approx(drift.apart[2])
    # one plane for all moments: an image that did not move keeps its point, and the motion out of the first plane is seen
    assert drift.points[0] == drift.points[1]
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(drift.points[0], drift.points[2], strict=True)]
    assert steps == [pytest.approx((5, 0), abs=1e-6)] * 4
    # variance: 200/3 along the motion, 24/12 along each of two axes of the cloud
    assert drift.explained == pytest.approx((800 / 3 + 24) / (800 / 3 + 48), rel=1e-5)


def test_points_that_are_all_one_have_no_drift_and_one_image_a_class_has_no_scatter():
    assert drift_of({1: torch.ones(4, 3)}, torch.tensor([0, 0, 1, 1])) is None
    drift = drift_of({1: torch.eye(3)}, torch.tensor([0, 1, 2]))
    assert drift is not None
    assert drift.apart == (None,)


def test_the_sign_of_a_component_is_fixed():
    line = torch.tensor([[0.0, 0.0], [-1, -3], [-2, -6]])
    assert principal_plane(line)[0][:, 0].tolist() == pytest.approx([10**0.5, 0, -(10**0.5)], abs=1e-6)


def test_scatter_is_between_classes_over_within():
    # class means 0 and 10, 5 from the middle; images 1 from their mean
    features = torch.tensor([[-1.0], [1], [9], [11]])
    assert scatter_ratio(features, torch.tensor([4, 4, 7, 7])) == pytest.approx(25)


def test_drift_is_that_of_the_features_that_answer(stream: Stream, small_pool: ClassPool):
    learner = learner_of("fsw", slow_rate=0.1, embedding_steps=6)
    drift = drift_along(learner, stream, small_pool)
    query = stream.task(small_pool, 0).query
    before, now = base().embed(query.images).double(), base().embed(query.images, learner.fast).double()
    spread = float((before - before.mean(0)).square().sum(1).mean().sqrt())
    assert drift is not None
    assert drift.moved[-1] == pytest.approx(float((now - before).norm(dim=1).mean()) / spread, rel=1e-5)
    assert drift.labels == tuple(query.labels.tolist())


def test_before_the_first_task_images_are_looked_at_in_all_views_with_the_statistics_of_its_shots(
    stream: Stream, small_pool: ClassPool
):
    task, learner = stream.task(small_pool, 0), learner_of("tsc", "batch", views=3)
    observer = DriftObserver(AFTER, task)
    observer.look(0, learner)
    statistics = base("batch").freeze_statistics(base("batch").to_input(task.support.images))
    views = [base("batch").embed(view(task.query.images, number), statistics=statistics) for number in range(3)]
    torch.testing.assert_close(observer.features[0], sum(views) / 3)
    assert learner.network.statistics is None  # the learner's own


@pytest.mark.parametrize(("method", "settings"), [("prototypes", {}), ("replay", {"embedding_steps": 0})])
def test_a_method_that_does_not_move_its_embedding_has_no_drift(
    method: str, settings: dict[str, object], stream: Stream, small_pool: ClassPool
):
    learner = make_learner(method, base(), settings=settings)
    assert drift_along(learner, stream, small_pool) is None


def test_rows_have_a_header_and_a_row_an_image_and_moment(results: Results):
    points = drift_rows(results)
    assert points[0][:3] == ("method", "tasks_learned", "image")
    assert len(points) == 1 + 2 * 2 * 6  # methods × moments × images
    drift = results.findings["drift"]["replay"]
    assert isinstance(drift, Drift)
    assert [row for row in points if row[:3] == ("replay", 3, 5)] == [
        ("replay", 3, 5, drift.labels[5], *drift.points[1][5], drift.moved[1], drift.apart[1])
    ]


def test_the_figure_is_the_same_bytes_each_time_in_the_page_s_ink(results: Results):
    svg = drift_svg(results)
    assert svg.startswith("<svg")
    assert svg == drift_svg(results)
    assert "currentColor" in svg
    assert "#010203" not in svg
    assert "tsc" in svg
