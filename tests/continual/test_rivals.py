"""The rivals on frozen features: each against a second route to the same numbers."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal
from torch.nn.functional import one_hot

from fscl.continual.methods.discriminant import Discriminant, oas_shrinkage, shrunk_covariance, within_scatter
from fscl.continual.methods.gaussian import log_density, predictive, variance_components
from fscl.continual.methods.projection import RandomProjection, ridge_weights
from fscl.rng import generator
from tests.continual.rivals import (
    N_FEATURES,
    at_once,
    base,
    discriminant,
    gaussian,
    in_three_tasks,
    neighbour,
    projection,
    prototypes,
    toy_features,
)

# Nearest neighbour


def test_nearest_neighbour_is_the_least_distance_over_all_shots_of_a_class():
    features, labels = toy_features()
    learner = in_three_tasks(neighbour(base()), features, labels)
    query = toy_features(seed=1)[0]
    brute = [[-min(math.dist(q, f) for f in features[labels == k].tolist()) for k in range(6)] for q in query.tolist()]
    torch.testing.assert_close(learner.scores(query), torch.tensor(brute))


def test_a_stored_shot_is_its_own_nearest_neighbour():
    features, labels = toy_features()
    scores = at_once(neighbour(base()), features, labels).scores(features)
    assert torch.equal(scores.argmax(1), labels)
    assert bool((scores.amax(1) == 0).all())


# Discriminant


def test_the_scatter_in_a_stream_is_that_of_all_shots_at_once():
    features, labels = toy_features()
    learner = in_three_tasks(discriminant(base()), features, labels)
    assert isinstance(learner, Discriminant)
    centred = torch.cat([features[labels == k] - features[labels == k].mean(0) for k in range(6)]).double()
    scatter = within_scatter(learner.moment, learner.sums, learner.counts)
    torch.testing.assert_close(scatter, centred.T @ centred, rtol=1e-6, atol=1e-5)


def test_the_discriminant_in_a_stream_is_the_bayes_rule_of_the_batch_estimate():
    features, labels = toy_features()
    learner = in_three_tasks(discriminant(base()), features, labels)
    exact, query = features.double().numpy(), toy_features(seed=1)[0]
    means = np.stack([exact[labels == k].mean(0) for k in range(6)])
    centred = exact - means[labels]
    sample = centred.T @ centred / (30 - 6)
    rho = published_oas(sample, 30 - 6)
    covariance = (1 - rho) * sample + rho * np.trace(sample) / N_FEATURES * np.eye(N_FEATURES)
    away = query.double().numpy()[:, None] - means
    density = torch.from_numpy(-np.einsum("nkd,de,nke->nk", away, np.linalg.inv(covariance), away) / 2)
    scores = learner.scores(query).double()
    # linear scores leave out what all classes share
    torch.testing.assert_close(scores - scores[:, :1], density - density[:, :1], rtol=1e-4, atol=1e-4)


def published_oas(sample: np.ndarray, n: int) -> float:
    """Equation 23 of Chen, Wiesel, Eldar and Hero 2010, as printed."""
    p = len(sample)
    tr_s2, tr2_s = np.trace(sample @ sample), np.trace(sample) ** 2
    return float(min(((1 - 2 / p) * tr_s2 + tr2_s) / ((n + 1 - 2 / p) * (tr_s2 - tr2_s / p)), 1))


@pytest.mark.parametrize("n", [1, 5, 50, 5000])
def test_the_shrinkage_is_that_of_the_published_formula(n: int):
    x = np.random.default_rng(0).normal(size=(n, 7)) * np.arange(1, 8)
    sample = x.T @ x / n
    assert oas_shrinkage(torch.from_numpy(sample), n) == pytest.approx(published_oas(sample, n))


def test_the_shrinkage_on_paper():
    # S = diag(3, 1): Tr(S²) = 10, Tr²(S) = 16, p = 2, n = 9: (0 · 10 + 16) / (9 · (10 − 8)) = 8 / 9
    assert oas_shrinkage(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), 9) == pytest.approx(8 / 9)


def test_a_covariance_that_is_its_own_target_is_shrunk_all_the_way():
    assert oas_shrinkage(2 * torch.eye(3), 100) == 1
    assert oas_shrinkage(torch.tensor([[2.0]]), 100) == 1


def test_the_discriminant_beats_class_means_where_noise_has_a_direction():
    random = generator(0, "anisotropic")
    centres = torch.randn(5, N_FEATURES, generator=random)
    loud = torch.randn(N_FEATURES, generator=random)

    def draw(n: int) -> tuple[Tensor, Tensor]:
        labels = torch.arange(5).repeat_interleave(n)
        noise = 0.1 * torch.randn(5 * n, N_FEATURES, generator=random)
        return centres[labels] + noise + 5 * torch.randn(5 * n, 1, generator=random) * loud, labels

    shots, query = draw(10), draw(40)
    accuracy = {
        make: float((at_once(make(base()), *shots).scores(query[0]).argmax(1) == query[1]).double().mean())
        for make in (discriminant, prototypes)
    }
    assert accuracy[discriminant] > 0.95
    assert accuracy[prototypes] < 0.6


@pytest.mark.parametrize("n_shot", [1, 3])
def test_without_spread_inside_classes_the_discriminant_ranks_by_class_means(n_shot: int):
    shots = toy_features(n_shot=1)[0].repeat(n_shot, 1)
    labels, query = torch.arange(6).repeat(n_shot), toy_features(seed=1)[0]
    learner, means = at_once(discriminant(base()), shots, labels), at_once(prototypes(base()), shots, labels)
    assert isinstance(learner, Discriminant)
    assert shrunk_covariance(learner.moment, learner.sums, learner.counts) is None
    by_score, by_distance = learner.scores(query).argsort(1), means.scores(query).argsort(1)
    assert torch.equal(by_score, by_distance)


# Random projection


def test_the_ridge_regression_in_a_stream_is_the_one_on_all_shots_at_once():
    features, labels = toy_features()
    learner = in_three_tasks(projection(base()), features, labels)
    assert isinstance(learner, RandomProjection)
    hidden = learner.project(features)
    ridge = learner.strength * hidden.square().mean()
    targets = one_hot(labels).double()
    weights = torch.linalg.solve(hidden.T @ hidden + ridge * torch.eye(50).double(), hidden.T @ targets).T
    torch.testing.assert_close(learner.weights, weights, rtol=1e-6, atol=1e-9)


def test_the_order_of_tasks_does_not_change_the_gram_matrix():
    features, labels = toy_features()
    stream, batch = in_three_tasks(projection(base()), features, labels), at_once(projection(base()), features, labels)
    assert isinstance(stream, RandomProjection)
    assert isinstance(batch, RandomProjection)
    torch.testing.assert_close(stream.gram, batch.gram, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(stream.sums, batch.sums, rtol=1e-12, atol=1e-12)
    assert torch.equal(stream.counts, batch.counts)


def test_the_projection_is_a_function_of_the_seed():
    one, same, other = (
        RandomProjection(base(), RandomProjection.Settings(n_projected=2000), seed=seed).projection
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert float(one.std()) == pytest.approx(N_FEATURES**-0.5, rel=0.02)


def test_the_strength_is_the_best_one_on_the_held_out_shots():
    features, labels = toy_features(n_classes=4, n_shot=4)
    learner = projection(base())
    learner.learn_features(*toy_features(n_classes=2, n_shot=3, seed=1))
    gram, sums, counts = learner.gram, learner.sums, learner.counts
    learner.learn_features(features, labels)

    last = [max(i for i in range(16) if labels[i] == k) for k in range(4)]
    fit = [i for i in range(16) if i not in last]
    hidden = learner.project(features)
    gram = gram + hidden[fit].T @ hidden[fit]
    targets = one_hot(labels, 4).double()
    sums = torch.cat([sums, torch.zeros(2, 50)]) + targets[fit].T @ hidden[fit]
    counts = torch.tensor([3, 3, 0, 0]) + 3
    losses = {}
    for strength in RandomProjection.Settings().strengths:
        scores = hidden[last] @ ridge_weights(gram, sums, counts, strength).T
        wrong = int((scores.argmax(1) != labels[last]).sum())
        losses[wrong, float((scores - targets[last]).square().sum())] = strength
    assert learner.strength == losses[min(losses)]


def test_a_task_with_a_class_of_one_shot_keeps_the_strength_in_force():
    learner = projection(base())
    learner.learn_features(torch.randn(2, N_FEATURES, generator=generator(0, "x")), torch.tensor([0, 1]))
    assert learner.strength == RandomProjection.Settings().first_strength
    learner.learn_features(*toy_features())
    chosen = learner.strength
    learner.learn_features(torch.randn(3, N_FEATURES, generator=generator(1, "x")), torch.tensor([6, 7, 7]))
    assert learner.strength == chosen
    assert learner.diagnostics() == {"strength": chosen}


def test_scores_of_the_projection_do_not_depend_on_the_scale_of_the_features():
    features, labels = toy_features()
    plain, large = (at_once(projection(base()), scale * features, labels) for scale in (1, 1000))
    torch.testing.assert_close(large.scores(1000 * features), plain.scores(features))


# Gaussian head


def test_the_variances_and_the_predictive_density_on_paper():
    # shots 0, 2 of one class and 4, 6 of another: Σ(x − class mean)² = 4 on 2 degrees of freedom, Σ(class mean − mean)² = 16
    squares, sums, counts = torch.tensor([56.0]), torch.tensor([[2.0], [10.0]]), torch.tensor([2, 2])
    within, between = variance_components(squares, sums, counts)
    assert within.item() == pytest.approx((4 + 4 / 2) / 3)
    assert between.item() == pytest.approx((16 - 2) / 2)
    means, variances = predictive(squares, sums, counts)
    # trust is 2 · 7 / (2 · 7 + 2) = 7/8, the mean of all shots is 3, and the mean has variance 1 / (2/2 + 1/7) = 7/8
    torch.testing.assert_close(means, torch.tensor([[1.25], [4.75]]))
    torch.testing.assert_close(variances, torch.tensor([[2.875], [2.875]]))


def test_the_predictive_density_is_the_integral_over_class_means():
    shots = {0: [0.0, 2.0, 1.0], 1: [4.0], 2: [7.0, 8.5]}
    counts = torch.tensor([len(x) for x in shots.values()])
    sums = torch.tensor([[sum(x)] for x in shots.values()], dtype=torch.float64)
    squares = torch.tensor([sum(x * x for many in shots.values() for x in many)], dtype=torch.float64)
    within, between = variance_components(squares, sums, counts)
    grid = torch.linspace(-60, 60, 200_001, dtype=torch.float64)
    posterior = Normal(sums.sum() / counts.sum(), between.sqrt()).log_prob(grid)
    for label, many in shots.items():
        weight = (posterior + sum(Normal(grid, within.sqrt()).log_prob(torch.tensor(x)) for x in many)).softmax(0)
        integral = (weight * Normal(grid, within.sqrt()).log_prob(torch.tensor(3.3)).exp()).sum().log()
        scores = log_density(torch.tensor([[3.3]], dtype=torch.float64), *predictive(squares, sums, counts))
        assert scores[0, label].item() == pytest.approx(integral.item(), rel=1e-6)


def test_the_log_density_is_that_of_independent_gaussians():
    features = toy_features()[0].double()
    means, variances = features[:3], features[3:6].square() + 0.1
    expected = torch.stack(
        [Normal(m, v.sqrt()).log_prob(features).sum(1) for m, v in zip(means, variances, strict=True)]
    )
    torch.testing.assert_close(log_density(features, means, variances), expected.T)


def test_the_gaussian_head_in_a_stream_is_the_one_on_all_shots_at_once():
    features, labels = toy_features()
    stream = in_three_tasks(gaussian(base()), features, labels)
    batch = at_once(gaussian(base()), features, labels)
    torch.testing.assert_close(stream.scores(features), batch.scores(features))


def test_a_class_of_fewer_shots_is_nearer_to_the_mean_of_all_and_less_certain():
    features, labels = toy_features()
    kept = (labels > 0) | (torch.arange(len(labels)) == (labels == 0).nonzero()[0])
    learner = gaussian(base())
    learner.learn_features(features[kept], labels[kept])
    means, variances = predictive(learner.squares, learner.sums, learner.counts)
    centre = learner.sums.sum(0) / learner.counts.sum()
    trust = (means - centre) / (learner.sums / learner.counts[:, None] - centre)
    assert learner.counts.tolist() == [1, 5, 5, 5, 5, 5]
    assert bool((trust[0] < trust[1:]).all())
    assert bool((variances[0] > variances[1:]).all())
