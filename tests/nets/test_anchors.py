"""Anchors: the divergence of what they say, worked out by hand."""

import math

import pytest
import torch

from fscl.nets.anchors import anchor_log_shares, discriminant_divergence, feature_distance

ANCHORS = torch.tensor([[0.0, 1.0, 0.0], [2.0, 1.0, 0.0], [0.5, -1.0, 0.0]], dtype=torch.float64)


def test_shares_fall_with_the_squared_distance_over_the_temperature():
    features = torch.rand(4, 3, dtype=torch.float64)
    by_hand = (-torch.cdist(features, ANCHORS).square() / 0.7).softmax(1)
    torch.testing.assert_close(anchor_log_shares(features, ANCHORS, 0.7).exp(), by_hand)


def test_where_nothing_moved_divergence_and_gradient_are_zero():
    old = torch.rand(5, 3, dtype=torch.float64)
    features = old.clone().requires_grad_()
    divergence = discriminant_divergence(features, old, ANCHORS, 1.0)
    divergence.backward()
    assert divergence.item() == pytest.approx(0, abs=1e-12)
    assert features.grad is not None
    assert features.grad.abs().max() < 1e-12


def test_one_anchor_says_nothing():
    old = torch.rand(5, 3)
    assert discriminant_divergence(old + torch.randn(5, 3), old, ANCHORS[:1].float(), 1.0).item() == 0.0


def test_two_anchors_on_a_line_are_two_bernoullis():
    anchors, old = (torch.tensor(rows, dtype=torch.float64) for rows in ([[0.0], [3.0]], [[1.2]]))
    s, temperature = 0.4, 2.0
    logit = (-(1.2**2) + (1.2 - 3) ** 2) / temperature
    moved = logit + 2 * (0.0 - 3.0) * s / temperature  # by 2 (c_1 - c_2) s
    p, q = (1 / (1 + math.exp(-z)) for z in (logit, moved))
    by_hand = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    found = discriminant_divergence(old + s, old, anchors, temperature)
    assert found.item() == pytest.approx(by_hand, rel=1e-9)


def test_a_shift_at_right_angles_to_all_differences_of_anchors_is_free_where_features_are_not_held():
    old = torch.rand(5, 3, dtype=torch.float64)
    shifted = old + torch.tensor([0.0, 0.0, 4.0])
    assert discriminant_divergence(shifted, old, ANCHORS, 1.0).item() == pytest.approx(0, abs=1e-12)
    assert feature_distance(shifted, old, 2.0).item() == pytest.approx(8.0)
    assert discriminant_divergence(old + torch.tensor([1.0, 0, 0]), old, ANCHORS, 1.0).item() > 0.1


def test_the_divergence_is_that_of_the_new_from_the_old_with_the_right_gradient():
    old = torch.rand(3, 3, dtype=torch.float64)
    moved = (old + 0.3 * torch.rand(3, 3, dtype=torch.float64)).requires_grad_()
    p, q = (anchor_log_shares(x, ANCHORS, 1.0) for x in (old, moved))
    torch.testing.assert_close(discriminant_divergence(moved, old, ANCHORS, 1.0), (p.exp() * (p - q)).sum(1).mean())
    assert torch.autograd.gradcheck(lambda x: discriminant_divergence(x, old, ANCHORS, 1.0), (moved,))
