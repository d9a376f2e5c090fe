"""Heads: each against a second route to the same numbers."""

import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.nn.functional import one_hot

from fscl.continual.heads import (
    AnyHead,
    Blend,
    Head,
    LinearDiscriminant,
    Logistic,
    Means,
    Plda,
    Ridge,
    Rooted,
    logistic,
)
from fscl.continual.heads.base import coordinates, fold_of_each
from fscl.continual.heads.ridge import ONE_SHOT_STRENGTH, STRENGTHS, RidgeProblem
from fscl.continual.heads.rooted import root
from fscl.errors import Divergence
from fscl.rng import generator
from tests.continual.head_rows import N_CLASSES, one_by_one, shots

HEADS: dict[str, Head] = {
    "means": Means(),
    "ridge": Ridge(),
    "ridge, balanced": Ridge(balanced=True),
    "logistic": Logistic(),
    "discriminant": LinearDiscriminant(),
    "plda": Plda(),
    "blend": Blend(),
    "rooted": Rooted(),
    "rooted ridge": Rooted(head=Ridge()),
}
each_head = pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)


def scaled(features: Tensor) -> Tensor:
    centred = features - features.mean(0)
    return centred / centred.square().sum(1).mean().sqrt()


# What every head promises


@each_head
@pytest.mark.parametrize("counts", [(5, 5, 5, 5), (1, 1, 1, 1), (1, 7, 2, 30)], ids=str)
@pytest.mark.parametrize("n_features", [3, 30])
def test_a_fit_is_single_precision_and_scores_every_class(head: Head, counts: tuple[int, ...], n_features: int):
    features, labels = shots(counts, n_features)
    fitted = head.fit(features, labels, N_CLASSES)
    assert all(tensor.dtype == torch.float32 for tensor in fitted.values())
    scores = head.scores(fitted, features)
    assert scores.shape == (len(labels), N_CLASSES)
    assert scores.dtype == torch.float64
    assert bool(scores.isfinite().all())
    assert head.scores(fitted, features.float()).dtype == torch.float32
    assert head.scores(fitted, features[:0]).shape == (0, N_CLASSES)


@each_head
def test_a_head_recognises_new_rows_of_its_classes(head: Head):
    fitted = head.fit(*shots(), N_CLASSES)
    features, labels = shots((50, 50, 50, 50), seed=1)
    assert float((head.scores(fitted, features).argmax(1) == labels).double().mean()) > 0.9


@each_head
def test_each_row_is_scored_alone(head: Head):
    features = shots()[0].float()
    fitted = head.fit(features, shots()[1], N_CLASSES)
    alone = torch.cat([head.scores(fitted, row[None]) for row in features])
    torch.testing.assert_close(alone, head.scores(fitted, features), rtol=1e-6, atol=1e-6)


@each_head
def test_the_order_of_the_rows_does_not_matter(head: Head):
    features, labels = shots((2, 3, 7, 4))
    flipped = head.fit(features.flip(0), labels.flip(0), N_CLASSES)
    scores = head.scores(head.fit(features, labels, N_CLASSES), features)
    torch.testing.assert_close(head.scores(flipped, features), scores, rtol=1e-4, atol=1e-4)


@each_head
def test_fitting_changes_none_of_its_inputs(head: Head):
    features, labels = shots()
    before = features.clone(), labels.clone()
    head.fit(features, labels, N_CLASSES)
    head.held_out(features, labels, N_CLASSES)
    assert torch.equal(features, before[0])
    assert torch.equal(labels, before[1])


@each_head
@pytest.mark.parametrize("counts", [(1,), (4,), (1, 1), (3, 1)], ids=str)
def test_rows_without_spread_have_finite_scores(head: Head, counts: tuple[int, ...]):
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    for value in (0.0, 3.7):
        features = torch.full((len(labels), 6), value)
        fitted = head.fit(features, labels, len(counts))
        query = torch.randn(5, 6, generator=generator(0, "query"))
        assert bool(head.scores(fitted, query).isfinite().all())
        assert not bool(head.held_out(features, labels, len(counts)).isnan().any())


