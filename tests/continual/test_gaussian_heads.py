"""Heads that take classes for Gaussians: against the same densities written out with whole matrices."""

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from fscl.continual.heads import LinearDiscriminant, Plda
from fscl.continual.heads.discriminant import LEAST_VARIANCE, SHRINKAGES, base_within
from fscl.continual.heads.plda import LEAST_BETWEEN
from fscl.continual.methods.discriminant import discriminant_weights, oas_shrinkage
from fscl.errors import MisuseError
from fscl.nets.params import Params, class_sums
from fscl.rng import generator
from tests.continual.head_rows import N_CLASSES, one_by_one, shots

COUNTS = (2, 5, 5, 6)


def spd(n: int, seed: int, scale: float = 1.0) -> Tensor:
    """A covariance of no special form."""
    x = torch.randn(2 * n, n, generator=generator(seed, "spd"), dtype=torch.float64)
    return scale * x.T @ x / (2 * n)


def base_statistics(n_features: int) -> Params:
    return {
        "mean": torch.full((n_features,), 10.0, dtype=torch.float64),
        "within": spd(n_features, 0),
        "between": spd(n_features, 1, 2.0),
    }


def scatter(features: Tensor, labels: Tensor) -> Tensor:
    means = torch.stack([features[labels == label].mean(0) for label in range(N_CLASSES)])
    inside = features - means[labels]
    return inside.T @ inside


def differences(scores: Tensor) -> Tensor:
    """What does not depend on a number that all classes share."""
    return scores - scores[:, :1]


def bayes_rule(means: Tensor, covariance: Tensor, query: Tensor) -> Tensor:
    return torch.stack([MultivariateNormal(mean, covariance).log_prob(query) for mean in means], 1)


def class_means(features: Tensor, labels: Tensor) -> Tensor:
    return torch.stack([features[labels == label].mean(0) for label in range(N_CLASSES)])


# Linear discriminant


