"""FeCAM: distances against the direct inverse, its limits, and classes of one shot."""

import time
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from fscl.continual.methods import fecam
from fscl.continual.methods.fecam import ClassCovariances
from fscl.continual.registry import make_learner
from fscl.nets.params import signed_root
from fscl.nets.precomputed import precomputed_features
from fscl.rng import generator
from fscl.testing import POOL, TASKS, small_base


def on_rows(width: int, **settings: Any) -> ClassCovariances:
    return ClassCovariances(precomputed_features(width), ClassCovariances.Settings(**settings), seed=0)


def rows(n: int, width: int, name: str = "rows") -> Tensor:
    random = generator(0, name, n)
    mixing = torch.randn(width, width, generator=random, dtype=torch.float64)  # dimensions that have to do with another
    return torch.randn(n, width, generator=random, dtype=torch.float64) @ mixing + 1


def direct(shots: Tensor, asked: Tensor, gamma_1: float, gamma_2: float) -> Tensor:
    """As the paper writes it, with a d × d inverse."""
    d, covariance = shots.shape[1], torch.cov(shots.T)
    identity = torch.eye(d).double()
    between = covariance[identity == 0].mean() if d > 1 else 0
    regular = covariance + gamma_1 * covariance.diagonal().mean() * identity + gamma_2 * between * (1 - identity)
    deviations = regular.diagonal().sqrt()
    inverse = torch.linalg.inv(regular / torch.outer(deviations, deviations))
    away = asked - shots.mean(0)
    return ((away @ inverse) * away).sum(1)


@pytest.mark.parametrize("gammas", [(10.0, 1.0), (1.0, 1.0), (0.5, 0.0)])
@pytest.mark.parametrize("root", [True, False])
def test_distances_are_those_of_the_direct_inverse(gammas: tuple[float, float], root: bool):
    learner = on_rows(6, gamma_1=gammas[0], gamma_2=gammas[1], root=root)
    labels = torch.tensor([0] * 4 + [1] * 2 + [2] * 15)  # fewer shots than dimensions, and more
    shots, asked = rows(21, 6), rows(8, 6, "asked")
    learner.learn_features(shots[:10], labels[:10])
    learner.learn_features(shots[10:], labels[10:])
    turn = signed_root if root else torch.clone
    for label in range(3):
        expected = direct(turn(shots[label == labels]), turn(asked), *gammas)
        torch.testing.assert_close(-learner.scores(asked)[:, label], expected, rtol=1e-8, atol=1e-8)


def test_a_class_of_one_shot_is_a_point_at_plain_distance():
    learner = on_rows(2, root=False)
    learner.learn_features(torch.tensor([[1.0, 2.0], [4.0, 6.0], [4.0, 6.0]]).double(), torch.tensor([0, 1, 1]))
    assert learner.scores(torch.tensor([[4.0, 6.0], [1.0, 2.0]]).double()).tolist() == [[-25.0, 0.0], [0.0, -25.0]]


def test_so_much_regularity_that_shots_do_not_matter_is_class_means():
    learner, means = on_rows(4, gamma_1=1e9, root=False), make_learner("prototypes", precomputed_features(4))
    shots, labels, asked = rows(12, 4), torch.arange(3).repeat(4), rows(50, 4, "asked")
    for each in (learner, means):
        each.learn_features(shots, labels)
    torch.testing.assert_close(learner.scores(asked), -means.scores(asked).square(), rtol=1e-6, atol=1e-6)


def test_the_scale_of_a_class_does_not_matter_but_its_shape_does():
    shots = rows(8, 3)
    wide = torch.cat([shots[:4], 5 * (shots[4:] - shots[4:].mean(0)) + shots[4:].mean(0)])
    asked, labels = rows(9, 3, "asked"), torch.tensor([0] * 4 + [1] * 4)
    scores = []
    for given in (shots, wide):
        learner = on_rows(3, root=False)
        learner.learn_features(given, labels)
        scores.append(learner.scores(asked))
    torch.testing.assert_close(scores[0], scores[1])  # a correlation does not change when all of it is stretched


def test_pieces_give_the_same_scores_as_all_at_once(monkeypatch: pytest.MonkeyPatch):
    learner = on_rows(4)
    learner.learn_features(rows(12, 4), torch.arange(3).repeat(4))
    whole = learner.scores(rows(7, 4, "asked"))
    monkeypatch.setattr(fecam, "MOST_AT_ONCE", 24)  # two rows at a time
    torch.testing.assert_close(learner.scores(rows(7, 4, "asked")), whole, rtol=1e-12, atol=1e-12)


def test_fifty_classes_of_256_features_are_learned_in_half_a_second():
    learner = on_rows(256)
    shots = torch.rand(250, 256, generator=generator(0, "many"), dtype=torch.float64)
    labels = torch.arange(50).repeat_interleave(5)
    learner.learn_features(shots, labels)
    start = time.process_time()
    learner.learn_features(shots[:25], labels[:25])
    assert time.process_time() - start < 0.5


def test_a_restored_learner_goes_on_with_the_same_bits():
    one, other = (make_learner("fecam", small_base()) for _ in range(2))
    one.learn_task(TASKS[0].support)
    other.restore(one.state())
    for learner in (one, other):
        learner.learn_task(TASKS[1].support)
    assert torch.equal(one.predict(POOL.images), other.predict(POOL.images))
    held = one.stored_bytes()
    assert held["memory"] == 18 * (8 * 4 + 8)  # 18 shots of 8 features, and their labels


def test_more_of_the_covariance_than_of_the_variance_is_refused():
    with pytest.raises(ValidationError, match=r"gamma_2 is at most gamma_1, but they are 2.0 and 1.0"):
        on_rows(2, gamma_1=1.0, gamma_2=2.0)
