"""NC-FSCIL: every class that will ever come has its place in advance, and a projector learns to bring features there.

Y. Yang, H. Yuan, X. Li, Z. Lin, P. Torr, D. Tao, "Neural Collapse Inspired Feature-Classifier Alignment for Few-Shot Class
Incremental Learning", 2023.

The places are the vertices of a simplex equiangular tight frame: unit vectors, any two of which have the same angle, as wide
as can be. They are fixed from the start. **The number of classes must be known in advance** (`vertices`), which no other
method here needs. A small network, the projector, is trained after each task so that its output f̂, of unit length, points to
the vertex m of its class: 10 · ½ (m·f̂ − 1)². It sees the features of the task's shots, and one mean feature for each class
from before; the score of a class is m·f̂.

Departs from the paper: the embedding is the base's as it is, and the projector starts at random instead of from a training
on the base classes with the same loss. Features have length √d before they enter it, so that one learning rate does for any
base. Steps are those of Adam, on all rows at once or, if these are many, on random ones.
"""

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import layer_norm, leaky_relu, linear, normalize

from fscl.continual.frozen import FrozenFeatures, add_to_classes, copied, no_classes
from fscl.continual.learner import LearnerState, expect_keys
from fscl.continual.registry import Method
from fscl.data.stream import StreamSpec
from fscl.errors import Divergence, MisuseError
from fscl.nets.network import Network
from fscl.nets.params import Params, frozen_copy, trainable_copy
from fscl.rng import generator

LEAST_DIMENSIONS = 512  # of the projector's output; more where there are more vertices
SLOPE = 0.1  # of the rectifier below zero
WEIGHT = 10.0  # of the loss
HELD = ("sums", "counts", "n_tasks")


