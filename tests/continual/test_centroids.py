"""CBCL: its two limits, centroids and votes worked out by hand, and the limit on centroids."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fscl.continual.methods.centroids import Centroids, median_distance, vote_shares
from fscl.continual.registry import make_learner
from fscl.nets.precomputed import precomputed_features
from fscl.testing import POOL, TASKS, small_base


def on_rows(width: int, **settings: Any) -> Centroids:
    """On features given by hand."""
    return Centroids(precomputed_features(width), Centroids.Settings.model_validate(settings), seed=0)


def column(*values: float) -> Tensor:
    return torch.tensor(values)[:, None]


@pytest.mark.parametrize(("distance", "method"), [(0, "neighbour"), ("infinite", "prototypes")])
def test_at_its_limits_it_answers_as_nearest_neighbour_and_as_class_means(distance: float | str, method: str):
    network = small_base()
    learners = make_learner("cbcl", network, settings={"distance": distance}), make_learner(method, network)
    for task in TASKS:
        for learner in learners:
            learner.learn_task(task.support)
    answers = [learner.predict(POOL.images).argmax(1) for learner in learners]
    assert torch.equal(*answers)


def test_an_infinite_distance_keeps_the_mean_of_each_class():
    learner, features = on_rows(2, distance="infinite"), torch.rand(8, 2)
    labels = torch.arange(2).repeat(4)
    learner.learn_features(features, labels)
    means = torch.stack([features[labels == label].mean(0) for label in range(2)])
    torch.testing.assert_close(learner.centroids, means)
    assert learner.counts.tolist() == [4, 4]


def test_three_points_on_a_line_with_a_distance_between_the_gaps_give_two_centroids():
    learner = on_rows(1, distance=1.5, unit="absolute")
    learner.learn_features(column(0.0, 1.0, 4.0), torch.tensor([0, 0, 0]))
    assert learner.centroids[:, 0].tolist() == [0.5, 4.0]
    assert learner.counts.tolist() == [2, 1]
    learner.learn_features(column(5.0, 9.0), torch.tensor([0, 1]))  # a class that returns goes on with its centroids
    assert learner.centroids[:, 0].tolist() == [0.5, 4.5, 9.0]
    assert learner.labels.tolist() == [0, 0, 1]
    assert learner.seen.tolist() == [4, 1]


def test_the_unit_is_the_median_distance_of_two_shots_of_a_class_in_the_first_task():
    features, labels = column(0.0, 2.0, 6.0, 100.0), torch.tensor([0, 0, 0, 1])
    assert median_distance(features, labels).item() == 4.0  # of 2, 4 and 6
    learner = on_rows(1, distance=0.75)
    learner.learn_features(features, labels)
    assert learner.centroids[:, 0].tolist() == [1.0, 6.0, 100.0]  # 6 is 5 from the mean of the others, and D is 3
    learner.learn_features(column(500.0, 501.0), torch.tensor([2, 2]))
    assert learner.unit.item() == 4.0
    assert median_distance(column(1.0), torch.tensor([0])).item() == 1.0


def test_votes_fall_with_place_and_distance():
    away = torch.tensor([[3.0, 1.0, 2.0]])
    assert vote_shares(away, away.argsort(1)).tolist() == [[1.0, 0.25, 0.0]]
    exact = torch.tensor([[4.0, 0.0, 0.0]])
    assert vote_shares(exact, exact.argsort(1))[0, :2].tolist() == [1.0, 1.0]  # no distance counts in full
    alone = torch.tensor([[7.0]])
    assert vote_shares(alone, alone.argsort(1)).tolist() == [[1.0]]


def test_the_votes_of_a_class_are_weighed_by_its_number_of_images():
    learner = on_rows(1, distance=0, unit="absolute", votes=3)
    learner.learn_features(column(1.0, 2.0, -3.0, 9.0), torch.tensor([0, 1, 1, 2]))
    scores = learner.scores(column(0.0))[0]
    span, weights = 8.0, torch.tensor([1.0, 0.5, 1.0]) / 2.5
    expected = torch.stack([weights[0] * 1.0, weights[1] * (7 / span / 2 + 6 / span / 3), torch.tensor(-9.0)])
    torch.testing.assert_close(scores, expected.to(scores))


@pytest.mark.parametrize("limit", [3, 2, 1])
def test_centroids_stay_within_their_limit_but_for_one_a_class(limit: int):
    learner = on_rows(1, distance=0.1, unit="absolute", limit=limit)
    learner.learn_features(column(0.0, 1.0), torch.tensor([0, 0]))
    learner.learn_features(column(10.0, 14.0), torch.tensor([1, 1]))
    assert len(learner.labels) == max(limit, 2)
    assert learner.counts.sum() == 4
    assert set(learner.labels.tolist()) == {0, 1}
    means = {
        label: float((learner.centroids[:, 0] * learner.counts)[learner.labels == label].sum()) for label in (0, 1)
    }
    assert means == pytest.approx({0: 1.0, 1: 24.0})  # merging moves no mean
