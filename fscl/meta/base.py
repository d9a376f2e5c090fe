"""What a base learner is: settings as a frozen value, and pure functions of its meta-parameters.

One file a method. A learner never stores weights; the training loop (`train.py`) owns them and hands them in, so that any
learner is checkpointed, resumed, validated and spread over processes by the same code.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import torch
from pydantic import BaseModel, ConfigDict, field_validator
from torch import Tensor

from fscl.data.episode import Episode
from fscl.data.pool import ClassPool
from fscl.nets.network import Network
from fscl.nets.params import Params
from fscl.nets.trained import NetworkSpec, TrainedNetwork
from fscl.plugins import is_reference


class BaseLearner(BaseModel, ABC):
    """A way to meta-train a network. Subclasses add their settings as fields, and give `method` a default: their name.

    Attributes:
        method: the name in configurations and listings, or the reference (`package.module:Class`) that it was asked for by.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    has_fixed_way: ClassVar[bool] = False
    """Whether episodes at test must have as many ways as in training."""
    stands_still: ClassVar[bool] = False
    """Whether it leaves the network that it starts from as it is; it needs one then, and no weight decay."""

    method: str

    @field_validator("method")
    @classmethod
    def _is_its_name(cls, method: str) -> str:
        name = cls.model_fields["method"].get_default()
        if method != name and not is_reference(method):
            raise ValueError(f"{cls.__name__} is named {name!r}, not {method!r}")
        return method

    @abstractmethod
    def init(self, spec: NetworkSpec, *, n_way: int, n_classes: int, generator: torch.Generator) -> Params:
        """Fresh meta-parameters: everything that the outer optimiser trains.

        Episodes have `n_way` classes each, drawn from `n_classes`.
        """

    def check_training(self, *, start: Network | None, weight_decay: float) -> None:
        """Refuse a training that it cannot take part in, before anything is computed: a ConfigError."""
        return

    def started_from(self, meta: Params, network: Network) -> Params:
        """Fresh meta-parameters with the backbone of a trained network; the rest stays as it is."""
        return {name: network.starting_weights().get(name, tensor) for name, tensor in meta.items()}

    @abstractmethod
    def network(self, spec: NetworkSpec, meta: Params) -> TrainedNetwork:
        """The network to hand to the continual stage. Shares the tensors of `meta`.

        It gets the BatchNorm statistics of training images, unless it brings its own.
        """

    def extras(self, network: TrainedNetwork, meta: Params, train: ClassPool) -> Params:
        """What its own continual method needs beside the network, by name (`Network.extras`); `train` is not rotated.

        Called once, on the finished network. Statistics of the training classes (statistics.py) are added to any base.
        """
        return {}

    @abstractmethod
    def loss(self, spec: NetworkSpec, meta: Params, episode: Episode, done: float = 0.0) -> Tensor:
        """The loss of one training episode, differentiable in `meta`. `done` is the part of the training behind us."""

    def gradients(
        self, spec: NetworkSpec, meta: Params, episode: Episode, done: float = 0.0
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The loss of one training episode and its gradient in each of `meta`, in order."""
        loss = self.loss(spec, meta, episode, done)
        return loss.detach(), torch.autograd.grad(loss, list(meta.values()), materialize_grads=True)

    @abstractmethod
    def query_scores(self, network: TrainedNetwork, meta: Params, episode: Episode) -> Tensor:
        """Scores (n_query, n_way) of the queries after learning the support set; each alone, unless `inference` says not.

        `network` is what `meta` makes, with frozen statistics where it has BatchNorm.
        """

    def with_learned(self, meta: Params) -> Self:
        """With the settings that are learned, such as a rate, as `meta` has them; most learners have none."""
        return self

    @property
    def inference(self) -> str:
        """How it predicts, for every table that shows its accuracy; empty if it is inductive, as it should be."""
        return ""

    def test_variants(self, spec: NetworkSpec) -> "dict[str, BaseLearner]":
        """The learners to test a trained base with, by their `inference`."""
        return {self.inference: self}


class EmbeddingLearner(BaseLearner):
    """A learner that predicts from the features of a frozen network, which need computing only once an image."""

    @abstractmethod
    def feature_scores(self, support: Tensor, labels: Tensor, query: Tensor, n_way: int) -> Tensor:
        """Scores (n_query, n_way) of query features, given support features and their labels."""

    def query_scores(self, network: TrainedNetwork, meta: Params, episode: Episode) -> Tensor:
        support, query = network.embed(episode.support.images), network.embed(episode.query.images)
        return self.with_learned(meta).feature_scores(support, episode.support.labels, query, episode.n_way)
