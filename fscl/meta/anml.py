"""ANML: OML with a gate, a second network that opens and closes features of the picture at hand.

Beaulieu, Frati, Miconi, Lehman, Stanley, Clune, Cheney, "Learning to Continually Learn", 2020.

Needs a backbone with a gate (`gated4`). What the gate closes is not learned from, either. The gate stands still while a
trajectory is learned; at test the head alone learns, as after OML.

Departs from the paper:
- `inner = "head"`, unless asked otherwise: the head alone learns a trajectory, as it does at test. `inner = "body"` is the
  published way, where the body takes steps, too.
- Held-out images are asked for, besides those to remember; the public code asks for the images that were just learned.
- GroupNorm, which looks at each picture alone as the published BatchNorm on one picture does.
- Trajectories may have more than one class, and the rest is as in OML here (`fscl.meta.oml`).
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.data.episode import Episode
from fscl.errors import ConfigError
from fscl.meta.oml import Oml
from fscl.nets.gated import BODY
from fscl.nets.params import Params, linear
from fscl.nets.trained import NetworkSpec, TrainedNetwork


class Anml(Oml):
    """Meta-trains an embedding and a gate on its features so that a linear head on them learns online.

    Attributes:
        inner: what learns a trajectory: the "head" alone, or the "body" of the embedding as well. Either way not the gate.
        body_rate: of the body's gradient descent; "same" as the head's.
    """

    method: str = "anml"
    trajectory: int = Field(default=1, ge=1)
    rate: float = Field(default=0.1, gt=0)
    first_order: bool = True
    inner: Literal["head", "body"] = "head"
    body_rate: float | Literal["same"] = "same"

    def init(self, spec: NetworkSpec, *, n_way: int, n_classes: int, generator: torch.Generator) -> Params:
        if spec.backbone != "gated4":
            raise ConfigError(
                f"{self.method} needs a network with a gate, but {spec.backbone} has none. Set base.network.backbone to "
                "gated4, or train with oml."
            )
        if self.inner == "body" and spec.norm != "group":
            raise ConfigError(
                f"inner = 'body' learns from one picture at a time, which norm = {spec.norm!r} cannot. Set norm to 'group'."
            )
        return super().init(spec, n_way=n_way, n_classes=n_classes, generator=generator)

    def scores_after_pass(
        self, spec: NetworkSpec, meta: Params, episode: Episode, done: float
    ) -> tuple[Tensor, Tensor]:
        if self.inner == "head":
            return super().scores_after_pass(spec, meta, episode, done)
        learned, asked = self.positions(episode)
        network = self.network(spec, meta)
        labels = episode.classes[episode.support.labels[learned]]
        weights, head = self.adapted(
            network, self.head(meta, episode, done), episode.support.images[learned], labels, self.rate_of(meta)
        )
        query = self.scaled(network.features(network.to_input(episode.query.images[asked]), weights))
        return linear(head, query), episode.classes[episode.query.labels[asked]]

    def adapted(
        self, network: TrainedNetwork, head: Params, images: Tensor, labels: Tensor, rate: Tensor | float
    ) -> tuple[Params, Params]:
        """The weights of network and head after one step an image; differentiable in where they started from."""
        weights, x = network.params, network.to_input(images)
        body = [name for name in weights if name.startswith(BODY)]
        body_rate = rate if self.body_rate == "same" else self.body_rate
        for turn in range(len(images)):
            feature = self.scaled(network.features(x[turn : turn + 1], weights))
            loss = cross_entropy(linear(head, feature), labels[turn : turn + 1])
            moved = [*(weights[name] for name in body), *head.values()]
            grads = torch.autograd.grad(loss, moved, create_graph=not self.first_order)
            of_body, of_head = grads[: len(body)], grads[len(body) :]
            steps = zip(body, of_body, strict=True)
            weights = weights | {name: weights[name] - body_rate * grad for name, grad in steps}
            steps = zip(head, of_head, strict=True)
            head = {name: head[name] - rate * grad for name, grad in steps}
        return weights, head
