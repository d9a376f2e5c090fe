"""GeMCL: an embedding in which classes are Gaussians of their own mean and variance, known as far as their shots tell.

Banayeeanzade, Mirzaiezadeh, Hasani, Soleymani Baghshah, "Generative vs. Discriminative: Rethinking The Meta-Continual
Learning", 2021.

Trains as a prototypical network does, with the log density of the query under each class for a score
(`fscl/nets/student.py`). The prior of the variances (α, β) is trained with the weights, as logarithms. When training is over
it is fitted anew, by maximum likelihood, to the variances inside training classes, one a class: the mean over its
dimensions. The base carries that prior as `extras` "prior/alpha" and "prior/beta", for the continual method `gemcl`.

Departs from the paper:
- With BatchNorm, training normalises support and query in one batch, and prediction uses statistics frozen from training
  images.
- `both_ways` (off unless asked for) scores an episode twice on the same features, as in ProtoNet.
- The base is chosen and tested with the prior that was trained; the one that was fitted is for the continual method.
"""

from typing import Self

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.data.episode import Episode
from fscl.data.pool import ClassPool
from fscl.meta.base import EmbeddingLearner
from fscl.meta.statistics import class_features
from fscl.nets.params import Params, class_sums
from fscl.nets.student import class_densities, likeliest_prior
from fscl.nets.trained import NetworkSpec, TrainedNetwork, init_params

LOG_ALPHA, LOG_BETA = "prior/log_alpha", "prior/log_beta"


class GeMCL(EmbeddingLearner):
    """Meta-trains the embedding, and a prior of variances, so that class means and variances classify.

    Attributes:
        alpha: of the inverse-gamma prior that training starts from.
        beta: likewise.
        both_ways: also classify the support images by the query images.
    """

    method: str = "gemcl"
    alpha: float = Field(default=100.0, gt=0)
    beta: float = Field(default=1000.0, gt=0)
    both_ways: bool = False

    def init(self, spec: NetworkSpec, *, n_way: int, n_classes: int, generator: torch.Generator) -> Params:
        prior = {LOG_ALPHA: torch.tensor(self.alpha).log(), LOG_BETA: torch.tensor(self.beta).log()}
        return init_params(spec, generator) | prior

    def network(self, spec: NetworkSpec, meta: Params) -> TrainedNetwork:
        return TrainedNetwork(
            spec, {name: tensor for name, tensor in meta.items() if name not in (LOG_ALPHA, LOG_BETA)}
        )

    def extras(self, network: TrainedNetwork, meta: Params, train: ClassPool) -> Params:
        features, labels = class_features(network, train)
        doubles = features.double()
        sums, counts = class_sums(doubles, labels, len(train))
        several = counts > 1
        variances = scatter_of_classes(doubles, labels, sums / counts[:, None]).mean(1)[several] / (counts[several] - 1)
        prior = likeliest_prior(variances[variances > 0])
        return {"prior/alpha": torch.tensor(prior.alpha), "prior/beta": torch.tensor(prior.beta)}

    def loss(self, spec: NetworkSpec, meta: Params, episode: Episode, done: float = 0.0) -> Tensor:
        network = self.network(spec, meta)
        x = network.to_input(torch.cat([episode.support.images, episode.query.images]))
        support, query = network.features(x).split([len(episode.support), len(episode.query)])
        labels, asked, n_way = episode.support.labels, episode.query.labels, episode.n_way
        alpha, beta = meta[LOG_ALPHA].exp(), meta[LOG_BETA].exp()
        loss = cross_entropy(student_scores(support, labels, query, n_way, alpha, beta), asked)
        if self.both_ways:
            loss = (loss + cross_entropy(student_scores(query, asked, support, n_way, alpha, beta), labels)) / 2
        return loss

    def with_learned(self, meta: Params) -> Self:
        trained = {"alpha": float(meta[LOG_ALPHA].exp()), "beta": float(meta[LOG_BETA].exp())}
        return self.model_copy(update=trained)

    def feature_scores(self, support: Tensor, labels: Tensor, query: Tensor, n_way: int) -> Tensor:
        prior = support.new_tensor(self.alpha), support.new_tensor(self.beta)
        return student_scores(support, labels, query, n_way, *prior)


def student_scores(support: Tensor, labels: Tensor, query: Tensor, n_way: int, alpha: Tensor, beta: Tensor) -> Tensor:
    """Log density (n_query, n_way) of each query feature under each class.

    Args:
        support: features of the shots, (n, n_features).
        labels: their classes.
        query: features to score.
        n_way: how many classes there are.
        alpha: of the prior, a number.
        beta: likewise.
    """
    sums, counts = class_sums(support, labels, n_way)
    means = sums / counts[:, None]
    return class_densities(means, scatter_of_classes(support, labels, means), counts, alpha, beta).scores(query)


def scatter_of_classes(features: Tensor, labels: Tensor, means: Tensor) -> Tensor:
    """Σ (x − class mean)² of each class and dimension."""
    return class_sums((features - means[labels]).square(), labels, len(means))[0]
