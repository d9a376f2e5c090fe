"""Decoders of a memory: votes by hand, what they do not depend on, and what an untrained one is."""

import math

import pytest
import torch
from torch import Tensor

from fscl.nets.decoders import (
    LEAST_LOG_PROBABILITY,
    class_scores,
    init_decoder,
    kernel_scores,
    label_scores,
    n_labels_of,
    neighbour_slots,
    slot_loss,
    squared_distances,
    with_empty_slots,
)
from fscl.nets.params import Params
from fscl.rng import generator


def drawn(*shape: int, name: str) -> Tensor:
    return torch.randn(shape, generator=generator(0, name))


def a_decoder(n_labels: int | None = None, blocks: int = 2, width: int = 6) -> Params:
    """One whose weights are all away from where they start."""
    weights = init_decoder(width, hidden=64, blocks=blocks, n_labels=n_labels, generator=generator(0, "decoder"))
    return {name: tensor + 0.2 * drawn(*tensor.shape, name=name) for name, tensor in weights.items()}


def test_neighbours_vote_for_their_labels_by_their_distance():
    keys = torch.tensor([[[1.0], [-2.0], [1.5]]])  # at squared distances 1, 4 and 2.25 from 0
    scores = kernel_scores(torch.zeros(1, 1), keys, torch.tensor([[1, 0, 1]]), 3)[0]
    total = math.exp(-1) + math.exp(-4) + math.exp(-2.25)
    expected = [math.log(math.exp(-4) / total), math.log((math.exp(-1) + math.exp(-2.25)) / total)]
    assert scores.tolist() == pytest.approx([*expected, LEAST_LOG_PROBABILITY], rel=1e-5)


def test_the_loss_is_that_of_the_vote_however_unlikely_and_infinite_without_one():
    slots, labels = torch.tensor([[0.0, -300.0, -1.0]]).repeat(3, 1), torch.tensor([[0, 1, 0]]).repeat(3, 1)
    losses = slot_loss(slots, labels, torch.tensor([0, 1, 2]))
    assert losses[0].item() == pytest.approx(0.0, abs=1e-6)
    assert losses[1].item() == pytest.approx(300 + math.log(1 + math.exp(-1)))
    assert losses[2].item() == math.inf


@pytest.mark.parametrize("k", [1, 5])
def test_an_untrained_decoder_is_the_kernel_vote(k: int):
    weights = init_decoder(6, hidden=64, blocks=2, n_labels=None, generator=generator(0, "decoder"))
    query, keys = drawn(20, 6, name="query"), drawn(20, k, 6, name="keys")
    labels = torch.randint(4, (20, k), generator=generator(0, "labels"))
    slots = neighbour_slots(weights, query, keys, labels)
    torch.testing.assert_close(slots, -squared_distances(query, keys))
    decoded, voted = class_scores(slots, labels, 4), kernel_scores(query, keys, labels, 4)
    assert torch.equal(decoded.argmax(1), voted.argmax(1))
    if k == 1:
        assert torch.equal(decoded.argmax(1), labels[:, 0])


@pytest.mark.parametrize("n_labels", [None, 4])
def test_the_order_of_neighbours_does_not_matter(n_labels: int | None):
    weights, query, keys = a_decoder(n_labels), drawn(3, 6, name="query"), drawn(3, 5, 6, name="keys")
    keys = query[:, None] + torch.nn.functional.normalize(keys, dim=2)  # all at the same distance
    labels, order = torch.tensor([[0, 1, 0, 2, 3]]).repeat(3, 1), torch.tensor([3, 0, 4, 1, 2])

    def answers(keys: Tensor, labels: Tensor) -> Tensor:
        if n_labels is not None:
            return label_scores(weights, query, keys, labels)
        return class_scores(neighbour_slots(weights, query, keys, labels), labels, 4)

    torch.testing.assert_close(answers(keys[:, order], labels[:, order]), answers(keys, labels))


def test_other_names_for_the_labels_give_the_same_answers_under_these_names():
    weights, query, keys = a_decoder(), drawn(3, 6, name="query"), drawn(3, 5, 6, name="keys")
    labels, names = torch.tensor([[0, 1, 0, 2, 3]]).repeat(3, 1), torch.tensor([2, 3, 1, 0])
    slots, renamed = neighbour_slots(weights, query, keys, labels), neighbour_slots(weights, query, keys, names[labels])
    assert torch.equal(slots, renamed)
    assert torch.equal(class_scores(renamed, names[labels], 4)[:, names], class_scores(slots, labels, 4))


def test_which_labels_are_equal_matters():
    weights, query, keys = a_decoder(), drawn(3, 6, name="query"), drawn(3, 5, 6, name="keys")
    pairs, all_differ = torch.tensor([[0, 1, 0, 2, 3]]).repeat(3, 1), torch.arange(5).repeat(3, 1)
    one, other = (neighbour_slots(weights, query, keys, labels) for labels in (pairs, all_differ))
    assert not torch.allclose(one, other)


def test_an_empty_slot_has_its_own_label_and_weighs_by_its_distance_to_zero():
    weights = init_decoder(1, hidden=32, blocks=0, n_labels=2, generator=generator(0, "decoder"))
    weights = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
    weights["embedding"][2, 0] = 1.0  # the label of empty slots
    weights["slots/weight"][0, 1] = 1.0  # passes the first number of the label's embedding on, after one feature
    weights["out/weight"][0, 0] = 1.0
    keys, labels = with_empty_slots(torch.tensor([[3.0]]), torch.tensor([1]), 2, 2)
    assert labels.tolist() == [1, 2, 2]
    query = torch.tensor([[1.0]])  # at squared distance 4 from the key, and 1 from empty slots
    found = label_scores(weights, query, keys[None], labels[None])[0, 0].item()
    assert found == pytest.approx(2 * math.exp(-1) / (math.exp(-4) + 2 * math.exp(-1)))


def test_a_decoder_says_how_many_labels_it_can_tell():
    assert n_labels_of(a_decoder(7)) == 7
    assert n_labels_of(a_decoder()) is None
    assert n_labels_of({}) is None
