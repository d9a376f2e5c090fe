"""Indirect discriminant alignment (IDA): go on training on new classes, while what the old network says stays as it was.

Q. Liu, O. Majumder, A. Achille, A. Ravichandran, R. Bhotika, S. Soatto, "Incremental Few-Shot Meta-Learning via Indirect
Discriminant Alignment", 2020.

Training starts from a network that knows other classes (`base.start`), of which it keeps the class means: the anchors. Every
episode of new classes is learned as by a prototypical network, and its images are also shown to the old network: how the old
anchors share an image between them, by distance, must not change. Features themselves may move, where no anchor notices.

Departs from the paper:
- squared distances to anchors are divided by a `temperature`, since raw ones saturate the divergence;
- all anchors take part in every episode, and no image of old classes is kept;
- with BatchNorm both networks normalise an episode by its own statistics, so that they begin equal;
- how strongly to align (`weight`) is not known from the paper.
For comparison there are `alignment = "features"` (features themselves must stay) and "none" (plain training).
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fscl.data.episode import Episode
from fscl.data.pool import ClassPool
from fscl.errors import ConfigError, MisuseError
from fscl.meta.protonet import ProtoNet
from fscl.meta.statistics import base_statistics
from fscl.nets.anchors import discriminant_divergence, feature_distance
from fscl.nets.network import Network, named, with_prefix
from fscl.nets.params import Params
from fscl.nets.trained import NetworkSpec, TrainedNetwork

TEACHER = "teacher/"
ANCHORS = "anchors"


class Ida(ProtoNet):
    """Trains a network further on new classes, aligned with the network it starts from (`base.start`).

    The old weights and anchors travel with the meta-parameters, and have no gradient.

    Attributes:
        alignment: what is held: what the old network says of an image ("discriminant"), its "features", or "none".
        weight: of the alignment (λ).
        temperature: what divides squared distances in the alignment.
    """

    method: str = "ida"
    alignment: Literal["discriminant", "features", "none"] = "discriminant"
    weight: float = Field(default=1.0, ge=0)
    temperature: float = Field(default=1.0, gt=0)

    def check_training(self, *, start: Network | None, weight_decay: float) -> None:
        if start is None:
            raise ConfigError(
                "ida goes on from a trained network, but base.start names none. Give it a base that `fscl train` made."
            )
        if weight_decay:
            raise ConfigError(
                f"ida keeps the old weights among those that are trained, and base.train.weight_decay = {weight_decay:g} "
                "would shrink them. Set it to 0."
            )
        try:
            start.extra("class_means", "ida")
        except MisuseError as error:
            raise ConfigError(f"base.start: {error}") from error

    def started_from(self, meta: Params, network: Network) -> Params:
        own = super().started_from(meta, network)
        teacher = named(teacher=network.starting_weights())
        return {**own, **teacher, ANCHORS: network.extra("class_means", "ida").to(network.dtype)}

    def network(self, spec: NetworkSpec, meta: Params) -> TrainedNetwork:
        own = {name: tensor for name, tensor in meta.items() if not name.startswith(TEACHER) and name != ANCHORS}
        return TrainedNetwork(spec, own)

    def extras(self, network: TrainedNetwork, meta: Params, train: ClassPool) -> Params:
        """Anchors of the new classes join the old ones, which stay as they are."""
        new = base_statistics(network, train)["class_means"]
        return {"class_means": torch.cat([meta[ANCHORS].detach().to(new), new])}

    def features_loss(self, spec: NetworkSpec, meta: Params, features: Tensor, episode: Episode, x: Tensor) -> Tensor:
        loss = super().features_loss(spec, meta, features, episode, x)
        if self.alignment == "none" or self.weight == 0:
            return loss
        weights = {name.removeprefix(TEACHER): t.detach() for name, t in with_prefix((TEACHER,), meta).items()}
        with torch.no_grad():
            old = TrainedNetwork(spec, weights).features(x)
        if self.alignment == "features":
            return loss + self.weight * feature_distance(features, old, self.temperature)
        return loss + self.weight * discriminant_divergence(features, old, meta[ANCHORS].detach(), self.temperature)
