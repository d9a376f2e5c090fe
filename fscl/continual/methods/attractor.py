"""Attention attractor networks (AAN): the rows of a task are solved for beside all earlier rows, pulled towards attractors.

M. Ren, R. Liao, E. Fetaya, R. Zemel, "Incremental Few-Shot Learning with Attention Attractor Networks", 2019.

New rows have the least cross-entropy on the task's shots among all rows, while the others stand still, plus a penalty on
the distance to an attractor (`fscl.nets.attractor` has the equation). The paper meta-trains an attention that makes the
attractor of a class from the rows of other classes: base learner `aan`. Without it, the attractor can be the row of the
class mean, which is what a class needs to be told from those of other tasks: their shots are gone.

Departs from the paper:
- there it is one step, from base classes to one task of new ones; here tasks follow each other, and the rows of earlier
  tasks stand still and are attended to like those of base classes;
- a class that comes again is solved anew, with its old row as the attractor;
- attractors of other kinds, which the paper has as ablations, and "own", the row of the class mean, which it has not;
- only learned classes are answered with, so base rows take part in learning alone, unless a stream begins with the base
  classes (`knows_base`), as the paper's own test does;
- the search starts from the attractors: the problem is convex, so a random start leads to the same rows.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fscl.continual.frozen import FrozenFeatures, copied, exact
from fscl.continual.learner import LearnerState, expect_keys, n_bytes
from fscl.continual.registry import Method
from fscl.data.stream import StreamSpec
from fscl.device import exact_device
from fscl.errors import ConfigError, Divergence, MisuseError
from fscl.nets.attractor import GROUP, Attract, attention_attractors, learned_rows, mean_rows
from fscl.nets.network import Network, grouped

Kind = Literal["attention", "own", "static", "none"]
OWN_GAMMA = 1.0  # where the base brings no γ


class Attractor(FrozenFeatures):
    """Solves the rows of each task on the features of the base network, and leaves them as they are."""

    class Settings(FrozenFeatures.Settings):
        """What pulls a row, how firmly, and which other rows it is learned beside.

        Attributes:
            attractor: what the row of a new class is pulled to: what a meta-trained "attention" to other rows makes
                (base learner `aan`); the row of its "own" class mean; one "static" row for all, which the base brings or
                else is the mean of its class-mean rows; "none" for zero. "auto" is "attention" on a base that brings
                it, else "own".
            gamma: how firmly (γ); "auto" is what the base brings with its attention or static row, else 1.
            tau: how sharply a class attends to similar rows (τ); "auto" is what the base brings.
            base_rows: whether rows of base classes take part in the softmax; "auto" with "attention" alone, which is
                trained so.
            knows_base: the first task is the base's own classes, in the base's order: their rows are taken from the base,
                and its shots are not looked at.
            temperature: of class-mean rows: squared distances are divided by it. A base that was trained with such rows
                brings its own.
        """

        attractor: Literal["auto"] | Kind = "auto"
        gamma: Annotated[float, Field(gt=0)] | Literal["auto"] = "auto"
        tau: Annotated[float, Field(ge=0)] | Literal["auto"] = "auto"
        base_rows: bool | Literal["auto"] = "auto"
        knows_base: bool = False
        temperature: float = Field(default=1.0, gt=0)

    settings: Settings

    def __init__(self, network: Network, settings: Settings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        place = exact_device(network.device)
        (carried,) = grouped(network.extras, GROUP)
        self.brought = {name: tensor.to(place).double() for name, tensor in carried.items()}
        self.kind = self._kind()
        if self.kind == "attention":
            network.extra(f"{GROUP}/hidden/weight", "the attractor of the method 'aan' called \"attention\"")
        self.rows = torch.zeros(0, network.n_features + 1, dtype=torch.float64, device=place)
        self.base, self.in_softmax = self.rows, self.rows  # rows to attend to, and rows to be learned beside
        beside = self.kind == "attention" if settings.base_rows == "auto" else settings.base_rows
        if beside or settings.knows_base or self.kind == "attention" or self._static_of_base():
            self.base = self._base_rows()
        if beside and not settings.knows_base:  # else the same classes would stand beside themselves
            self.in_softmax = self.base
        self.gamma = self._gamma()
        self.centre = self.brought.get("centre", self.rows.new_zeros(network.n_features))
        self._hold(self.rows)

    @property
    def n_classes(self) -> int:
        return len(self.rows)

    def check_stream(self, stream: StreamSpec) -> None:
        if self.settings.knows_base and stream.base_way != len(self.base):
            raise ConfigError(
                f"'aan' with knows_base takes the first task for the {len(self.base)} classes of its base, but "
                f"stream.base_way is {stream.base_way}. Set it to {len(self.base)}, or leave knows_base out."
            )

    def learn_features(self, features: Tensor, labels: Tensor) -> None:
        if self.settings.knows_base and self.n_classes == 0:
            self._hold(self._known_rows(labels))
            return
        own, their = exact(features) - self.centre, labels.to(self.rows.device)
        rows = learned_rows(self.rows, self.in_softmax, own, their, self._attract(), self.gamma)
        if not bool(rows.isfinite().all()):
            raise Divergence("the rows of this task have no finite solution; raise gamma, or check the features.")
        self._hold(rows)

    def scores(self, features: Tensor) -> Tensor:
        return features @ self.weight.T + self.bias

    def stored_bytes(self) -> dict[str, int]:
        own = super().stored_bytes()
        return {**own, "weights": own["weights"] + n_bytes([self.base, *self.brought.values()])}

    def state(self) -> LearnerState:
        return LearnerState({"rows": self.rows.clone()}, {})

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, {"rows"}, "attractors")
        self._hold(*copied(state, self.rows.device, "rows"))

    def _hold(self, rows: Tensor) -> None:
        """Rows, and beside them the linear layer that answers, of features that are not centred."""
        weight, bias = rows[:, :-1], rows[:, -1] - rows[:, :-1] @ self.centre
        answering = (part.to(self.network.dtype).to(self.network.device) for part in (weight, bias))
        self.rows, (self.weight, self.bias) = rows, answering

    def _kind(self) -> Kind:
        if self.settings.attractor != "auto":
            return self.settings.attractor
        return "attention" if "hidden/weight" in self.brought else "own"

    def _static_of_base(self) -> bool:
        return self.kind == "static" and "static" not in self.brought

    def _known_rows(self, labels: Tensor) -> Tensor:
        expected = torch.arange(len(self.base))
        if not torch.equal(labels.unique().cpu(), expected):
            raise MisuseError(
                f"'aan' with knows_base takes the first task for the {len(self.base)} classes of its base, and it has "
                f"{len(labels.unique())}. Teach those first, in the base's order, or leave knows_base out."
            )
        return self.base

    def _base_rows(self) -> Tensor:
        """Rows of the base classes: those that a classifier of the base has, or those of their means."""
        extras, what_for = self.network.extras, "the method 'aan', for rows of base classes,"
        if "rows/weight" in extras and "rows/bias" in extras:
            rows = torch.cat([extras["rows/weight"], extras["rows/bias"][:, None]], 1)
            return rows.to(self.rows.device).double()
        means = self.network.extra("class_means", what_for).to(self.rows.device)
        centre = self.brought.get("centre", means.new_zeros(self.network.n_features))
        return mean_rows(means - centre, self._temperature())

    def _temperature(self) -> float:
        brought = self.brought.get("temperature")
        return self.settings.temperature if brought is None else float(brought)

    def _gamma(self) -> Tensor:
        brings = self.kind in ("attention", "static") and "log_gamma" in self.brought
        if self.settings.gamma == "auto" and brings:
            return self.brought["log_gamma"].exp()
        gamma = OWN_GAMMA if self.settings.gamma == "auto" else self.settings.gamma
        return self.rows.new_full((self.network.n_features + 1,), gamma)

    def _attract(self) -> Attract:
        if self.kind == "attention":
            tau = None if self.settings.tau == "auto" else self.rows.new_tensor(self.settings.tau)
            beside = self.base[:0] if self.settings.knows_base else self.base
            return lambda means, known: attention_attractors(
                self.brought, means, torch.cat([beside, known])[:, :-1], tau
            )
        if self.kind == "own":
            temperature = self._temperature()
            return lambda means, known: mean_rows(means, temperature)
        same = self.rows.new_zeros(self.network.n_features + 1)
        if self.kind == "static":
            same = self.brought["static"] if "static" in self.brought else self.base.mean(0)
        return lambda means, known: same.repeat(len(means), 1)


METHODS = (
    Method(
        "aan",
        Attractor,
        "Rows of each task solved on the frozen embedding beside all earlier rows, pulled towards attractors.",
        "Ren, Liao, Fetaya, Zemel 2019",
    ),
)
