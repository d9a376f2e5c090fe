"""OML: meta-trains features on which a linear head can learn online, one image at a time, class after class.

Javed, White, "Meta-Learning Representations for Continual Learning", 2019.

An episode is a trajectory: the head takes one step of gradient descent an image, over all images of the first classes in
order. Then it is asked for other images of these classes, and for one image of each of the other classes (the remember
set), over all classes of training. The loss is differentiated through the whole pass (`fscl.nets.online`), in the features
and in the rows that the head starts from. At test, the head starts from rows of zero.

Departs from the paper:
- Conv-4 with normalisation, of pictures of 32×32, instead of six convolutions of 84×84.
- Rows and biases of the trajectory's classes start from zero (`fresh`), as at test, in the place of the stored ones. These
  keep what they have learned as remembered classes; the public code draws them anew.
- Trajectories and remembered classes are drawn from all classes of training, not from two halves.
- The rate of the head may be learned, and a base hands it to its continual method (`online`).
- Features may be brought to unit length (`unit`).
"""

import math
from typing import Literal, Self

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from fscl.data.episode import Episode
from fscl.data.pool import ClassPool
from fscl.errors import ConfigError
from fscl.meta.base import EmbeddingLearner
from fscl.nets.online import online_pass, online_scores
from fscl.nets.params import Params, linear
from fscl.nets.trained import NetworkSpec, TrainedNetwork, init_params
from fscl.rng import generator

CLASSES = "classes/"  # rows of the classes of training
LOG_RATE = "log_rate"
DONE_UNITS = 2**40  # `done` as a whole number, to draw by


class Oml(EmbeddingLearner):
    """Meta-trains the embedding so that a linear head on it learns online, one image at a time, and does not forget.

    Attributes:
        trajectory: how many classes of an episode are learned one after another; the others are remembered.
        rate: of the head's gradient descent (α).
        learn_rate: meta-train the rate as well, starting from `rate`.
        first_order: treat the head's steps as constants in the meta-gradient.
        unit: bring features to unit length.
        fresh: what the rows of the trajectory's classes start from: zeros, or draws of variance 2 / n_features.
        rows: of the head at test; those of classes that never come take part in the softmax.
    """

    method: str = "oml"
    trajectory: int = Field(default=3, ge=1)
    rate: float = Field(default=0.03, gt=0)
    learn_rate: bool = False
    first_order: bool = False
    unit: bool = False
    fresh: Literal["zero", "random"] = "zero"
    rows: int = Field(default=1000, ge=1)

    def init(self, spec: NetworkSpec, *, n_way: int, n_classes: int, generator: torch.Generator) -> Params:
        if n_way < self.trajectory:
            raise ConfigError(
                f"an episode has {n_way} classes (n_way), but the trajectory alone has {self.trajectory}. Give n_way the "
                "classes of the trajectory and those to remember together."
            )
        params = init_params(spec, generator)
        n_features = TrainedNetwork(spec, params).n_features
        rows = {f"{CLASSES}weight": torch.zeros(n_classes, n_features), f"{CLASSES}bias": torch.zeros(n_classes)}
        return params | rows | ({LOG_RATE: torch.tensor(math.log(self.rate))} if self.learn_rate else {})

    def network(self, spec: NetworkSpec, meta: Params) -> TrainedNetwork:
        own = (CLASSES, LOG_RATE)
        return TrainedNetwork(spec, {name: tensor for name, tensor in meta.items() if not name.startswith(own)})

    def extras(self, network: TrainedNetwork, meta: Params, train: ClassPool) -> Params:
        """What the continual method `online` reads: the `rate`, and whether features are of `unit` length (1 or 0)."""
        learned = self.with_learned(meta)
        return {"rate": torch.tensor(learned.rate), "unit": torch.tensor(float(self.unit))}

    def with_learned(self, meta: Params) -> Self:
        if LOG_RATE not in meta:
            return self
        return self.model_copy(update={"rate": float(meta[LOG_RATE].detach().exp()), "learn_rate": False})

    def loss(self, spec: NetworkSpec, meta: Params, episode: Episode, done: float = 0.0) -> Tensor:
        scores, labels = self.scores_after_pass(spec, meta, episode, done)
        return cross_entropy(scores, labels)

    def scores_after_pass(
        self, spec: NetworkSpec, meta: Params, episode: Episode, done: float
    ) -> tuple[Tensor, Tensor]:
        """Scores (n, n_classes) of the images asked for, after the head has learned the trajectory, and their classes."""
        learned, asked = self.positions(episode)
        network = self.network(spec, meta)
        x = network.to_input(torch.cat([episode.support.images[learned], episode.query.images[asked]]))
        features = self.scaled(network.featurer(x)(network.params, None))
        support, query = features.split([len(learned), len(asked)])
        head, rate = self.head(meta, episode, done), self.rate_of(meta)
        errors = online_pass(support, episode.classes[episode.support.labels[learned]], rate, linear(head, support))
        if self.first_order:
            support, errors = support.detach(), errors.detach()
        scores = online_scores(query, support, errors, rate, linear(head, query))
        return scores, episode.classes[episode.query.labels[asked]]

    def positions(self, episode: Episode) -> tuple[Tensor, Tensor]:
        """Which support images are learned, and which query images are asked for: one of each class to remember."""
        labels = episode.query.labels
        first = torch.ones_like(labels, dtype=torch.bool)
        first[1:] = labels[1:] != labels[:-1]
        asked = (labels < self.trajectory) | first
        return torch.where(episode.support.labels < self.trajectory)[0], torch.where(asked)[0]

    def head(self, meta: Params, episode: Episode, done: float) -> Params:
        """The rows and biases that the pass starts from: the stored ones, but for the trajectory's classes."""
        classes = episode.classes[: self.trajectory]
        weight = meta[f"{CLASSES}weight"].index_fill(0, classes, 0.0)
        if self.fresh == "random":
            random = generator(0, "fresh rows", *classes.tolist(), round(done * DONE_UNITS))
            drawn = torch.randn(len(classes), weight.shape[1], generator=random) * (2 / weight.shape[1]) ** 0.5
            weight = weight.index_copy(0, classes, drawn.to(weight))
        return {"weight": weight, "bias": meta[f"{CLASSES}bias"].index_fill(0, classes, 0.0)}

    def rate_of(self, meta: Params) -> Tensor | float:
        return meta[LOG_RATE].exp() if self.learn_rate else self.rate

    def scaled(self, features: Tensor) -> Tensor:
        return normalize(features) if self.unit else features

    def feature_scores(self, support: Tensor, labels: Tensor, query: Tensor, n_way: int) -> Tensor:
        support, query, n_rows = self.scaled(support), self.scaled(query), max(self.rows, n_way)
        errors = online_pass(support, labels, self.rate, support.new_zeros(len(support), n_rows))
        return online_scores(query, support, errors, self.rate, query.new_zeros(len(query), n_rows))[:, :n_way]
