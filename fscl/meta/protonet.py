"""Prototypical networks: a query belongs to the class whose mean embedding is nearest.

Snell, Swersky, Zemel, "Prototypical Networks for Few-shot Learning", 2017.

The continual stage of the TSC paper (its Appendix A, "ProtoNet linear classifier") keeps the embedding, drops the metric and
puts a fresh linear layer on top. `network` hands over just that: the embedding without a head, to which every continual
learner adds rows of its own.

Departs from the paper:
- With BatchNorm, training normalises support and query in one batch, and prediction uses statistics frozen from
  training images.
- `both_ways` (off unless asked for) scores an episode twice on the same features, the second time with support and query
  exchanged: two episodes for the price of one.
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.data.episode import Episode
from fscl.meta.base import EmbeddingLearner
from fscl.nets.params import Params, class_sums
from fscl.nets.trained import NetworkSpec, TrainedNetwork, init_params


class ProtoNet(EmbeddingLearner):
    """Meta-trains the embedding so that class means classify.

    Attributes:
        both_ways: also classify the support images by the means of the query images.
    """

    method: str = "protonet"
    both_ways: bool = False

    def init(self, spec: NetworkSpec, *, n_way: int, n_classes: int, generator: torch.Generator) -> Params:
        return init_params(spec, generator)

    def network(self, spec: NetworkSpec, meta: Params) -> TrainedNetwork:
        return TrainedNetwork(spec, meta)

    def loss(self, spec: NetworkSpec, meta: Params, episode: Episode, done: float = 0.0) -> Tensor:
        network = self.network(spec, meta)
        x = network.to_input(torch.cat([episode.support.images, episode.query.images]))
        return self.features_loss(spec, meta, network.features(x), episode, x)

    def features_loss(self, spec: NetworkSpec, meta: Params, features: Tensor, episode: Episode, x: Tensor) -> Tensor:
        """The loss of an episode, given the features of its support and query images, of which `x` are the inputs."""
        support, query = features.split([len(episode.support), len(episode.query)])
        labels, asked = episode.support.labels, episode.query.labels
        loss = cross_entropy(prototype_scores(support, labels, query, episode.n_way), asked)
        if self.both_ways:
            loss = (loss + cross_entropy(prototype_scores(query, asked, support, episode.n_way), labels)) / 2
        return loss

    def feature_scores(self, support: Tensor, labels: Tensor, query: Tensor, n_way: int) -> Tensor:
        return prototype_scores(support, labels, query, n_way)


def prototype_scores(support: Tensor, labels: Tensor, query: Tensor, n_way: int) -> Tensor:
    """Minus the squared distance of each query feature to each class mean, (n_query, n_way), in its product form."""
    sums, counts = class_sums(support, labels, n_way)
    means = sums / counts[:, None]
    return 2 * query @ means.T - means.square().sum(1) - query.square().sum(1, keepdim=True)