@pytest.mark.parametrize("n_features", [6, 30])
def test_with_the_estimated_shrinkage_it_is_the_streaming_discriminant(n_features: int):
    features, labels = shots(COUNTS, n_features)
    query = shots(COUNTS, n_features, seed=1)[0]
    head = LinearDiscriminant(shrinkage="oas")
    sums, counts = class_sums(features, labels, N_CLASSES)
    weights, bias = discriminant_weights(features.T @ features, sums, counts)
    scores = head.scores(head.fit(features, labels, N_CLASSES), query)
    torch.testing.assert_close(differences(scores), differences(query @ weights.T + bias), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n_features", [6, 30])
@pytest.mark.parametrize("base_share", [None, 0.0, 0.4, 1.0])
def test_it_is_the_bayes_rule_of_the_shrunk_and_mixed_covariance(n_features: int, base_share: float | None):
    features, labels = shots(COUNTS, n_features)
    query = shots(COUNTS, n_features, seed=1)[0]
    extras = None if base_share is None else base_statistics(n_features)
    head = LinearDiscriminant(shrinkage=0.3, base_share="auto" if base_share is None else base_share)
    own = scatter(features, labels) / (len(labels) - N_CLASSES)
    covariance = 0.7 * own + 0.3 * own.trace() / n_features * torch.eye(n_features, dtype=torch.float64)
    if extras is not None and base_share is not None:
        within = extras["within"] + LEAST_VARIANCE * extras["within"].trace() / n_features * torch.eye(
            n_features, dtype=torch.float64
        )
        covariance = (1 - base_share) * covariance + base_share * within
    scores = head.scores(head.fit(features, labels, N_CLASSES, extras), query)
    expected = bayes_rule(class_means(features, labels), covariance, query)
    torch.testing.assert_close(differences(scores), differences(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n_features", [6, 30])
@pytest.mark.parametrize("base_share", [None, 0.4])
def test_leaving_one_out_is_the_bayes_rule_of_the_other_rows(n_features: int, base_share: float | None):
    features, labels = shots(COUNTS, n_features)
    extras = None if base_share is None else base_statistics(n_features)
    head = LinearDiscriminant(shrinkage=0.3, base_share="auto" if base_share is None else base_share)
    freedom = len(labels) - N_CLASSES
    target = 0.3 * scatter(features, labels).trace() / n_features / freedom * torch.eye(n_features, dtype=torch.float64)
    expected = []
    for row in range(len(labels)):
        others = torch.arange(len(labels)) != row
        covariance = 0.7 * scatter(features[others], labels[others]) / (freedom - 1) + target
        within = base_within(extras)
        if within is not None and base_share is not None:
            covariance = (1 - base_share) * covariance + base_share * within
        means = class_means(features[others], labels[others])
        expected.append(bayes_rule(means, covariance, features[row : row + 1]))
    held = head.held_out(features, labels, N_CLASSES, extras)
    torch.testing.assert_close(differences(held), differences(torch.cat(expected)))


def test_the_shrinkage_is_the_one_with_the_fewest_mistakes_left_out():
    features, labels = shots((6, 6, 6, 6), spread=2.5)
    held = {share: LinearDiscriminant(shrinkage=share).held_out(features, labels, N_CLASSES) for share in SHRINKAGES}
    mistakes = {share: int((scores.argmax(1) != labels).sum()) for share, scores in held.items()}
    assert len(set(mistakes.values())) > 1
    chosen = LinearDiscriminant().fit(features, labels, N_CLASSES)
    best = [share for share, count in mistakes.items() if count == min(mistakes.values())]
    assert any(
        torch.equal(chosen["weight"], LinearDiscriminant(shrinkage=share).fit(features, labels, N_CLASSES)["weight"])
        for share in best
    )


def test_one_row_a_class_is_told_by_class_means_or_else_by_the_base():
    features, labels = shots((1, 1, 1, 1))
    query = shots(seed=1)[0]
    means, extras = class_means(features, labels), base_statistics(30)
    within = base_within(extras)
    assert within is not None
    head = LinearDiscriminant()
    for given, covariance in ((None, torch.eye(30, dtype=torch.float64)), (extras, within)):
        scores = head.scores(head.fit(features, labels, N_CLASSES, given), query)
        expected = differences(bayes_rule(means, covariance, query))
        torch.testing.assert_close(differences(scores), expected, rtol=1e-4, atol=1e-3)


def test_a_base_that_knows_the_noise_helps_and_one_that_does_not_is_left_alone():
    random = generator(0, "noise")
    loud = torch.randn(30, 5, generator=random, dtype=torch.float64)

    def noisy(counts: tuple[int, ...], seed: int) -> tuple[Tensor, Tensor]:
        features, labels = shots(counts, seed=seed)
        direction = generator(seed, "directions")
        return features + 3 * torch.randn(len(labels), 5, generator=direction, dtype=torch.float64) @ loud.T, labels

    features, labels = noisy((8, 8, 8, 8), 0)
    query, truth = noisy((50, 50, 50, 50), 1)
    head = LinearDiscriminant()

    def accuracy(extras: Params | None) -> float:
        scores = head.scores(head.fit(features, labels, N_CLASSES, extras), query)
        return float((scores.argmax(1) == truth).double().mean())

    knows = torch.eye(30, dtype=torch.float64) + 9 * loud @ loud.T
    misled = torch.linalg.inv(knows)  # quiet where the noise is loud
    alone = accuracy(None)
    assert accuracy({"within": knows}) > alone + 0.2
    assert accuracy({"within": misled}) > alone - 0.05
    head = LinearDiscriminant(base_share=1)
    assert accuracy({"within": misled}) < alone - 0.2


def test_a_share_of_a_base_that_carries_nothing_is_refused():
    with pytest.raises(MisuseError, match=r"base_share is 0\.5, but the base carries no covariance"):
        LinearDiscriminant(base_share=0.5).fit(*shots(), N_CLASSES)


# PLDA


def predictive_by_hand(mean: Tensor, within: Tensor, between: Tensor, rows: Tensor, query: Tensor) -> Tensor:
    """The posterior of a class mean by precisions, and the density of the next row."""
    n = len(rows)
    posterior = torch.linalg.inv(torch.linalg.inv(between) + n * torch.linalg.inv(within))
    centre = posterior @ (torch.linalg.solve(between, mean) + n * torch.linalg.solve(within, rows.mean(0)))
    covariance = within + posterior
    return MultivariateNormal(centre, (covariance + covariance.T) / 2).log_prob(query)


@pytest.mark.parametrize("n_features", [6, 30])
def test_plda_is_the_density_of_the_next_row_of_a_class(n_features: int):
    features, labels = shots(COUNTS, n_features)
    query, extras = shots(COUNTS, n_features, seed=1)[0], base_statistics(n_features)
    within = base_within(extras)
    assert within is not None
    scores = Plda().scores(Plda().fit(features, labels, N_CLASSES, extras), query)
    expected = [
        predictive_by_hand(extras["mean"], within, extras["between"], features[labels == label], query)
        for label in range(N_CLASSES)
    ]
    torch.testing.assert_close(scores, torch.stack(expected, 1), rtol=1e-4, atol=1e-3)


def test_held_out_plda_with_a_base_is_that_of_as_many_fits():
    features, labels = shots(COUNTS, 12)
    extras = base_statistics(12)
    held = Plda().held_out(features, labels, N_CLASSES, extras)
    torch.testing.assert_close(held, one_by_one(Plda(), features, labels, extras), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("n_features", [6, 30])
def test_plda_without_a_base_estimates_both_covariances_from_the_rows(n_features: int):
    features, labels = shots(COUNTS, n_features)
    query, identity = shots(COUNTS, n_features, seed=1)[0], torch.eye(n_features, dtype=torch.float64)
    own = scatter(features, labels) / (len(labels) - N_CLASSES)
    within = 0.4 * own + 0.6 * own.trace() / n_features * identity
    values, vectors = torch.linalg.eigh(within)
    root, inverse = (vectors * values.sqrt()) @ vectors.T, (vectors * values.rsqrt()) @ vectors.T
    across = torch.cov((class_means(features, labels) @ inverse).T)
    share, mean = oas_shrinkage(across, N_CLASSES - 1), across.trace() / n_features
    values, vectors = torch.linalg.eigh((1 - share) * across + share * mean * identity)
    n_effective = (18 - (4 + 25 + 25 + 36) / 18) / 3
    values = (values - 1 / n_effective).clamp(min=float(LEAST_BETWEEN * mean))
    between = root @ (vectors * values) @ vectors.T @ root
    head = Plda(shrinkage=0.6)
    scores = head.scores(head.fit(features, labels, N_CLASSES), query)
    expected = [
        predictive_by_hand(features.mean(0), within, between, features[labels == label], query)
        for label in range(N_CLASSES)
    ]
    torch.testing.assert_close(scores, torch.stack(expected, 1), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("n_features", [3, 30])
def test_one_row_a_class_halves_the_covariance_between_within_and_between(n_features: int):
    features, labels = shots((1, 1, 1, 1), n_features)
    query, identity = shots(COUNTS, n_features, seed=1)[0], torch.eye(n_features, dtype=torch.float64)
    total = torch.cov(features.T)
    share = oas_shrinkage(total, 3)
    half = ((1 - share) * total + share * total.trace() / n_features * identity) / 2
    scores = Plda().scores(Plda().fit(features, labels, N_CLASSES), query)
    expected = [
        predictive_by_hand(features.mean(0), half, half, features[labels == label], query) for label in range(N_CLASSES)
    ]
    torch.testing.assert_close(scores, torch.stack(expected, 1), rtol=1e-4, atol=1e-3)


def test_a_class_with_fewer_rows_is_less_certain():
    features, labels = shots((1, 2, 5, 20))
    variances = Plda().fit(features, labels, N_CLASSES, base_statistics(30))["variances"]
    assert bool((variances[:-1] > variances[1:]).all())
