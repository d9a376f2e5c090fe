"""The neural gas by hand: moves by rank, ages of edges, and what becomes of nodes."""

import math

import torch
from torch import Tensor

from fscl.continual.neural_gas import Graph, grown, no_graph, see, settled
from fscl.rng import generator


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def graph(centroids: Tensor, *labels: int) -> Graph:
    none = no_graph(centroids.shape[1], centroids.dtype, torch.device("cpu"))
    return none.with_nodes(centroids, torch.zeros_like(centroids), torch.tensor(labels))


def test_three_nodes_on_a_line_move_by_their_rank():
    centroids, ages = column(0.0, 10.0, 4.0), torch.zeros(3, 3, dtype=torch.int64)
    see(centroids, ages, column(1.0)[0], rate=0.1, reach=2.0)
    shares = [0.1, 0.1 * math.exp(-2 / 2), 0.1 * math.exp(-1 / 2)]  # ranks 0, 2 and 1
    torch.testing.assert_close(centroids, column(0.0 + shares[0], 10.0 - 9 * shares[1], 4.0 - 3 * shares[2]))
    assert ages.tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


def test_edges_grow_older_and_go_over_four_inputs():
    centroids, ages = column(0.0, 1.0, 3.0), torch.zeros(3, 3, dtype=torch.int64)
    seen = []
    for value in (0.4, 1.9, 2.4, 1.8):  # the nearest two: (0, 1), (1, 2), (2, 1), (1, 2)
        see(centroids, ages, column(value)[0], rate=1e-9, max_age=2)
        assert torch.equal(ages, ages.T)
        seen.append((int(ages[0, 1]), int(ages[1, 2]), int(ages[0, 2])))
    assert seen == [(1, 0, 0), (2, 1, 0), (2, 1, 0), (0, 1, 0)]  # older than 2 at the fourth, and gone


def test_one_node_alone_moves_and_has_no_edge():
    centroids, ages = column(0.0), torch.zeros(1, 1, dtype=torch.int64)
    see(centroids, ages, column(1.0)[0], rate=0.5)
    assert centroids.item() == 0.5
    assert ages.item() == 0


def test_a_node_takes_the_class_of_most_of_what_it_wins_of_equally_many_the_lower_and_goes_without_any():
    features, labels = column(0.1, -0.2, 10.0, 10.4, 9.7), torch.tensor([3, 2, 4, 1, 4])
    found, shown = settled(graph(column(0.0, 50.0, 10.0), 9, 9, 9), features, labels)
    assert found.labels.tolist() == [2, 4]  # a tie of 2 and 3; two against one
    assert found.centroids[:, 0].tolist() == [0.0, 10.0]
    assert shown.tolist() == [1, 2]  # 10.0 is nearer to its node than 9.7
    torch.testing.assert_close(found.variances, column(0.0, 0.15**2))
    assert found.ages.shape == (2, 2)


def test_nodes_are_chosen_with_the_edges_between_them():
    ages = torch.tensor([[0, 5, 7], [5, 0, 0], [7, 0, 0]])
    whole = Graph(column(0.0, 1.0, 2.0), column(0.0, 0.0, 0.0), torch.tensor([0, 1, 2]), ages)
    part = whole.chosen(torch.tensor([2, 0]))
    assert part.ages.tolist() == [[0, 7], [7, 0]]
    assert part.labels.tolist() == [2, 0]
    more = part.with_nodes(column(9.0), column(0.5), torch.tensor([4]))
    assert more.ages.tolist() == [[0, 7, 0], [7, 0, 0], [0, 0, 0]]
    assert more.variances[:, 0].tolist() == [0.0, 0.0, 0.5]
    assert torch.equal(whole.ages, ages)


def test_a_gas_spreads_over_what_it_sees_with_the_same_bits_each_time():
    random = generator(0, "points")
    labels = torch.arange(4).repeat_interleave(30)
    features = 3 * torch.nn.functional.one_hot(labels).float() + 0.2 * torch.randn(120, 4, generator=random)
    one, other = (grown(features, labels, 12, passes=3, random=generator(0, "gas")) for _ in range(2))
    assert torch.equal(one.centroids, other.centroids)
    found, shown = settled(one, features, labels)
    assert set(found.labels.tolist()) == {0, 1, 2, 3}
    assert torch.equal(labels[shown], found.labels)
    own = torch.stack([features[labels == label].mean(0) for label in range(4)])[found.labels]
    assert float((found.centroids - own).norm(dim=1).max()) < 1.0
