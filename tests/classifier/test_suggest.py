"""Which pictures to label next."""

import numpy as np
import pytest
import torch

from fscl import ContinualClassifier
from fscl.classifier.suggest import chosen_positions
from fscl.errors import MisuseError
from tests.classifier.models import classifier, examples


def test_the_least_sure_comes_first_and_its_twin_last():
    features = torch.tensor([[0.0], [0.0], [3.0], [10.0]], dtype=torch.float64)
    unsure = torch.tensor([0.9, 0.89, 0.5, 0.1], dtype=torch.float64)
    # after 0: twin 0.89·0 = 0, 0.5·3 = 1.5, 0.1·10 = 1.0; after 2: 0.89·0 = 0, 0.1·7 = 0.7
    assert chosen_positions(features, unsure, 4) == ([0, 2, 3, 1], [None, 3.0, 7.0, 0.0])


def test_a_row_between_two_classes_is_wanted_before_one_that_is_known_well():
    model = ContinualClassifier(method="prototypes").fit([[0.0], [1.0], [10.0], [11.0]], list("aabb"))
    found = model.suggest([[0.5], [5.6], [10.5]], n=1)
    assert [each.position for each in found] == [1]
    assert {label for label, _ in found[0].ranked} == {"a", "b"}
    assert "the least sure of all" in found[0].reason


def test_no_picture_is_suggested_twice():
    model = classifier().fit(*examples(0, 1))
    found = model.suggest(examples(0, 1, 2, start=4)[0], n=100)
    assert sorted(each.position for each in found) == list(range(9))
    with pytest.raises(MisuseError, match="n is 0"):
        model.suggest(np.zeros((1, 16, 16), np.uint8), n=0)


def test_one_class_is_enough():
    model = classifier().fit(*examples(0))
    assert len(model.suggest(examples(1)[0], n=2)) == 2
