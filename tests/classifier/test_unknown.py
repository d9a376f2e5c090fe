"""Pictures of classes that were never taught."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import t as student_t
from torch import Tensor

from fscl.classifier.unknown import Unknown, _leave_out, fit_unknown, unknown_score, upper_quantile
from fscl.continual.heads.rooted import root

D = 24


def draw(n_classes: int, n_shot: int, *, seed: int = 0, spread: float = 0.25) -> tuple[Tensor, Tensor]:
    """Features as those behind a ReLU, of classes around random means."""
    random = torch.Generator().manual_seed(seed)
    means = torch.rand(n_classes, D, generator=random)
    labels = torch.arange(n_classes).repeat_interleave(n_shot)
    return (means[labels] + spread * torch.randn(len(labels), D, generator=random)).clamp_min(0), labels


def head_scores(features: Tensor, known: Tensor, labels: Tensor) -> Tensor:
    means = torch.stack([known[labels == label].mean(0) for label in labels.unique()])
    return -torch.cdist(features, means)


def held_out(known: Tensor, labels: Tensor) -> Tensor:
    rows = []
    for i in range(len(known)):
        rest = torch.arange(len(known)) != i
        rows.append(head_scores(known[i : i + 1], known[rest], labels[rest])[0])
    return torch.stack(rows)


def split(n_known: int = 8, n_shot: int = 6, n_query: int = 20, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Shots and their labels, queries of the same classes, queries of as many others."""
    features, labels = draw(2 * n_known, n_shot + n_query, seed=seed)
    turn = torch.arange(len(labels)) % (n_shot + n_query)
    known = labels < n_known
    shots = known & (turn < n_shot)
    return features[shots], labels[shots], features[known & (turn >= n_shot)], features[~known]


def fitted(shots: Tensor, labels: Tensor, **options: Tensor) -> Unknown:
    unknown = fit_unknown(shots, labels, int(labels.max()) + 1, held_out(shots, labels), **options)
    assert unknown is not None
    return unknown


def distance_ratio(query: np.ndarray, shots: np.ndarray, labels: np.ndarray) -> float:
    """The definition, with covariance matrices written out."""
    rooted = np.sign(shots) * np.sqrt(np.abs(shots))
    rooted /= np.linalg.norm(rooted, axis=1, keepdims=True)
    x = np.sign(query) * np.sqrt(np.abs(query))
    x /= np.linalg.norm(x)
    classes = np.unique(labels)
    means = np.stack([rooted[labels == c].mean(0) for c in classes])
    own = rooted - means[np.searchsorted(classes, labels)]
    centre = means.mean(0)

    def covariance(rows: np.ndarray, n_free: int) -> np.ndarray:
        empirical = rows.T @ rows / n_free
        return 0.1 * empirical + 0.9 * np.trace(empirical) / D * np.eye(D)

    inverse = np.linalg.inv(covariance(own, len(shots) - len(classes)))
    to_class = min((x - m) @ inverse @ (x - m) - D / (labels == c).sum() for c, m in zip(classes, means, strict=True))
    everything = np.linalg.inv(covariance(rooted - centre, len(shots) - 1))
    to_all = (x - centre) @ everything @ (x - centre)
    return math.log1p(max(to_class, 0) / D) - 0.8 * math.log1p(to_all / D)


@pytest.mark.parametrize("n_shot", [3, 12])  # fewer and more examples than features
def test_the_score_is_the_likelihood_ratio_with_covariances_written_out(n_shot: int):
    shots, labels, familiar, new = split(n_shot=n_shot)
    keep = torch.arange(len(labels)) != 0  # so that classes have different sizes
    shots, labels = shots[keep], labels[keep]
    unknown = fitted(shots, labels)
    queries = torch.cat([familiar[:5], new[:5]])
    scores = head_scores(queries, shots, labels)
    ratios = [distance_ratio(q, shots.double().numpy(), labels.numpy()) for q in queries.double().numpy()]
    location, scale, head_location, head_scale = unknown.tensors["scales"].double().tolist()
    expected = (np.array(ratios) - location) * scale + (head_location - scores.amax(1).double().numpy()) * head_scale
    np.testing.assert_allclose(unknown.score(queries, scores).numpy(), expected, rtol=2e-3, atol=2e-3)
    assert scale > 0
    assert head_scale > 0


def test_new_classes_score_higher_and_false_alarms_are_about_one_in_twenty():
    alarms, caught = [], []
    for seed in range(12):
        shots, labels, familiar, new = split(seed=seed)
        unknown = fitted(shots, labels)
        assert unknown.threshold is not None
        alarms.append(
            (unknown.score(familiar, head_scores(familiar, shots, labels)) > unknown.threshold).float().mean()
        )
        caught.append((unknown.score(new, head_scores(new, shots, labels)) > unknown.threshold).float().mean())
    assert 0.03 <= float(torch.stack(alarms).mean()) <= 0.07
    assert float(torch.stack(caught).mean()) > 0.5


def test_a_higher_score_of_the_head_makes_a_picture_more_familiar():
    shots, labels, familiar, _ = split()
    unknown = fitted(shots, labels)
    scores = head_scores(familiar, shots, labels)
    assert bool((unknown.score(familiar, scores + 1) < unknown.score(familiar, scores)).all())