class FixedFrame(FrozenFeatures):
    """A projector of frozen features to the fixed vertices of a simplex; their number is known in advance."""

    class Settings(FrozenFeatures.Settings):
        """How many classes there may be, and how the projector is trained.

        Attributes:
            vertices: classes that will ever come, at most; must be known in advance.
            steps: of the optimiser (Adam), for each task.
            learning_rate: of the optimiser.
            batch_size: rows that a step sees at most.
        """

        vertices: int = Field(default=100, ge=2, le=2000)
        steps: int = Field(default=100, ge=1)
        learning_rate: float = Field(default=1e-3, gt=0)
        batch_size: int = Field(default=256, ge=1)

    settings: Settings

    def __init__(self, network: Network, settings: Settings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        self.frame = simplex(settings.vertices, generator(seed, "simplex")).to(network.device)
        self.projector = fresh_projector(network.n_features, self.frame.shape[1], generator(seed, "projector"))
        self.projector = {name: tensor.to(network.device) for name, tensor in self.projector.items()}
        self.sums, self.counts = no_classes(network.n_features, torch.float32, network.device)
        self.n_tasks = self.counts.new_zeros(())
        self.last_loss = 0.0

    @property
    def n_classes(self) -> int:
        return len(self.counts)

    def check_stream(self, stream: StreamSpec) -> None:
        self._check_vertices(stream.n_labels, "the stream brings")

    def learn_features(self, features: Tensor, labels: Tensor) -> None:
        self._check_vertices(max(self.n_classes, int(labels.max()) + 1), "with this task there are")
        rows = torch.cat([features.float(), self.sums / self.counts[:, None]])
        targets = torch.cat([labels, torch.arange(self.n_classes).to(labels)])
        projector, loss = self._trained(unit_rows(rows), self.frame[targets])
        sums, counts = add_to_classes(self.sums, self.counts, features.float(), labels)
        self.sums, self.counts, self.projector, self.last_loss = sums, counts, projector, loss
        self.n_tasks = self.n_tasks + 1

    def scores(self, features: Tensor) -> Tensor:
        projected = normalize(project(self.projector, unit_rows(features.float())))
        return (projected @ self.frame[: self.n_classes].T).to(features.dtype)

    def diagnostics(self) -> dict[str, float]:
        return {"loss": self.last_loss}

    def state(self) -> LearnerState:
        held = {name: getattr(self, name).clone() for name in HELD}
        return LearnerState(held | {f"projector/{name}": tensor.clone() for name, tensor in self.projector.items()}, {})

    def restore(self, state: LearnerState) -> None:
        names = [f"projector/{name}" for name in self.projector]
        expect_keys(state.tensors, {*HELD, *names}, "nc_fscil")
        self.sums, self.counts, self.n_tasks = copied(state, self.network.device, *HELD)
        self.projector = dict(zip(self.projector, copied(state, self.network.device, *names), strict=True))

    def _check_vertices(self, n_classes: int, there_are: str) -> None:
        vertices = self.settings.vertices
        if n_classes > vertices:
            raise MisuseError(
                f"{self.name} has {vertices} vertices for classes, but {there_are} {n_classes} classes. Set "
                "vertices to the number of classes that will ever come, and start again: they are fixed from the start."
            )

    def _trained(self, rows: Tensor, targets: Tensor) -> tuple[Params, float]:
        """The projector after its steps, and the loss of the last."""
        params = trainable_copy(self.projector)
        optimiser = torch.optim.Adam(params.values(), lr=self.settings.learning_rate)
        random = generator(self.seed, "nc_fscil", int(self.n_tasks))
        loss = rows.new_zeros(())
        for step in range(self.settings.steps):
            batch, goals = rows, targets
            if len(rows) > self.settings.batch_size:
                chosen = torch.randperm(len(rows), generator=random)[: self.settings.batch_size].to(rows.device)
                batch, goals = rows[chosen], targets[chosen]
            with torch.enable_grad():
                loss = alignment_loss(project(params, batch), goals)
                optimiser.zero_grad()
                loss.backward()
            if not bool(torch.isfinite(loss)):
                raise Divergence(
                    f"the projector of nc_fscil diverged: its loss is {loss.item()} at step {step + 1} with learning_rate "
                    f"{self.settings.learning_rate:g}. Lower learning_rate."
                )
            optimiser.step()
        return frozen_copy(params), loss.item()


def simplex(vertices: int, random: torch.Generator) -> Tensor:
    """A simplex equiangular tight frame, a row a vertex: √(n / (n − 1)) Q (I − 11ᵀ/n), Q a random orthonormal basis."""
    dimensions = max(LEAST_DIMENSIONS, vertices)
    basis = torch.linalg.qr(torch.randn(dimensions, vertices, generator=random, dtype=torch.float64)).Q
    centred = basis - basis.mean(1, keepdim=True)
    frame: Tensor = ((vertices / (vertices - 1)) ** 0.5 * centred).T.float().contiguous()
    return frame


def fresh_projector(n_features: int, dimensions: int, random: torch.Generator) -> Params:
    """Three layers of d → 2d → 2d → `dimensions` numbers, and one beside them; drawn as `torch.nn.Linear` draws."""
    hidden = 2 * n_features
    shapes = {"first": (hidden, n_features), "second": (hidden, hidden), "third": (dimensions, hidden)}
    params: Params = {}
    for name, (rows, columns) in (shapes | {"skip": (dimensions, n_features)}).items():
        params[f"{name}/weight"] = (torch.rand(rows, columns, generator=random) * 2 - 1) * columns**-0.5
    for name in ("first", "second"):
        params |= {
            f"{name}/bias": torch.zeros(hidden),
            f"{name}/scale": torch.ones(hidden),
            f"{name}/shift": torch.zeros(hidden),
        }
    return params


def project(params: Params, rows: Tensor) -> Tensor:
    """What the projector makes of features."""
    x = rows
    for name in ("first", "second"):
        x = linear(x, params[f"{name}/weight"], params[f"{name}/bias"])
        x = leaky_relu(layer_norm(x, x.shape[1:], params[f"{name}/scale"], params[f"{name}/shift"]), SLOPE)
    return linear(x, params["third/weight"]) + linear(rows, params["skip/weight"])


def alignment_loss(projected: Tensor, targets: Tensor) -> Tensor:
    """10 · ½ (m·f̂ − 1)², the mean over rows; nothing where all point to their vertices."""
    cosines: Tensor = (normalize(projected) * targets).sum(1)
    return WEIGHT / 2 * (cosines - 1).square().mean()


def unit_rows(features: Tensor) -> Tensor:
    """Rows of length √d."""
    rows: Tensor = normalize(features) * features.shape[1] ** 0.5
    return rows


METHODS = (
    Method(
        "nc_fscil",
        FixedFrame,
        "A projector on the frozen embedding, trained towards fixed vertices; must know the number of classes in advance.",
        "Yang et al. 2023",
    ),
)
