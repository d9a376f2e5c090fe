"""What a base learner is: settings as a frozen value, and pure functions of its meta-parameters.

One file a method. A learner never stores weights; the training loop (`train.py`) owns them and hands them in, so that any
learner is checkpointed, resumed and validated by the same code.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fscl.data.episode import Episode
from fscl.nets.fast import Params
from fscl.nets.network import Network, NetworkSpec


class BaseLearner(BaseModel, ABC):
    """A way to meta-train a network. Subclasses add their settings as fields and a `method` name."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    fixed_way: ClassVar[bool] = False
    """Whether episodes at test must have as many ways as in training."""

    @abstractmethod
    def init(self, spec: NetworkSpec, n_way: int, generator: torch.Generator) -> Params:
        """Fresh meta-parameters: everything that the outer optimiser trains."""

    @abstractmethod
    def network(self, spec: NetworkSpec, meta: Params) -> Network:
        """The network to hand to the continual stage. Shares the tensors of `meta`."""

    @abstractmethod
    def loss(self, spec: NetworkSpec, meta: Params, episode: Episode) -> Tensor:
        """The loss of one training episode, differentiable in `meta`."""

    @abstractmethod
    def query_scores(self, network: Network, episode: Episode) -> Tensor:
        """Scores (n_query, n_way) of the query images after learning the support set; each query image alone.

        `network` carries frozen statistics where it has BatchNorm.
        """