def test_examples_without_a_left_out_score_do_not_set_the_threshold():
    shots, labels, _, _ = split()
    scores = held_out(shots, labels)
    asked = torch.arange(len(labels)) % 2 == 0
    some = fit_unknown(shots, labels, 8, scores.masked_fill(~asked[:, None], -torch.inf))
    everyone = fit_unknown(shots, labels, 8, scores)
    assert some is not None
    assert everyone is not None
    for name in everyone.tensors.keys() - {"scales"}:  # what a new picture is compared with stays the same
        assert torch.equal(some.tensors[name], everyone.tensors[name])
    positions, ratios = _leave_out(shots.double(), labels, 8)
    assert float(some.tensors["scales"][0]) == pytest.approx(float(ratios[asked[positions]].mean()))
    assert float(everyone.tensors["scales"][0]) == pytest.approx(float(ratios.mean()))


def test_duplicates_count_once():
    shots, labels, familiar, _ = split()
    again = torch.cat([shots, shots[:3], shots[:3]])
    both = torch.cat([labels, labels[:3], labels[:3]])
    groups = torch.cat([torch.arange(len(labels)), torch.arange(3), torch.arange(3)])
    scores = held_out(shots, labels)
    plain = fit_unknown(shots, labels, 8, scores)
    repeated = fit_unknown(again, both, 8, torch.cat([scores, scores[:3], scores[:3]]), groups)
    assert plain is not None
    assert repeated is not None
    assert repeated.threshold == plain.threshold
    asked = head_scores(familiar, shots, labels)
    assert torch.equal(repeated.score(familiar, asked), plain.score(familiar, asked))


def test_one_example_a_class_gives_the_distance_to_the_nearest_and_no_threshold():
    shots, labels, familiar, new = split(n_shot=1)
    unknown = fit_unknown(shots, labels, 8, torch.full((8, 8), -torch.inf))
    assert unknown is not None
    assert unknown.threshold is None
    queries = torch.cat([familiar, new])
    nearest = torch.cdist(root(queries), root(shots)).amin(1)
    scores = unknown.score(queries, torch.zeros(len(queries), 8))
    torch.testing.assert_close(scores, torch.log1p(nearest.square()), rtol=1e-4, atol=1e-5)


def test_a_single_pair_of_examples_gives_no_threshold_and_two_pairs_do():
    shots, labels, familiar, _ = split(n_shot=2)
    for first, has_threshold in (([0, 1, 2, 4], False), ([0, 1, 2, 3], True)):
        unknown = fit_unknown(shots[first], labels[first], 8, torch.zeros(4, 8))
        assert unknown is not None
        assert (unknown.threshold is not None) == has_threshold
        assert bool(torch.isfinite(unknown.score(familiar, torch.zeros(len(familiar), 8))).all())


def test_classes_of_one_example_and_classes_without_any_do_no_harm():
    shots, labels, familiar, _ = split()
    keep = (labels != 3) & ~((labels == 5) & (torch.arange(len(labels)) % 6 > 0))
    scores = held_out(shots, labels)
    scores[:, 3] = -torch.inf
    unknown = fit_unknown(shots[keep], labels[keep], 8, scores[keep])
    assert unknown is not None
    assert unknown.threshold is not None
    assert math.isfinite(unknown.threshold)
    assert bool(torch.isfinite(unknown.score(familiar, torch.zeros(len(familiar), 8))).all())


def test_a_single_class_has_a_score_and_a_threshold():
    shots, labels, familiar, new = split(n_known=1, n_shot=12)
    unknown = fit_unknown(shots, labels, 1, torch.zeros(12, 1))
    assert unknown is not None
    assert unknown.threshold is not None
    known_scores, new_scores = (unknown.score(x, torch.zeros(len(x), 1)) for x in (familiar, new))
    assert float(new_scores.median()) > unknown.threshold > float(known_scores.median())


def test_no_examples_give_nothing():
    assert fit_unknown(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), 0, torch.zeros(0, 0)) is None


def test_pictures_that_are_all_the_same_give_finite_scores():
    shots, labels = torch.ones(6, D), torch.arange(2).repeat_interleave(3)
    unknown = fit_unknown(shots, labels, 2, torch.zeros(6, 2))
    assert unknown is not None
    assert bool(torch.isfinite(unknown.score(torch.rand(3, D), torch.zeros(3, 2))).all())


def test_a_picture_is_scored_alone_and_the_tensors_suffice():
    shots, labels, familiar, _ = split()
    unknown = fitted(shots, labels)
    scores = head_scores(familiar, shots, labels)
    together = unknown_score(unknown.tensors, familiar, scores)
    alone = torch.cat([unknown.score(familiar[i : i + 1], scores[i : i + 1]) for i in range(len(familiar))])
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-4)
    assert {tensor.dtype for tensor in unknown.tensors.values()} == {torch.float32}


def test_the_quantile_of_many_scores_is_their_rank_and_of_few_that_of_students_t():
    many = torch.arange(1.0, 60.0)[torch.randperm(59, generator=torch.Generator().manual_seed(0))]
    assert upper_quantile(many) == pytest.approx(57)  # 0.95 · 60
    few = torch.tensor([1.0, 2, 3, 4])
    expected = 2.5 + float(student_t.ppf(0.95, 3)) * math.sqrt(5 / 3) * math.sqrt(1.25)
    assert upper_quantile(few) == pytest.approx(expected)
    assert upper_quantile(few[:1]) == math.inf
