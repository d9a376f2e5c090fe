"""Probably wrong labels."""

import pytest
import torch
from torch import Tensor

from fscl.classifier.doubts import find_doubts, neighbour_scores

N_CLASSES, N_SHOT, D = 10, 8, 40


def clusters(spread: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(N_CLASSES).repeat_interleave(N_SHOT)
    means = torch.randn(N_CLASSES, D, generator=random)
    return means[labels] + spread * torch.randn(len(labels), D, generator=random), labels


def swapped(labels: Tensor, positions: list[int]) -> Tensor:
    wrong = labels.clone()
    wrong[positions] = (wrong[positions] + 3) % N_CLASSES
    return wrong


def scores_without(features: Tensor, labels: Tensor) -> Tensor:
    """Minus the distance to each class's mean, taken without the example."""
    scores = torch.empty(len(features), N_CLASSES)
    for i in range(len(features)):
        keep = torch.arange(len(features)) != i
        means = torch.stack([features[keep & (labels == c)].mean(0) for c in range(N_CLASSES)])
        scores[i] = -(features[i] - means).norm(dim=1)
    return scores


def test_labels_swapped_between_separable_classes_are_found_with_the_right_suggestion():
    for seed in range(4):
        features, truth = clusters(0.5, seed)
        positions = [3, 21, 44, 70]
        labels = swapped(truth, positions)
        doubts = find_doubts(scores_without(features, labels), features, labels, torch.arange(len(labels)))
        assert sorted(d.position for d in doubts) == positions
        assert all(d.suggestion == truth[d.position] for d in doubts)
        assert all(0.3 <= d.confidence <= 1 for d in doubts)


def test_right_labels_of_separable_classes_are_not_doubted():
    for seed in range(4):
        features, labels = clusters(0.5, seed)
        assert find_doubts(scores_without(features, labels), features, labels, torch.arange(len(labels))) == []


def test_right_labels_of_classes_that_overlap_are_hardly_doubted_though_many_answers_are_wrong():
    n_doubts = n_wrong = 0
    for seed in range(4):
        features, labels = clusters(2.5, seed)
        scores = scores_without(features, labels)
        n_wrong += int((scores.argmax(1) != labels).sum())
        n_doubts += len(find_doubts(scores, features, labels, torch.arange(len(labels))))
    assert n_wrong > 4 * 20
    assert n_doubts <= 4


def test_the_surest_comes_first_and_a_higher_demand_lists_fewer():
    features, truth = clusters(1.0)
    labels = swapped(truth, [3, 21, 44, 70])
    scores, groups = scores_without(features, labels), torch.arange(len(labels))
    loose = find_doubts(scores, features, labels, groups, least_confidence=0.01)
    confidences = [d.confidence for d in loose]
    assert confidences == sorted(confidences, reverse=True)
    assert len(set(confidences)) > 1
    strict = find_doubts(scores, features, labels, groups, least_confidence=confidences[1])
    assert strict == loose[:2]


def test_an_example_both_opinions_of_which_must_agree_is_not_listed_on_the_word_of_one():
    features, truth = clusters(0.5)
    labels = swapped(truth, [3])
    scores, groups = scores_without(features, labels), torch.arange(len(labels))
    assert [d.position for d in find_doubts(scores, features, labels, groups)] == [3]
    dissent = scores.clone()
    dissent[3] = dissent[3].roll(1)  # the head now answers with a third class
    assert find_doubts(dissent, features, labels, groups) == []


def test_a_duplicate_with_the_same_wrong_label_does_not_vouch_for_it():
    features, truth = clusters(0.5)
    features[4] = features[3]
    labels = swapped(truth, [3, 4])
    groups = torch.arange(len(labels))
    groups[4] = 3
    rest = torch.arange(len(labels)) != 4
    scores = scores_without(features, labels)
    scores[3] = scores_without(features[rest], labels[rest])[3]  # duplicates are left out together
    scores[4] = scores[3]
    doubts = find_doubts(scores, features, labels, groups, least_confidence=0.2)
    assert [(d.position, d.suggestion) for d in doubts] == [(3, 0), (4, 0)]
    assert find_doubts(scores, features, labels, torch.arange(len(labels)), least_confidence=0.2) == []


def test_an_example_alone_in_its_class_is_never_listed():
    features, truth = clusters(0.5)
    labels = truth.clone()
    labels[3] = N_CLASSES
    scores = torch.cat([scores_without(features, truth), torch.full((len(labels), 1), -torch.inf)], 1)
    assert find_doubts(scores, features, labels, torch.arange(len(labels))) == []


@pytest.mark.parametrize(("n", "n_classes"), [(0, 0), (4, 1), (3, 3)])
def test_nothing_is_listed_where_nothing_can_be_compared(n: int, n_classes: int):
    labels = torch.arange(n) % max(n_classes, 1)
    features = torch.randn(n, 3, generator=torch.Generator().manual_seed(0))
    assert find_doubts(torch.zeros(n, n_classes), features, labels, torch.arange(n)) == []


def test_neighbour_scores_by_hand():
    features = torch.tensor([[1.0, 0], [0, 1], [-1, 0], [0, -1]])  # their mean is 0; cosines are 0 or -1
    others = ~torch.eye(4, dtype=torch.bool)
    scores = neighbour_scores(features, torch.tensor([0, 0, 1, 1]), others, 2)
    expected = torch.tensor([[0, -0.5], [0, -0.5], [-0.5, 0], [-0.5, 0]], dtype=torch.float64)
    torch.testing.assert_close(scores, expected)