@each_head
def test_what_is_held_out_is_near_to_what_folds_give_and_says_less_than_the_fit_itself(head: Head):
    features, labels = shots((6, 6, 6, 6), spread=2.5)
    right = {
        "fit": head.scores(head.fit(features, labels, N_CLASSES), features),
        "held out": head.held_out(features, labels, N_CLASSES),
        "in folds": head.in_folds(features, labels, N_CLASSES),
    }
    share = {name: float((scores.argmax(1) == labels).double().mean()) for name, scores in right.items()}
    assert share["fit"] > share["held out"]
    assert abs(share["held out"] - share["in folds"]) <= 0.15


@each_head
def test_a_row_alone_in_its_class_is_never_taken_for_it_when_held_out(head: Head):
    features, labels = shots((1, 4, 5, 1))
    for scores in (head.held_out(features, labels, N_CLASSES), head.in_folds(features, labels, N_CLASSES)):
        expected = one_hot(labels, N_CLASSES).bool() & ((labels == 0) | (labels == 3))[:, None]
        assert torch.equal(scores == -torch.inf, expected)
        assert not bool(scores.isnan().any())


@each_head
def test_features_that_are_not_finite_are_refused(head: Head):
    features, labels = shots()
    features[3, 2] = torch.nan
    with pytest.raises(Divergence, match="1 of 20 rows are not, row 3 first"):
        head.fit(features, labels, N_CLASSES)


def test_a_fold_takes_one_row_of_each_class_that_has_two():
    labels = torch.tensor([0, 0, 1, 2, 2, 2])
    assert fold_of_each(labels, 3).tolist() == [0, 1, -1, 0, 1, 2]
    assert fold_of_each(torch.zeros(12, dtype=torch.int64), 1).tolist() == [*range(10), 0, 1]


def test_a_head_is_named_by_its_kind():
    adapter: TypeAdapter[Head] = TypeAdapter(AnyHead)
    assert adapter.validate_python("ridge") == Ridge()
    assert adapter.validate_python({"kind": "logistic", "strength": 2}) == Logistic(strength=2)


# Coordinates


@pytest.mark.parametrize("dual", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_coordinates_are_the_centred_scaled_rows_turned(dual: bool, weighted: bool):
    features, _ = shots(n_features=12)
    weights = torch.linspace(0.5, 1.5, 20, dtype=torch.float64) if weighted else torch.ones(20, dtype=torch.float64)
    space = coordinates(features, weights, dual=dual)
    centred = features - (weights[:, None] * features).sum(0) / 20
    unit = float((weights * centred.square().sum(1)).mean().sqrt())
    assert space.unit == pytest.approx(unit)
    torch.testing.assert_close(space.rows @ space.basis.T, weights.sqrt()[:, None] * centred / unit)
    torch.testing.assert_close(space.basis.T @ space.basis, torch.eye(12, dtype=torch.float64))
    torch.testing.assert_close(space.rows.T @ space.rows, space.squares.diag())


# Class means


def test_class_means_score_by_squared_distance():
    features, labels = shots()
    query = shots(seed=1)[0]
    scores = Means().scores(Means().fit(features, labels, N_CLASSES), query)
    means = torch.stack([features[labels == label].mean(0) for label in range(N_CLASSES)])
    expected = query.square().sum(1, keepdim=True) - torch.cdist(query, means).square()
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-4)


def test_held_out_class_means_are_those_of_as_many_fits():
    features, labels = shots((2, 3, 4, 5))
    held = Means().held_out(features, labels, N_CLASSES)
    torch.testing.assert_close(held, one_by_one(Means(), features, labels), rtol=1e-5, atol=1e-4)


# Ridge regression


def ridge_by_hand(A: Tensor, Y: Tensor, weights: Tensor, strength: float) -> Tensor:
    """Weights and below them the intercept, by the normal equations of the design with a column of ones."""
    design = torch.cat([A, torch.ones(len(A), 1, dtype=torch.float64)], 1)
    penalty = strength * torch.eye(design.shape[1], dtype=torch.float64)
    penalty[-1, -1] = 0
    weighted = design * weights[:, None]
    return torch.linalg.solve(design.T @ weighted + penalty, weighted.T @ Y)


