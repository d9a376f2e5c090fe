"""The streaming discriminant with the covariance inside base classes, and on square roots."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from fscl.continual.methods.discriminant import Discriminant
from fscl.continual.registry import find_method, make_learner
from fscl.errors import MisuseError
from fscl.meta.statistics import statistics_of
from fscl.nets.params import signed_root
from fscl.nets.precomputed import precomputed_features
from fscl.rng import generator
from fscl.testing import POOL, TASKS, small_base

WITHIN = torch.tensor([[2.0, 0.6, 0.0], [0.6, 1.0, 0.2], [0.0, 0.2, 0.5]])
LABELS = torch.tensor([0, 0, 0, 1, 1, 2])


def on_rows(extras: dict[str, Tensor], **settings: Any) -> Discriminant:
    given = {"covariance": "base", "shrinkage": 0.6} | settings
    return Discriminant(replace(precomputed_features(3), extras=extras), Discriminant.Settings(**given), seed=0)


def rows(n: int) -> Tensor:
    return torch.randn(n, 3, generator=generator(0, "rows", n), dtype=torch.float64)


@pytest.mark.parametrize("shrinkage", [0.0, 0.3, 0.6])
def test_scores_are_gaussian_log_densities_with_the_covariance_of_the_base(shrinkage: float):
    learner, shots, asked = on_rows({"within": WITHIN}, shrinkage=shrinkage), rows(6), rows(9)
    learner.learn_features(shots[:4], LABELS[:4])
    learner.learn_features(shots[4:], LABELS[4:])
    means = torch.stack([shots[label == LABELS].mean(0) for label in range(3)])
    covariance = (1 - shrinkage) * WITHIN.double() + shrinkage * WITHIN.double().trace() / 3 * torch.eye(3).double()
    densities = torch.stack(
        [torch.distributions.MultivariateNormal(mean, covariance).log_prob(asked) for mean in means], 1
    )
    scores = learner.scores(asked)
    torch.testing.assert_close(scores - scores[:, :1], densities - densities[:, :1])


def test_all_shrinkage_is_class_means():
    learner, means = on_rows({"within": WITHIN}, shrinkage=1.0), make_learner("prototypes", precomputed_features(3))
    for each in (learner, means):
        each.learn_features(rows(6), LABELS)
    asked = rows(200)
    assert torch.equal(learner.scores(asked).argmax(1), means.scores(asked).argmax(1))


def test_shots_move_no_covariance():
    one = on_rows({"within": WITHIN})
    one.learn_features(torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]).double(), torch.tensor([0, 1]))
    before = one.weights[1] - one.weights[0]
    one.learn_features(torch.tensor([[5.0, 9.0, 1.0], [-5.0, -9.0, -1.0]]).double(), torch.tensor([0, 0]))
    torch.testing.assert_close(one.weights[1] - one.weights[0], before)  # the mean of class 0 is where it was
    assert one.state().tensors["moment"].numel() == 0


def test_the_root_takes_signed_roots_and_their_covariance():
    features = 4 * rows(40)
    statistics = statistics_of(features, torch.arange(4).repeat(10))
    inside = signed_root(features) - torch.stack(
        [signed_root(features)[number::4].mean(0) for number in range(4)]
    ).repeat(10, 1)
    torch.testing.assert_close(statistics["root_within"].double(), inside.T @ inside / 36, rtol=1e-6, atol=1e-6)
    rooted = on_rows(statistics, root=True)
    plain = on_rows({"within": statistics["root_within"]})
    rooted.learn_features(rows(6), LABELS)
    plain.learn_features(signed_root(rows(6)), LABELS)
    assert torch.equal(rooted.scores(rows(9)), plain.scores(signed_root(rows(9))))


def test_roots_keep_their_sign():
    assert signed_root(torch.tensor([-4.0, 0.0, 9.0])).tolist() == [-2.0, 0.0, 3.0]


def test_the_root_may_go_with_the_covariance_of_shots():
    network = precomputed_features(3)
    rooted = make_learner("discriminant", network, settings={"root": True})
    plain = make_learner("discriminant", network)
    rooted.learn_features(rows(6), LABELS)
    plain.learn_features(signed_root(rows(6)), LABELS)
    assert torch.equal(rooted.scores(rows(9)), plain.scores(signed_root(rows(9))))


@pytest.mark.parametrize(("root", "name"), [(False, "within"), (True, "root_within")])
def test_a_base_without_the_covariance_is_refused_by_name(root: bool, name: str):
    carried = {"root_within": WITHIN, "within": WITHIN}
    del carried[name]
    with pytest.raises(MisuseError, match=rf"covariance = 'base'.* needs '{name}' from the base"):
        on_rows(carried, root=root)


def test_what_has_no_inverse_is_refused():
    with pytest.raises(MisuseError, match=r"shrinkage = 0.0 has no inverse"):
        on_rows({"within": torch.ones(3, 3)}, shrinkage=0.0)
    with pytest.raises(ValidationError, match=r"give a share from 0 to 1"):
        on_rows({"within": WITHIN}, shrinkage="oas")


def test_the_summary_says_where_the_covariance_comes_from():
    assert "base statistics" in find_method("slda").summary


def test_a_class_can_be_taken_out_and_a_restored_learner_goes_on():
    one, other = (make_learner("slda", small_base(), settings={"root": True}) for _ in range(2))
    one.learn_task(TASKS[0].support)
    other.restore(one.state())
    for learner in (one, other):
        learner.learn_task(TASKS[1].support)
    assert torch.equal(one.predict(POOL.images), other.predict(POOL.images))
    kept = [label for label in range(6) if label != 2]
    assert one.without_class(2)
    before, after = other.predict(POOL.images)[:, kept].double(), one.predict(POOL.images).double()
    torch.testing.assert_close(after - after[:, :1], before - before[:, :1], rtol=1e-4, atol=1e-4)
