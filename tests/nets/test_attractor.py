"""Rows that are solved for: the optimum by hand, its limits, its gradient, and the attention that makes attractors."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.nets.attractor import (
    RIDGE,
    SupportLoss,
    attention_attractors,
    attention_shares,
    init_attention,
    learned_rows,
    mean_rows,
    solved_rows,
    with_one,
)
from fscl.nets.params import Params
from fscl.rng import generator


def drawn(*shape: int, name: str) -> Tensor:
    return torch.randn(shape, generator=generator(0, name), dtype=torch.float64)


def a_problem(gamma: float = 0.3) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Six examples of two new classes on three features, beside four fixed rows; attractors and γ."""
    features, labels = drawn(6, 3, name="features"), torch.tensor([0, 1, 0, 1, 1, 0])
    fixed = with_one(features) @ drawn(4, 4, name="fixed").T
    return features, labels, fixed, drawn(2, 4, name="attractors"), gamma * (1 + drawn(4, name="gamma").abs())


def loss_of(problem: tuple[Tensor, ...], rows: Tensor) -> Tensor:
    """The support loss, written down once more with torch."""
    features, labels, fixed, attractors, gamma = problem
    scores = torch.cat([fixed, with_one(features) @ rows.T], 1)
    pull = (gamma * (rows - attractors) ** 2).sum() / len(rows)
    return cross_entropy(scores, fixed.shape[1] + labels) + pull + RIDGE / 2 * (rows**2).sum()


def as_arrays(problem: tuple[Tensor, ...]) -> SupportLoss:
    features, labels, fixed, attractors, gamma = problem
    parts = with_one(features), labels, fixed.logsumexp(1), attractors, gamma
    return SupportLoss(*(part.numpy() for part in parts))


def test_one_class_alone_has_its_attractor_but_for_the_ridge():
    gamma, attractor = 0.2, torch.tensor([[3.0, -1.0]], dtype=torch.float64)
    rows = solved_rows(
        torch.tensor([[2.0]]), torch.tensor([0]), torch.zeros(1, 0), attractor, torch.full((2,), gamma).double()
    )
    torch.testing.assert_close(rows, attractor * 2 * gamma / (2 * gamma + RIDGE))  # its probability is 1 anyway


def test_one_example_beside_one_fixed_score_is_stationary_by_hand():
    feature, fixed, gamma = 2.0, 1.5, 0.25
    rows = solved_rows(
        torch.tensor([[feature]]),
        torch.tensor([0]),
        torch.tensor([[fixed]]),
        torch.zeros(1, 2, dtype=torch.float64),
        torch.full((2,), gamma, dtype=torch.float64),
    )[0]
    weight, bias = rows.tolist()
    wrong = 1 / (1 + np.exp(weight * feature + bias - fixed))  # the probability of the other
    assert wrong * feature == pytest.approx((2 * gamma + RIDGE) * weight, abs=1e-7)
    assert wrong == pytest.approx((2 * gamma + RIDGE) * bias, abs=1e-7)
    assert weight == pytest.approx(feature * bias)


def test_loss_gradient_and_hessian_are_those_of_torch():
    problem, rows = a_problem(), drawn(2, 4, name="rows").requires_grad_()
    arrays = as_arrays(problem)
    loss = loss_of(problem, rows)
    (gradient,) = torch.autograd.grad(loss, rows, create_graph=True)
    direction = drawn(2, 4, name="direction")
    (product,) = torch.autograd.grad((gradient * direction).sum(), rows)
    value, found = arrays.value_and_gradient(rows.detach().numpy())
    assert value == pytest.approx(loss.item(), rel=1e-12)
    np.testing.assert_allclose(found, gradient.detach().numpy(), rtol=1e-10)
    curved = arrays.hessian_product(rows.detach().numpy(), direction.numpy())
    np.testing.assert_allclose(curved, product.numpy(), rtol=1e-10)


def test_the_solution_has_no_gradient_left():
    arrays = as_arrays(a_problem())
    assert np.abs(arrays.value_and_gradient(arrays.minimum())[1]).max() < 1e-7


def test_a_firm_hold_gives_the_attractors_and_a_loose_one_long_rows():
    features, labels = torch.tensor([[-1.0], [1.0]]), torch.tensor([0, 1])
    attractors = drawn(2, 2, name="attractors")

    def rows(gamma: float) -> Tensor:
        held = torch.full((2,), gamma, dtype=torch.float64)
        return solved_rows(features, labels, torch.zeros(2, 0), attractors, held)

    torch.testing.assert_close(rows(1e8), attractors, rtol=0, atol=1e-6)
    lengths = [rows(gamma).norm().item() for gamma in (1.0, 1e-2, 1e-4)]
    assert lengths[0] < lengths[1] < lengths[2]  # the two classes can be told apart, so only γ keeps the rows short
    assert lengths[2] > 5


def query_loss(rows: Tensor) -> Tensor:
    scores = torch.cat([with_one(drawn(5, 3, name="query")) @ rows.T, torch.zeros(5, 1, dtype=torch.float64)], 1)
    return cross_entropy(scores, torch.tensor([0, 1, 2, 0, 1]))


