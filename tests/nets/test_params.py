"""Weights as values: what is computed from them."""

import pytest
import torch

from fscl.nets.params import relative_distance


def test_how_far_weights_moved_is_their_distance_over_the_length_of_the_base():
    start = {"a": torch.tensor([3.0]), "b": torch.tensor([[4.0]])}
    assert relative_distance({"a": torch.tensor([3.0]), "b": torch.tensor([[5.0]])}, start) == pytest.approx(1 / 5)
    assert relative_distance(start, start) == 0
    assert relative_distance({}, {}) == 0
