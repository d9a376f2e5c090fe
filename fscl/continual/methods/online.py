"""Online: a linear head on frozen features learns each shot once, in the order of the stream, by gradient descent.

What OML and ANML do at test: Javed, White, "Meta-Learning Representations for Continual Learning", 2019; Beaulieu et al.,
"Learning to Continually Learn", 2020. Their bases (`fscl.meta.oml`, `fscl.meta.anml`) are trained for it; any other serves.

Nothing of an example is kept but its steps. The head has many more rows than classes, as published (1,000): all take part in
the softmax from the start, and so a step for one class pushes each other row by a thousandth only. From rows of zero, with
a small rate, a pass gives each row the sum of the features of its class, and forgets nothing: this is why `unit = true`
(features of unit length) is the control of every comparison. With raw features a long one hides a short one: even a class
that was just learned from one image may not be answered. So features are taken raw where the base was trained for that, or
where asked for, and otherwise brought to unit length, where the newest class always wins on its own image.

Departs from the papers:
- Rows start from zero, unless asked otherwise (`rows`); they draw them. Drawn rows can hide a class that was learned from
  one image.
- Gradient descent, unless asked otherwise; they test with Adam, whose momentum goes on pushing the rows of earlier classes.
- The rate is the one that the base was trained with, not the best of several on the classes at test.
- Shots come in the order of the stream, not in that of the data set.
"""

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from fscl.continual.frozen import FrozenFeatures
from fscl.continual.learner import LearnerState, expect_keys
from fscl.continual.registry import Method
from fscl.errors import StorageError
from fscl.nets.network import Network
from fscl.nets.online import online_pass
from fscl.nets.params import Params, linear, trainable_copy
from fscl.rng import generator

RATE = 0.003  # where the base has none
HEAD = ("weight", "bias")
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # as torch's Adam names them


class Online(FrozenFeatures):
    """A linear head that learns online, on the features of the base network."""

    class Settings(FrozenFeatures.Settings):
        """How the head learns, and from what.

        Attributes:
            rate: of each step (α); "base" takes the one that the base was trained with, or 0.003.
            optimiser: plain gradient descent, or Adam, whose state goes on from task to task.
            rows: what the rows of classes start from: zeros, or draws of variance 2 / n_features.
            unit: bring features to unit length; "base" does so unless the base was trained for raw ones.
            passes: over the shots of each task.
            spare: how many rows there are in all while there are fewer classes.
        """

        rate: Annotated[float, Field(gt=0)] | Literal["base"] = "base"
        optimiser: Literal["sgd", "adam"] = "sgd"
        rows: Literal["zero", "random"] = "zero"
        unit: bool | Literal["base"] = "base"
        passes: int = Field(default=1, ge=1)
        spare: int = Field(default=1000, ge=1)

    settings: Settings

    def __init__(self, network: Network, settings: Settings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        extras, rate, unit = network.extras, settings.rate, settings.unit
        self.rate = (float(extras["rate"]) if "rate" in extras else RATE) if rate == "base" else rate
        self.unit = ("unit" not in extras or bool(extras["unit"] > 0)) if unit == "base" else unit
        self.head: Params = self._with_rows({}, settings.spare)
        self.moments: dict[str, Params] = {}
        self._n_classes = 0

    @property
    def n_classes(self) -> int:
        return self._n_classes

    def learn_features(self, features: Tensor, labels: Tensor) -> None:
        n_classes = max(self.n_classes, int(labels.max()) + 1)
        head = self._with_rows(self.head, n_classes)
        known, answers = self._scaled(features).repeat(self.settings.passes, 1), labels.repeat(self.settings.passes)
        if self.settings.optimiser == "sgd":
            errors = online_pass(known, answers, self.rate, linear(head, known))
            moved = {
                "weight": head["weight"] - self.rate * errors.T @ known,
                "bias": head["bias"] - self.rate * errors.sum(0),
            }
            self.head, self._n_classes = moved, n_classes
        else:
            self.head, self.moments = self._by_adam(head, known, answers)
            self._n_classes = n_classes

    def scores(self, features: Tensor) -> Tensor:
        return linear(self.head, self._scaled(features))[:, : self.n_classes]

    def state(self) -> LearnerState:
        tensors = {name: self.head[name].clone() for name in HEAD}
        for key, moments in self.moments.items():
            tensors |= {f"{key}/{name}": tensor.clone() for name, tensor in moments.items()}
        return LearnerState(tensors, {"n_classes": self.n_classes})

    def restore(self, state: LearnerState) -> None:
        has_moments = self.settings.optimiser == "adam" and len(state.tensors) > len(HEAD)
        keys = [f"{key}/{name}" for key in MOMENTS for name in HEAD] if has_moments else []
        expect_keys(state.tensors, {*HEAD, *keys}, "an online head")
        if "n_classes" not in state.details:
            raise StorageError("this state is not one of an online head: 'n_classes' is missing or too many.")
        tensors = {name: tensor.to(self.network.device, copy=True) for name, tensor in state.tensors.items()}
        self.head = {name: tensors[name] for name in HEAD}
        self.moments = {key: {name: tensors[f"{key}/{name}"] for name in HEAD} for key in (MOMENTS if keys else ())}
        self._n_classes = int(state.details["n_classes"])

    def _scaled(self, features: Tensor) -> Tensor:
        own = features.to(self.head["weight"])
        return normalize(own) if self.unit else own

    def _with_rows(self, head: Params, n_rows: int) -> Params:
        """A head with at least so many rows; each new one is drawn for itself, so that it is the same whenever it comes."""
        n_features = self.network.n_features
        weight = head.get("weight", torch.zeros(0, n_features, dtype=self.network.dtype, device=self.network.device))
        bias = head.get("bias", weight.new_zeros(0))
        new = range(len(weight), n_rows)
        rows = weight.new_zeros(len(new), n_features)
        if self.settings.rows == "random" and new:
            drawn = [torch.randn(n_features, generator=generator(self.seed, "online row", row)) for row in new]
            rows = (torch.stack(drawn) * (2 / n_features) ** 0.5).to(rows)
        return {"weight": torch.cat([weight, rows]), "bias": torch.cat([bias, bias.new_zeros(len(new))])}

    def _by_adam(self, head: Params, features: Tensor, labels: Tensor) -> tuple[Params, dict[str, Params]]:
        """The head after one step of Adam an example, and Adam's moments, both as new tensors."""
        moving = trainable_copy(head)
        optimiser = torch.optim.Adam(moving.values(), lr=self.rate)
        for name, tensor in moving.items() if self.moments else ():
            optimiser.state[tensor] = {key: self._grown(self.moments[key][name], tensor) for key in MOMENTS}
        with torch.enable_grad():
            for feature, label in zip(features, labels, strict=True):
                optimiser.zero_grad()
                cross_entropy(linear(moving, feature[None]), label[None]).backward()
                optimiser.step()
        found: dict[str, Any] = {key: {n: optimiser.state[t][key] for n, t in moving.items()} for key in MOMENTS}
        return {name: tensor.detach() for name, tensor in moving.items()}, found

    @staticmethod
    def _grown(moment: Tensor, like: Tensor) -> Tensor:
        """A copy of a moment with zeros for new rows; the count of steps has no rows."""
        if moment.ndim == 0:
            return moment.cpu().clone()  # where torch wants it
        return torch.cat([moment, torch.zeros_like(like[len(moment) :])])


METHODS = (
    Method(
        "online",
        Online,
        "A linear head on the frozen embedding that learns each shot once, by one step of gradient descent.",
        "Javed, White 2019; Beaulieu et al. 2020",
    ),
)
