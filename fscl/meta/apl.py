"""Adaptive posterior learning (APL): meta-trains an encoder and a decoder of a memory that stores what surprises it.

T. Ramalho, M. Garnelo, "Adaptive Posterior Learning: few-shot learning with a surprise-based memory module", 2019.

An episode fills an empty memory. Its shots come in random order, some at a time: each is predicted from the keys so far, and
stored with its label if that was surprising (-log p above 0.75 ln N). Then the queries are predicted. The loss is the mean
cross-entropy of all predictions; keys are stored without gradients, so each prediction trains the encoder through its own
image. The decoders are in `fscl.nets.decoders`.

Departs from the paper:
- one step of the optimiser an episode, and the keys of an episode are all of the same weights; the public code takes a step
  at every other batch, on a memory of older weights;
- a Conv-4 encoder without LayerNorm at its end, and a decoder of two narrow blocks;
- the decoder "neighbours" (default) knows labels only by their being equal; "labels" is the published form;
- distances carry gradients to the encoder (`distance_gradient`); the public code cuts them off;
- a prediction of a class that no neighbour has costs ln N and has no gradient, with the decoder "neighbours";
- validation and test store every shot, and never ask for an image that is stored; the public test draws with
  replacement, and its train and test classes share one cache file.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.data.episode import Episode
from fscl.data.pool import ClassPool
from fscl.errors import ConfigError
from fscl.meta.base import BaseLearner
from fscl.nets.decoders import (
    GROUP,
    class_scores,
    init_decoder,
    label_scores,
    neighbour_slots,
    slot_loss,
    with_empty_slots,
)
from fscl.nets.network import grouped, named
from fscl.nets.params import Params
from fscl.nets.trained import NetworkSpec, TrainedNetwork, init_params
from fscl.rng import generator as named_generator


class Apl(BaseLearner):
    """Meta-trains an encoder and a decoder of the nearest keys in a memory of surprising images.

    Attributes:
        decoder: "neighbours" takes any number of classes; "labels" is the published one, for at most `n_labels`.
        neighbours: how many keys a prediction looks at (k).
        hidden: width of the decoder, a multiple of 32: heads have 32 each.
        blocks: of the decoder.
        n_labels: that the decoder "labels" can tell; more classes than these can never be learned with it.
        threshold: a shot is stored if -log p of its label is above this times ln N.
        batch: shots predicted at a time, before those of them that surprise are stored.
        distance_gradient: distances train the encoder, too; off as published.
    """

    method: str = "apl"
    decoder: Literal["neighbours", "labels"] = "neighbours"
    neighbours: int = Field(default=5, ge=1)
    hidden: int = Field(default=128, ge=32, multiple_of=32)
    blocks: int = Field(default=2, ge=0)
    n_labels: int = Field(default=64, ge=2)
    threshold: float = Field(default=0.75, ge=0)
    batch: int = Field(default=32, ge=1)
    distance_gradient: bool = True

    def init(self, spec: NetworkSpec, *, n_way: int, n_classes: int, generator: torch.Generator) -> Params:
        self._check_way(n_way)
        backbone = init_params(spec, generator)
        weights = init_decoder(
            TrainedNetwork(spec, backbone).n_features,
            hidden=self.hidden,
            blocks=self.blocks,
            n_labels=self.n_labels if self.decoder == "labels" else None,
            generator=generator,
        )
        return backbone | named(**{GROUP: weights})

    def network(self, spec: NetworkSpec, meta: Params) -> TrainedNetwork:
        return TrainedNetwork(spec, {n: t for n, t in meta.items() if not n.startswith(f"{GROUP}/")})

    def extras(self, network: TrainedNetwork, meta: Params, train: ClassPool) -> Params:
        (weights,) = grouped(meta, GROUP)
        return named(**{GROUP: {name: tensor.detach() for name, tensor in weights.items()}})

    def loss(self, spec: NetworkSpec, meta: Params, episode: Episode, done: float = 0.0) -> Tensor:
        network, (weights,) = self.network(spec, meta), grouped(meta, GROUP)
        x = network.to_input(torch.cat([episode.support.images, episode.query.images]))
        support, query = network.features(x).split([len(episode.support), len(episode.query)])
        random = named_generator(0, "apl", *episode.classes.tolist())  # an episode of its own for each draw of classes
        spread = torch.randperm(self._n_slots(episode.n_way), generator=random)[: episode.n_way].to(x.device)
        shots, asked = spread[episode.support.labels], spread[episode.query.labels]
        order = torch.randperm(len(shots), generator=random).to(x.device)
        threshold = self.threshold * torch.tensor(float(episode.n_way)).log()
        keys, labels, losses = support[:0].detach(), shots[:0], []
        for chunk in order.split(self.batch):
            loss = self.prediction_loss(weights, keys, labels, support[chunk], shots[chunk])
            losses.append(loss)
            written = chunk[loss.detach() > threshold.to(x.device)]
            keys, labels = torch.cat([keys, support[written].detach()]), torch.cat([labels, shots[written]])
        losses.append(self.prediction_loss(weights, keys, labels, query, asked))
        known_nothing = threshold.new_tensor(float(episode.n_way)).log().to(x.device)
        together = torch.cat(losses)
        return torch.where(together.isinf(), known_nothing, together).mean()

    def prediction_loss(self, weights: Params, keys: Tensor, labels: Tensor, query: Tensor, own: Tensor) -> Tensor:
        """-log p of the own class of each query, from a memory; infinite where the memory says nothing of it."""
        if self.decoder == "labels":
            near, their = self._nearest(query, *with_empty_slots(keys, labels, self.n_labels, self.neighbours))
            scores = label_scores(weights, query, near, their, distance_gradient=self.distance_gradient)
            return cross_entropy(scores, own, reduction="none")
        if not len(keys):
            return query.new_full((len(query),), torch.inf)
        near, their = self._nearest(query, keys, labels)
        slots = neighbour_slots(weights, query, near, their, distance_gradient=self.distance_gradient)
        return slot_loss(slots, their, own)

    def query_scores(self, network: TrainedNetwork, meta: Params, episode: Episode) -> Tensor:
        self._check_way(episode.n_way)
        (weights,) = grouped(meta, GROUP)
        keys, query = network.embed(episode.support.images), network.embed(episode.query.images)
        labels = episode.support.labels
        with torch.no_grad():
            if self.decoder == "labels":
                near, their = self._nearest(query, *with_empty_slots(keys, labels, self.n_labels, self.neighbours))
                return label_scores(weights, query, near, their)[:, : episode.n_way]
            near, their = self._nearest(query, keys, labels)
            return class_scores(neighbour_slots(weights, query, near, their), their, episode.n_way)

    def _nearest(self, query: Tensor, keys: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest keys of each query, (n, k, n_features), and their labels (n, k)."""
        away = torch.cdist(query.detach(), keys, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = away.topk(min(self.neighbours, len(keys)), largest=False).indices
        return keys[nearest], labels[nearest]

    def _n_slots(self, n_way: int) -> int:
        """How many labels there are that the classes of an episode are spread over."""
        return self.n_labels if self.decoder == "labels" else n_way

    def _check_way(self, n_way: int) -> None:
        if self.decoder == "labels" and n_way > self.n_labels:
            raise ConfigError(
                f"an episode of {n_way} ways has more classes than the decoder's n_labels = {self.n_labels}. Raise "
                'base.learner.n_labels, or take decoder = "neighbours".'
            )