@pytest.mark.parametrize("n_features", [6, 30])
@pytest.mark.parametrize("strength", [0.03, 1.0])
def test_ridge_solves_the_normal_equations(n_features: int, strength: float):
    features, labels = shots((2, 5, 5, 6), n_features)
    A, Y = scaled(features), one_hot(labels, N_CLASSES).double()
    solution = ridge_by_hand(A, Y, torch.ones(len(A), dtype=torch.float64), strength)
    head = Ridge(strength=strength)
    scores = head.scores(head.fit(features, labels, N_CLASSES), features)
    torch.testing.assert_close(scores, A @ solution[:-1] + solution[-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("n_features", [6, 30])
def test_the_dual_form_of_ridge_is_the_primal_one(n_features: int, balanced: bool):
    features, labels = shots((2, 5, 5, 6), n_features)
    one, other = (RidgeProblem(features, labels, N_CLASSES, balanced=balanced, dual=dual) for dual in (False, True))
    for strength in STRENGTHS:
        torch.testing.assert_close(one.solve(strength), other.solve(strength), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(one.left_out(strength), other.left_out(strength))


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("n_features", [6, 30])
@pytest.mark.parametrize("strength", [0.03, 1.0])
def test_leaving_one_out_of_ridge_is_as_many_fits_without_it(n_features: int, strength: float, balanced: bool):
    features, labels = shots((2, 5, 5, 6), n_features)
    counts = torch.bincount(labels).double()
    weights = len(labels) / (N_CLASSES * counts[labels]) if balanced else torch.ones(len(labels), dtype=torch.float64)
    centred = features - (weights[:, None] * features).mean(0)
    A = centred / (weights * centred.square().sum(1)).mean().sqrt()
    Y = one_hot(labels, N_CLASSES).double()
    expected = []
    for row in range(len(A)):
        others = torch.arange(len(A)) != row
        solution = ridge_by_hand(A[others], Y[others], weights[others], strength)
        expected.append(A[row] @ solution[:-1] + solution[-1])
    held = Ridge(strength=strength, balanced=balanced).held_out(features, labels, N_CLASSES)
    torch.testing.assert_close(held, torch.stack(expected))


def test_ridge_takes_the_strength_with_the_least_squared_error_left_out():
    features, labels = shots(spread=3.0)
    Y = one_hot(labels, N_CLASSES).double()
    errors = {
        strength: float((Ridge(strength=strength).held_out(features, labels, N_CLASSES) - Y).square().mean())
        for strength in STRENGTHS
    }
    chosen = Ridge().chosen_strength(features, labels, N_CLASSES)
    assert chosen == min(errors, key=errors.__getitem__)
    assert torch.equal(
        Ridge().fit(features, labels, N_CLASSES)["weight"],
        Ridge(strength=chosen).fit(features, labels, N_CLASSES)["weight"],
    )
    assert chosen > Ridge().chosen_strength(*shots(spread=0.1), N_CLASSES)


def test_one_row_a_class_says_nothing_about_the_strength_of_ridge():
    features, labels = shots((1, 1, 1, 1))
    assert Ridge().chosen_strength(features, labels, N_CLASSES) == ONE_SHOT_STRENGTH


def test_repeating_the_rows_of_a_class_changes_nothing_where_classes_are_balanced():
    features, labels = shots((3, 3, 3, 3))
    often = torch.cat([torch.arange(12), (labels == 2).nonzero()[:, 0], (labels == 2).nonzero()[:, 0]])
    weights = [torch.tensor([1.0, 1.0, 1.0, 1.0]) * n / (4 * 3) for n in (12, 18)]
    assert float(weights[1].sum()) > float(weights[0].sum())  # a strength counts for less with more rows
    once = Ridge(strength=0.2, balanced=True).fit(features, labels, N_CLASSES)
    repeated = Ridge(strength=0.2 * 18 / 12, balanced=True).fit(features[often], labels[often], N_CLASSES)
    torch.testing.assert_close(once, repeated, rtol=1e-4, atol=1e-5)


# Logistic regression


@pytest.mark.parametrize("counts", [(5, 5, 5, 5), (1, 7, 2, 3), (1, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("strength", [0.01, 1.0])
@pytest.mark.parametrize("n_features", [6, 30])
def test_logistic_regression_is_that_of_scikit_learn(counts: tuple[int, ...], strength: float, n_features: int):
    features, labels = shots(counts, n_features)
    A = scaled(features).numpy()
    theirs = LogisticRegression(C=1 / strength, tol=1e-9, max_iter=20_000).fit(A, labels.numpy())
    expected = theirs.predict_log_proba(A)
    head = Logistic(strength=strength)
    chances = head.scores(head.fit(features, labels, N_CLASSES), features).log_softmax(1)
    np.testing.assert_allclose(chances, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("tolerance", "rounding"), [(logistic.HELD_OUT_TOLERANCE, 1e-2), (1e-7, 1e-4)])
def test_held_out_logistic_regression_is_fitted_without_the_fold(
    tolerance: float, rounding: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logistic, "HELD_OUT_TOLERANCE", tolerance)
    features, labels = shots((2, 3, 4, 1))
    held, turns = Logistic().held_out(features, labels, N_CLASSES), fold_of_each(labels, N_CLASSES)
    A = scaled(features).numpy()
    for fold in range(4):
        out = (turns == fold).numpy()
        theirs = LogisticRegression(C=100, tol=1e-9, max_iter=20_000).fit(A[~out], labels.numpy()[~out])
        np.testing.assert_allclose(held.log_softmax(1)[out], theirs.predict_log_proba(A[out]), rtol=0, atol=rounding)


def test_fifty_classes_of_five_shots_are_fitted_faster_than_by_scikit_learn():
    features, labels = shots((5,) * 50, 1280, spread=2.0)
    A, y = scaled(features).numpy(), labels.numpy()
    theirs = LogisticRegression(C=100, tol=logistic.TOLERANCE, max_iter=2000)

    def seconds(job: Callable[[], object]) -> float:
        """The best of three: what else the machine does matters less."""
        times = []
        for _ in range(3):
            began = time.thread_time()
            job()
            times.append(time.thread_time() - began)
        return min(times)

    with threadpool_limits(1):
        own, peer = seconds(lambda: Logistic().fit(features, labels, 50)), seconds(lambda: theirs.fit(A, y))
        ridge = seconds(lambda: Ridge().fit(features, labels, 50))
    print(f"logistic: {own / peer:.2f} of scikit-learn's time; ridge: {ridge / own:.3f} of logistic's")
    assert own < peer
    assert ridge < own / 2


# Blend and Rooted


def test_a_blend_is_the_sum_of_its_parts_each_in_units_of_its_spread():
    features, labels = shots((5, 4, 3, 2))
    blend = Blend()
    parts = [head.scores(head.fit(features, labels, N_CLASSES), features) for head in (blend.ridge, blend.discriminant)]
    expected = sum(part / part.std(1).mean() for part in parts)
    scores = blend.scores(blend.fit(features, labels, N_CLASSES), features)
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-4)


def test_a_blend_of_single_rows_is_ridge_regression():
    features, labels = shots((1, 1, 1, 1))
    blend = Blend()
    expected = blend.ridge.fit(features, labels, N_CLASSES)
    torch.testing.assert_close(blend.fit(features, labels, N_CLASSES), expected)


def test_a_rooted_head_is_the_other_head_on_unit_roots():
    features, labels = shots()
    features[:, ::2] *= -1
    inner = LinearDiscriminant()
    expected = inner.fit(root(features), labels, N_CLASSES)
    head = Rooted(head=inner)
    fitted = head.fit(features, labels, N_CLASSES)
    torch.testing.assert_close(fitted, expected)
    torch.testing.assert_close(head.scores(fitted, features), inner.scores(expected, root(features)))
    torch.testing.assert_close(
        head.held_out(features, labels, N_CLASSES), inner.held_out(root(features), labels, N_CLASSES)
    )


def test_roots_keep_their_sign_have_length_one_and_zero_stays_zero():
    rows = torch.tensor([[9.0, -16.0, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(root(rows), torch.tensor([[0.6, -0.8, 0.0], [0.0, 0.0, 0.0]]))


def test_a_rooted_head_takes_its_inner_head_by_name():
    head = TypeAdapter(AnyHead).validate_python({"kind": "rooted", "head": "ridge"})
    assert head == Rooted(head=Ridge())
