"""Plain supervised pretraining: classify all training classes at once, then keep the embedding and drop the classifier.

The baseline that every few-shot method should be compared with. "Baseline" and, with the cosine classifier, "Baseline++" of
Chen, Liu, Kira, Wang, Huang, "A Closer Look at Few-shot Classification", 2019.

Departs from the paper: new classes are told apart by the means of their normalised features (as in Wang, Chao,
Weinberger, van der Maaten, "SimpleShot", 2019) and not by training another classifier on the frozen features, which
`fscl run` does in its `head` method.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, linear, normalize

from fscl.data.episode import Episode
from fscl.data.pool import ClassPool
from fscl.meta.base import EmbeddingLearner
from fscl.meta.protonet import prototype_scores
from fscl.nets.params import Params
from fscl.nets.trained import NetworkSpec, TrainedNetwork, init_params

CLASSES = "classes/"  # rows of the classifier of training classes


class Supervised(EmbeddingLearner):
    """Trains the embedding under a classifier of all training classes; an "episode" is a batch of its support and query
    images.

    Attributes:
        classifier: linear, or the cosine of the angle between features and a row for each class, times `scale`.
    """

    method: str = "supervised"
    classifier: Literal["linear", "cosine"] = "cosine"
    scale: float = Field(default=20.0, gt=0)

    def init(self, spec: NetworkSpec, *, n_way: int, n_classes: int, generator: torch.Generator) -> Params:
        params = init_params(spec, generator)
        n_features = TrainedNetwork(spec, params).n_features
        rows = torch.randn(n_classes, n_features, generator=generator) * n_features**-0.5
        meta = params | {f"{CLASSES}weight": rows}
        if self.classifier == "linear":
            meta[f"{CLASSES}bias"] = torch.zeros(n_classes)
        return meta

    def network(self, spec: NetworkSpec, meta: Params) -> TrainedNetwork:
        return TrainedNetwork(spec, {name: tensor for name, tensor in meta.items() if not name.startswith(CLASSES)})

    def extras(self, network: TrainedNetwork, meta: Params, train: ClassPool) -> Params:
        """Rows of the linear classifier, of the training classes as they are: rotated ones come after them."""
        if self.classifier != "linear":
            return {}
        return {f"rows/{name}": meta[f"{CLASSES}{name}"][: len(train)].detach() for name in ("weight", "bias")}

    def loss(self, spec: NetworkSpec, meta: Params, episode: Episode, done: float = 0.0) -> Tensor:
        network = self.network(spec, meta)
        x = network.to_input(torch.cat([episode.support.images, episode.query.images]))
        features = network.features(x)
        labels = episode.classes[torch.cat([episode.support.labels, episode.query.labels])]
        rows = meta[f"{CLASSES}weight"]
        if self.classifier == "linear":
            return cross_entropy(linear(features, rows, meta[f"{CLASSES}bias"]), labels)
        return cross_entropy(self.scale * normalize(features) @ normalize(rows).T, labels)

    def feature_scores(self, support: Tensor, labels: Tensor, query: Tensor, n_way: int) -> Tensor:
        return prototype_scores(normalize(support), labels, normalize(query), n_way)
