"""Attention attractor networks (AAN), second stage: learns what pulls the rows of new classes, on a trained embedding.

M. Ren, R. Liao, E. Fetaya, R. Zemel, "Incremental Few-Shot Learning with Attention Attractor Networks", 2019.

In each episode some training classes play new ones: their base rows are masked, their rows are solved for from the shots
(`fscl.nets.attractor`), and the loss is the cross-entropy of queries of new and of other base classes among all rows. What
is trained is the attractor: an attention from mean features to base rows, and how firmly each entry is held (γ). The
network and the base rows stand still. The gradient passes through the solution by the implicit function theorem.

An episode has `n_way` classes: the first `n_new` play new ones, and of each other class the first query is a base query,
so that n_way = 5 + 25 with 5 queries has as many queries of either side. Validation learns the classes of an episode
`n_new` at a time, as the continual method `aan` does.

Departs from the paper:
- the linear system is solved by conjugate gradients with the Hessian's closed form; the paper's recurrent back-propagation
  is its Neumann series, which diverges where the Hessian has an eigenvalue above 2 - damping;
- base rows may be those of class means, on any base that was trained here; the paper's are those of a linear classifier.
  Features are then centred at the mean of base classes: answers by distance are the same, and cosines tell classes apart;
- a masked class keeps its share of the attention at a cosine of exactly 0; there its row is 1e-7, and the cosine near 0;
- the linear fast model alone, not the one with a hidden layer, which is not convex;
- the search for rows starts from the attractors and goes to the optimum.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.data.episode import Episode
from fscl.data.pool import ClassPool
from fscl.errors import ConfigError
from fscl.meta.base import BaseLearner
from fscl.nets.attractor import (
    GROUP,
    MASKED_SCORE,
    attention_attractors,
    init_attention,
    learned_rows,
    mean_rows,
    solved_rows,
    with_one,
)
from fscl.nets.network import Network, grouped, named
from fscl.nets.params import Params, class_sums
from fscl.nets.trained import NetworkSpec, TrainedNetwork, init_params
from fscl.rng import generator as named_generator


class AttentionAttractor(BaseLearner):
    """Meta-trains attractors for the rows of new classes, on an embedding that is trained already and stands still.

    Attributes:
        attractor: an "attention" to base rows, or one "static" row for all classes.
        rows: of base classes: those of their "means", or those of the classifier that the base to start from "brings".
        temperature: of the rows of means: squared distances are divided by it.
        n_new: how many classes of an episode play new ones, and how many are learned at a time in validation.
        hidden: units of the attention's layer.
        gamma: γ to start from; the paper has 0.01 for five shots, and 0.1 for one.
        tau: τ to start from.
        dropout: of mean features in training.
        damping: ε, added to the Hessian in the gradient; 0 is exact.
    """

    stands_still: ClassVar[bool] = True

    method: str = "aan"
    attractor: Literal["attention", "static"] = "attention"
    rows: Literal["means", "brings"] = "means"
    temperature: float = Field(default=1.0, gt=0)
    n_new: int = Field(default=5, ge=1)
    hidden: int = Field(default=50, ge=1)
    gamma: float = Field(default=0.01, gt=0)
    tau: float = Field(default=2.0, ge=0)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    damping: float = Field(default=0.1, ge=0)

    def init(self, spec: NetworkSpec, *, n_way: int, n_classes: int, generator: torch.Generator) -> Params:
        if n_way <= self.n_new:
            raise ConfigError(
                f"base.train.n_way = {n_way}, of which base.learner.n_new = {self.n_new} play new classes, and the others "
                "are base classes; there must be some. Raise n_way, to 30 as an example."
            )
        backbone = init_params(spec, generator)
        n_features = TrainedNetwork(spec, backbone).n_features
        attention = init_attention(n_features, hidden=self.hidden, gamma=self.gamma, tau=self.tau, generator=generator)
        base_rows = {"weight": torch.zeros(n_classes, n_features), "bias": torch.zeros(n_classes)}
        base_rows["centre"] = torch.zeros(n_features)
        return backbone | named(rows=base_rows, **{GROUP: attention})

    def started_from(self, meta: Params, network: Network) -> Params:
        base_rows, centre = self._rows_of(network)
        n_classes = len(meta["rows/weight"])
        if len(base_rows) != n_classes:
            raise ConfigError(
                f"base.start has rows of {len(base_rows)} classes, and there are {n_classes} training classes; each needs "
                "its row. Train on the classes of the base to start from, with base.train.rotations = false."
            )
        own = {"weight": base_rows[:, :-1].float(), "bias": base_rows[:, -1].float(), "centre": centre}
        return super().started_from(meta, network) | named(rows=own) | named(statistics=network.statistics)

    def network(self, spec: NetworkSpec, meta: Params) -> TrainedNetwork:
        statistics, *others = grouped(meta, "statistics", "rows", GROUP)
        beside = {*named(statistics=statistics, rows=others[0], **{GROUP: others[1]})}
        params = {name: tensor for name, tensor in meta.items() if name not in beside}
        return TrainedNetwork(spec, params, statistics or None)

    def extras(self, network: TrainedNetwork, meta: Params, train: ClassPool) -> Params:
        attention, rows = ({n: t.detach() for n, t in group.items()} for group in grouped(meta, GROUP, "rows"))
        if self.attractor == "static":
            attention = {name: attention[name] for name in ("static", "log_gamma")}
        centre = rows.pop("centre")
        if self.rows == "brings":
            return named(**{GROUP: attention}, rows=rows)
        return named(**{GROUP: attention | {"temperature": torch.tensor(self.temperature), "centre": centre}})

    def loss(self, spec: NetworkSpec, meta: Params, episode: Episode, done: float = 0.0) -> Tensor:
        network = self.network(spec, {name: tensor.detach() for name, tensor in meta.items()})
        n_new, each = self.n_new, len(episode.query) // episode.n_way
        shots = episode.support.labels < n_new
        first = torch.arange(len(episode.query), device=shots.device) % each == 0  # class after class
        new = episode.query.labels < n_new
        asked = new | first
        centre = meta["rows/centre"].detach()
        support = network.embed(episode.support.images[shots]) - centre
        query = network.embed(episode.query.images[asked]) - centre
        base_rows, weights = self._base_rows(meta), self._weights(meta)
        playing = episode.classes[:n_new]
        labels = episode.support.labels[shots]
        attractors = self._attractors(weights, support, labels, masked_keys(base_rows, playing), episode.classes)
        rows = solved_rows(
            support,
            labels,
            masked_scores(base_rows, support, playing),
            attractors,
            weights["log_gamma"].exp(),
            damping=self.damping,
        )
        scores = torch.cat([masked_scores(base_rows, query, playing), with_one(query) @ rows.T], 1)
        own = episode.query.labels[asked]
        loss = cross_entropy(scores, torch.where(own < n_new, len(base_rows) + own, episode.classes[own]))
        return loss.to(centre.dtype)  # gradients have the type of the weights

    def query_scores(self, network: TrainedNetwork, meta: Params, episode: Episode) -> Tensor:
        centre = meta["rows/centre"].detach()
        support, query = (network.embed(part.images) - centre for part in (episode.support, episode.query))
        weights = {name: tensor.detach() for name, tensor in self._weights(meta).items()}
        base_rows = self._base_rows(meta)
        rows = base_rows[:0]

        def attract(means: Tensor, known: Tensor) -> Tensor:
            if self.attractor == "static":
                return weights["static"].repeat(len(means), 1)
            return attention_attractors(weights, means, torch.cat([base_rows, known])[:, :-1])

        for start in range(0, episode.n_way, self.n_new):
            own = (episode.support.labels >= start) & (episode.support.labels < start + self.n_new)
            rows = learned_rows(
                rows, base_rows, support[own], episode.support.labels[own], attract, weights["log_gamma"].exp()
            )
        return with_one(query) @ rows.T

    def _rows_of(self, network: Network) -> tuple[Tensor, Tensor]:
        """Base rows, and what is taken from features before: the mean of classes where rows are those of means."""
        what_for = "base.learner.method = 'aan'"
        if self.rows == "means":
            centre = network.extra("mean", what_for)
            return mean_rows(network.extra("class_means", what_for) - centre, self.temperature), centre
        weight, bias = network.extra("rows/weight", what_for), network.extra("rows/bias", what_for)
        return torch.cat([weight, bias[:, None]], 1), torch.zeros_like(weight[0])

    def _base_rows(self, meta: Params) -> Tensor:
        return torch.cat([meta["rows/weight"], meta["rows/bias"][:, None]], 1).detach().double()

    def _weights(self, meta: Params) -> Params:
        (weights,) = grouped(meta, GROUP)
        return {name: tensor.double() for name, tensor in weights.items()}

    def _attractors(self, weights: Params, support: Tensor, labels: Tensor, keys: Tensor, classes: Tensor) -> Tensor:
        """Of the classes that play, with dropout that depends on the classes alone."""
        if self.attractor == "static":
            return weights["static"].expand(self.n_new, -1)
        sums, counts = class_sums(support.double(), labels, self.n_new)
        means = sums / counts[:, None]
        if self.dropout:
            random = named_generator(0, "aan", "dropout", *classes.tolist())
            kept = torch.rand(means.shape, generator=random) >= self.dropout
            means = means * kept.to(means) / (1 - self.dropout)
        return attention_attractors(weights, means, keys)


def masked_keys(rows: Tensor, playing: Tensor) -> Tensor:
    """The weights of base rows to attend to; those of classes that play are zero, and keep their share of the softmax."""
    return rows[:, :-1].index_fill(0, playing, 0.0)


def masked_scores(rows: Tensor, features: Tensor, playing: Tensor) -> Tensor:
    """Scores of base rows; those of classes that play new ones are very low."""
    return (with_one(features) @ rows.T).index_fill(1, playing, MASKED_SCORE)
