"""Prototypical networks: a query belongs to the class whose mean embedding is nearest.

Snell, Swersky, Zemel, "Prototypical Networks for Few-shot Learning", 2017.

Departs from the paper: nothing in the method; training uses the ways, shots and schedule of the configuration. With
BatchNorm, training normalises support and query in one batch, and prediction uses statistics frozen from training images.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.data.episode import Episode
from fscl.meta.base import BaseLearner
from fscl.nets.fast import Params, class_sums
from fscl.nets.network import Network, NetworkSpec, init_params


class ProtoNet(BaseLearner):
    """Meta-trains the embedding so that class means classify."""

    method: Literal["protonet"] = "protonet"

    def init(self, spec: NetworkSpec, n_way: int, generator: torch.Generator) -> Params:
        return init_params(spec, generator)

    def network(self, spec: NetworkSpec, meta: Params) -> Network:
        return Network(spec, meta)

    def loss(self, spec: NetworkSpec, meta: Params, episode: Episode) -> Tensor:
        network = self.network(spec, meta)
        features = network.features(network.to_input(torch.cat([episode.support.images, episode.query.images])))
        support, query = features.split([len(episode.support), len(episode.query)])
        scores = prototype_scores(support, episode.support.labels, query, episode.n_way)
        return cross_entropy(scores, episode.query.labels)

    def query_scores(self, network: Network, episode: Episode) -> Tensor:
        support, query = network.embed(episode.support.images), network.embed(episode.query.images)
        return prototype_scores(support, episode.support.labels, query, episode.n_way)


def prototype_scores(support: Tensor, labels: Tensor, query: Tensor, n_way: int) -> Tensor:
    """Minus the squared distance of each query feature to each class mean, (n_query, n_way), in its product form."""
    sums, counts = class_sums(support, labels, n_way)
    means = sums / counts[:, None]
    return 2 * query @ means.T - means.square().sum(1) - query.square().sum(1, keepdim=True)