def solved_gradients(problem: tuple[Tensor, ...], damping: float) -> tuple[Tensor, Tensor]:
    features, labels, fixed, attractors, gamma = problem
    leaves = attractors.clone().requires_grad_(), gamma.clone().requires_grad_()
    loss = query_loss(solved_rows(features, labels, fixed, *leaves, damping=damping))
    return torch.autograd.grad(loss, leaves)  # type: ignore[return-value]


def test_the_gradient_through_the_solution_agrees_with_finite_differences():
    problem, size = a_problem(), 5e-3
    features, labels, fixed, attractors, gamma = problem
    found = solved_gradients(problem, 0.0)
    for number, shape in enumerate((attractors.shape, gamma.shape)):
        direction = drawn(*shape, name=f"direction {number}")

        def at(step: float, number: int = number, direction: Tensor = direction) -> float:
            moved = [attractors, gamma]
            moved[number] = moved[number] + step * direction
            return query_loss(solved_rows(features, labels, fixed, *moved)).item()

        # to the fourth order, so that a large step serves and rounding counts little
        difference = (8 * (at(size) - at(-size)) - (at(2 * size) - at(-2 * size))) / (12 * size)
        assert (found[number] * direction).sum().item() == pytest.approx(difference, rel=1e-6)


def test_conjugate_gradients_agree_with_the_neumann_series_where_it_converges():
    arrays, damping = as_arrays(a_problem()), 0.1
    rows, right = arrays.minimum(), drawn(2, 4, name="right").numpy()
    n = rows.size
    hessian = np.stack([arrays.hessian_product(rows, unit.reshape(rows.shape)).ravel() for unit in np.eye(n)])
    assert np.linalg.eigvalsh(hessian).max() < 2 - damping
    total, term = np.zeros(n), right.ravel().copy()
    for _ in range(2000):
        total += term
        term = term - hessian @ term - damping * term
    np.testing.assert_allclose(arrays.solve(rows, right, damping).ravel(), total, rtol=1e-7)


def an_attention() -> Params:
    weights = init_attention(3, hidden=5, gamma=0.1, tau=2.0, generator=generator(0, "attention"))
    return {name: tensor.double() + drawn(*tensor.shape, name=name) for name, tensor in weights.items()}


def test_a_masked_class_keeps_its_share_of_the_attention():
    keys, means = drawn(4, 3, name="keys"), drawn(2, 3, name="means")
    keys[1] = 0
    shares = attention_shares(means, keys, torch.tensor(1.5).double())
    cosines = torch.nn.functional.normalize(means, dim=1) @ torch.nn.functional.normalize(keys, dim=1).T
    assert cosines[:, 1].tolist() == [0.0, 0.0]
    torch.testing.assert_close(shares, (1.5 * cosines).softmax(1))
    torch.testing.assert_close(shares.sum(1), torch.ones(2).double())
    assert (shares[:, 1] > 0).all()


def test_without_sharpness_the_attractor_is_the_mean_of_all_values():
    weights, keys, means = an_attention(), drawn(4, 3, name="keys"), drawn(2, 3, name="means")
    values = torch.tanh(keys @ weights["hidden/weight"].T + weights["hidden/bias"]) @ weights["out/weight"].T
    expected = weights["static"] + (values + weights["out/bias"]).mean(0)
    found = attention_attractors(weights, means, keys, torch.zeros(()).double())
    torch.testing.assert_close(found, expected.repeat(2, 1))
    assert not torch.allclose(attention_attractors(weights, means, keys), found)


def test_rows_of_means_score_as_distances_do():
    means, features = drawn(3, 4, name="means"), drawn(5, 4, name="features")
    scores = with_one(features) @ mean_rows(means, 2.0).T
    away = torch.cdist(features, means) ** 2 / 2
    torch.testing.assert_close(scores - scores[:, :1], away[:, :1] - away)


def test_earlier_rows_stand_still_but_for_a_class_that_returns_which_is_pulled_to_its_own():
    known, base = drawn(2, 4, name="known"), drawn(1, 4, name="base")
    features, labels = drawn(3, 3, name="features"), torch.tensor([2, 1, 2])
    firm = torch.full((4,), 1e8, dtype=torch.float64)
    rows = learned_rows(known, base, features, labels, lambda means, _: mean_rows(means, 1.0), firm)
    own = mean_rows(features[[0, 2]].mean(0, keepdim=True), 1.0)
    torch.testing.assert_close(rows, torch.cat([known, own]), rtol=0, atol=1e-6)
    loose = torch.full((4,), 0.1, dtype=torch.float64)
    rows = learned_rows(known, base, features, labels, lambda means, _: mean_rows(means, 1.0), loose)
    assert torch.equal(rows[0], known[0])
    assert not torch.allclose(rows[1], known[1])
    others = with_one(features) @ torch.cat([base, known[:1]]).T
    attractors = torch.cat([known[1:], own])
    torch.testing.assert_close(rows[1:], solved_rows(features, torch.tensor([1, 0, 1]), others, attractors, loose))
