"""GeMCL: scores that are Student t densities, a prior of the base or of the shots, and its limits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy import stats
from torch import Tensor

from fscl.continual.methods.gemcl import StudentClasses
from fscl.continual.registry import make_learner
from fscl.errors import MisuseError
from fscl.nets import student
from fscl.nets.precomputed import precomputed_features
from fscl.rng import generator
from fscl.testing import POOL, TASKS, small_base

LABELS = torch.tensor([0, 0, 0, 1, 1])


def on_rows(width: int, extras: dict[str, Tensor] | None = None, **settings: Any) -> StudentClasses:
    network = replace(precomputed_features(width), extras=extras or {})
    return StudentClasses(network, StudentClasses.Settings.model_validate(settings), seed=0)


def rows(n: int, width: int = 3) -> Tensor:
    return torch.randn(n, width, generator=generator(0, "rows", n), dtype=torch.float64)


def test_the_predictive_score_is_the_density_of_a_student_t():
    learner, shots, asked = on_rows(3, alpha=2.5, beta=0.7), rows(5), rows(7)
    learner.learn_features(shots, LABELS)
    for label in (0, 1):
        own = shots[label == LABELS].numpy()
        alpha, beta = 2.5 + len(own) / 2, 0.7 + ((own - own.mean(0)) ** 2).sum(0) / 2
        expected = stats.t(df=2 * alpha, loc=own.mean(0), scale=np.sqrt(beta / alpha)).logpdf(asked.numpy()).sum(1)
        assert learner.scores(asked)[:, label].tolist() == pytest.approx(expected.tolist(), rel=1e-12)


def test_the_map_score_is_the_density_of_a_gaussian_at_the_mode_of_the_precision():
    learner, shots, asked = on_rows(3, alpha=2.5, beta=0.7, score="map"), rows(5), rows(7)
    learner.learn_features(shots, LABELS)
    for label in (0, 1):
        own = shots[label == LABELS].numpy()
        alpha, beta = 2.5 + len(own) / 2, 0.7 + ((own - own.mean(0)) ** 2).sum(0) / 2
        grid = np.linspace(1e-3, 60, 400_001)
        precision = np.array([grid[stats.gamma(alpha, scale=1 / b).pdf(grid).argmax()] for b in beta])
        expected = stats.norm(own.mean(0), precision**-0.5).logpdf(asked.numpy()).sum(1)
        assert learner.scores(asked)[:, label].tolist() == pytest.approx(expected.tolist(), rel=1e-4)


def test_the_predictive_density_is_the_gaussian_averaged_over_the_variance():
    learner = on_rows(1, alpha=1.5, beta=2.0)
    learner.learn_features(torch.tensor([[1.0], [2.0]]).double(), torch.tensor([0, 0]))
    variances = stats.invgamma(1.5 + 1, scale=2.0 + 0.25).ppf((np.arange(200_000) + 0.5) / 200_000)
    expected = np.log(stats.norm(1.5, variances**0.5).pdf(4.0).mean())
    assert learner.scores(torch.tensor([[4.0]]).double()).item() == pytest.approx(expected, abs=1e-4)


def test_a_prior_that_is_certain_answers_as_class_means_do():
    certain, means = on_rows(3, alpha=1e8, beta=1e8), make_learner("prototypes", precomputed_features(3))
    for learner in (certain, means):
        learner.learn_features(rows(5), LABELS)
    asked = rows(50)
    assert torch.equal(certain.scores(asked).argmax(1), means.scores(asked).argmax(1))
    gap = certain.scores(asked)[:, 0] - certain.scores(asked)[:, 1]
    squares = means.scores(asked).square()
    torch.testing.assert_close(gap, (squares[:, 1] - squares[:, 0]) / 2, atol=1e-4, rtol=1e-4)


def test_a_class_of_wide_shots_wins_far_away_where_class_means_do_not():
    learner = on_rows(1, alpha=2.0, beta=1.0)
    learner.learn_features(
        torch.tensor([[-20.0], [0.0], [20.0], [29.0], [30.0], [31.0]]).double(), torch.arange(2).repeat_interleave(3)
    )
    assert learner.scores(torch.tensor([[18.0]]).double()).argmax() == 0


def test_the_order_of_shots_does_not_matter():
    together, apart = on_rows(3, alpha=2.0, beta=1.0), on_rows(3, alpha=2.0, beta=1.0)
    shots = rows(5)
    together.learn_features(shots, LABELS)
    for order in ([0], [3, 1], [4], [2]):
        apart.learn_features(shots[order], LABELS[order])
    torch.testing.assert_close(apart.scores(rows(6)), together.scores(rows(6)))


def test_the_prior_is_that_of_the_base_or_of_the_variances_in_its_classes():
    within = torch.tensor([[1.0, 0.5], [0.5, 3.0]])
    assert on_rows(2, {"within": within}).known_prior == (6.0, 10.0)  # mean 2, variance 1: α = 2 + 4, β = 2 (α − 1)
    carried = {"within": within, "prior/alpha": torch.tensor(7.0), "prior/beta": torch.tensor(0.5)}
    assert on_rows(2, carried).known_prior == (7.0, 0.5)
    assert on_rows(2, carried, alpha=1.0, beta=4.0).known_prior == (1.0, 4.0)


def test_without_anything_from_the_base_the_prior_is_that_of_the_shots():
    learner = on_rows(2)
    learner.learn_features(torch.tensor([[1.0, 2.0]]).double(), torch.tensor([0]))
    assert learner.diagnostics() == {"prior_alpha": 3.0, "prior_beta": 2.0}
    learner.learn_features(torch.tensor([[3.0, 4.0], [9.0, 9.0]]).double(), torch.tensor([0, 1]))
    assert learner.diagnostics() == {
        "prior_alpha": 1e4,
        "prior_beta": pytest.approx(2 * (1e4 - 1)),
    }  # variances 2 and 2
    alone = on_rows(1)
    alone.learn_features(torch.tensor([[1.0], [3.0]]).double(), torch.tensor([0, 1]))
    assert alone.diagnostics()["prior_beta"] == pytest.approx(2 * (1e4 - 1))  # Σ (x − 2)², no spread inside classes


def test_a_prior_by_moments_has_those_moments():
    variances = torch.tensor([0.2, 1.0, 1.5, 4.0])
    prior = student.prior_by_moments(variances)
    drawn = stats.invgamma(prior.alpha, scale=prior.beta)
    assert drawn.mean() == pytest.approx(float(variances.mean()), rel=1e-6)
    assert drawn.var() == pytest.approx(float(variances.var(unbiased=False)), rel=1e-6)


def test_the_likeliest_prior_is_that_of_scipy():
    variances = stats.invgamma(4.0, scale=9.0).rvs(500, random_state=0)
    alpha, _, beta = stats.invgamma.fit(variances, floc=0)
    assert student.likeliest_prior(torch.from_numpy(variances)) == pytest.approx((alpha, beta), rel=1e-3)
    assert student.likeliest_prior(torch.ones(3)).alpha == student.MOST_ALPHA


def test_pieces_give_the_same_scores_as_all_at_once(monkeypatch: pytest.MonkeyPatch):
    learner = on_rows(3, alpha=2.0, beta=1.0)
    learner.learn_features(rows(5), LABELS)
    whole = learner.scores(rows(9))
    monkeypatch.setattr(student, "MOST_AT_ONCE", 12)  # two rows at a time
    assert torch.equal(learner.scores(rows(9)), whole)


@pytest.mark.parametrize("score", ["predictive", "map"])
def test_a_restored_learner_goes_on_with_the_same_bits(score: str):
    one, other = (make_learner("gemcl", small_base(), settings={"score": score}) for _ in range(2))
    one.learn_task(TASKS[0].support)
    other.restore(one.state())
    for learner in (one, other):
        learner.learn_task(TASKS[1].support)
    assert torch.equal(one.predict(POOL.images), other.predict(POOL.images))


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValidationError, match=r"numbers together or 'base' together, but they are 2.0 and 'base'"):
        on_rows(1, alpha=2.0)
    with pytest.raises(MisuseError, match=r"alpha above 0.5.*but alpha is 0.4"):
        on_rows(1, alpha=0.4, beta=1.0, score="map")
