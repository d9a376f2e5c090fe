"""Neural gas: nodes that spread over features, joined by edges where two of them are the nearest to the same feature.

T. Martinetz, K. Schulten, "A 'neural-gas' network learns topologies", 1991; as X. Tao et al. 2020 use it (TOPIC).

A feature moves every node towards it, by less the more nodes are nearer: m_i += rate · exp(−rank / reach) · (f − m_i). The
nearest two are joined by an edge of age 1; the other edges of the nearest grow older by 1, and go when they are too old.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fscl.continual.frozen import distances

RATE, REACH, MAX_AGE = 0.02, 1.0, 200  # η, α and T
FARTHEST = 20  # in units of the reach: nodes of a higher rank would move by less than float32 can tell


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes and edges.

    Attributes:
        centroids: (n, n_features).
        variances: (n, n_features), of the features that each node stands for.
        labels: (n,), the class of each node.
        ages: (n, n) int64, symmetric: the age of the edge between two nodes, 0 where there is none.
    """

    centroids: Tensor
    variances: Tensor
    labels: Tensor
    ages: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def chosen(self, nodes: Tensor) -> "Graph":
        """These nodes alone, in this order, with the edges between them."""
        ages = self.ages[nodes][:, nodes]
        return Graph(self.centroids[nodes], self.variances[nodes], self.labels[nodes], ages)

    def with_nodes(self, centroids: Tensor, variances: Tensor, labels: Tensor) -> "Graph":
        """With more nodes, which no edge leads to yet."""
        ages = self.ages.new_zeros(len(self) + len(labels), len(self) + len(labels))
        ages[: len(self), : len(self)] = self.ages
        return Graph(
            torch.cat([self.centroids, centroids]),
            torch.cat([self.variances, variances]),
            torch.cat([self.labels, labels]),
            ages,
        )

    def after(self, features: Tensor, *, max_age: int = MAX_AGE) -> "Graph":
        """The graph once it has seen these features, one after another: nodes moved, edges made and lost."""
        centroids, ages = self.centroids.clone(), self.ages.clone()
        for feature in features:
            see(centroids, ages, feature, max_age=max_age)
        return replace(self, centroids=centroids, ages=ages)


def no_graph(n_features: int, dtype: torch.dtype, device: torch.device) -> Graph:
    """Without nodes."""
    rows = torch.zeros(0, n_features, dtype=dtype, device=device)
    numbers = torch.zeros(0, dtype=torch.int64, device=device)
    return Graph(rows, rows, numbers, numbers.reshape(0, 0))


def see(
    centroids: Tensor,
    ages: Tensor,
    feature: Tensor,
    *,
    rate: float = RATE,
    reach: float = REACH,
    max_age: int = MAX_AGE,
) -> None:
    """Show one feature to the gas; changes `centroids` and `ages`."""
    n_near = min(len(centroids), max(2, math.ceil(FARTHEST * reach)))
    order = distances(feature[None], centroids)[0].argsort(stable=True)[:n_near]
    shares = rate * torch.exp(-torch.arange(n_near).to(centroids) / reach)
    centroids[order] += shares[:, None] * (feature - centroids[order])
    if n_near < 2:
        return
    first, second = int(order[0]), int(order[1])
    older = ages[first] + (ages[first] > 0).long()
    older[second] = 1
    older[older > max_age] = 0
    ages[first], ages[:, first] = older, older


def grown(features: Tensor, labels: Tensor, n_nodes: int, *, passes: int, random: torch.Generator) -> Graph:
    """A gas of `n_nodes` nodes that has seen all features several times, in random order; its nodes have no class yet."""
    start = torch.randperm(len(features), generator=random)[:n_nodes].to(features.device)
    graph = no_graph(features.shape[1], features.dtype, features.device)
    graph = graph.with_nodes(features[start].clone(), torch.zeros_like(features[start]), labels[start])
    for _ in range(passes):
        graph = graph.after(features[torch.randperm(len(features), generator=random).to(features.device)])
    return graph


def settled(graph: Graph, features: Tensor, labels: Tensor) -> tuple[Graph, Tensor]:
    """The graph with the class and variance of each node, and the position of the feature that stands for each.

    A node wins the features that it is nearest to, and takes the class of most of them, of equally many the lower label. Of
    that class are its variance and the feature that stands for it, the nearest. Nodes that win nothing go.
    """
    away = distances(features, graph.centroids)
    winner = away.argmin(1)
    nodes, classes, variances, shown = [], [], [], []
    for node in range(len(graph)):
        won = torch.where(winner == node)[0]
        if not len(won):
            continue
        label = torch.bincount(labels[won]).argmax()
        own = won[labels[won] == label]
        nodes.append(node)
        classes.append(label)
        variances.append(features[own].var(0, correction=0))
        shown.append(own[away[own, node].argmin()])
    left = graph.chosen(torch.tensor(nodes).to(labels.device))
    return replace(left, labels=torch.stack(classes), variances=torch.stack(variances)), torch.stack(shown)
