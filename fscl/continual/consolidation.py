"""Two-step consolidation, and every method that is a setting of it.

Slow weights carry what generalises from task to task; fast weights start from them, learn the task at hand together with
the replayed ones, and answer questions. Learning a task is two steps: *tag* the slow weights by the task's expected
gradient, then *fast learning*, in which the tags gate how far the embedding may move. Afterwards the slow
weights follow a little.

L. Wang, Q. Li, Y. Zhong, J. Zhu, "Few-shot Continual Learning: a Brain-inspired Approach", 2021 (Algorithm 1).

Departs from the paper, or settles what it leaves open:
- one iteration is one full-batch step over the replay set; a task takes `steps` of them, the embedding moves in the first
  `embedding_steps`, the head in all of them, under one Adam state;
- the head grows by a fresh row for each new class and has a slow copy that follows at the same rate;
- prediction is inductive: BatchNorm uses statistics frozen from the replay set after the embedding has moved.
"""

from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.continual.base import ContinualLearner, LearnerState, expect_keys
from fscl.continual.memory import ReplayMemory
from fscl.continual.regularisers import ActivityScale, RegulariserName, constant_gates, penalty, pull, tag_gates
from fscl.data.pool import Examples
from fscl.errors import Divergence
from fscl.nets.fast import Params, empty_head, frozen_copy, grow_head, in_layout, interpolate, linear, trainable_copy
from fscl.nets.network import Network
from fscl.nets.norm import Statistics
from fscl.rng import generator

Count = Annotated[int, Field(ge=0)]
Decay = Annotated[float, Field(ge=0, lt=1)]

FINITE_CHECK_EVERY = 50  # steps; a check each step would cost more than it tells


class Dials(BaseModel):
    """The settings of a consolidation learner; the paper's symbol stands behind each.

    Attributes:
        slow_rate: β, how far the slow weights follow the fast ones after a task.
        embedding_steps: k, for how many steps the embedding moves; "all" means every step.
        steps: full-batch steps a task; the paper's 500 epochs.
        learning_rate, betas: of Adam, fresh for each task.
        regulariser, strength: what holds the embedding to the slow weights, and λ.
        gate_slope, activity_scale: m, and whether tags are scaled by layer (see regularisers.py).
        memory_per_class: shots of each class to replay; "all" or a number, 0 for no replay.
        start: "base" begins at the meta-trained weights, "random" at fresh ones.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    slow_rate: float = Field(default=0.01, ge=0, le=1)
    embedding_steps: Count | Literal["all"] = 100
    steps: int = Field(default=500, ge=1)
    learning_rate: float = Field(default=5e-4, gt=0)
    betas: tuple[Decay, Decay] = (0.5, 0.999)
    regulariser: RegulariserName = "none"
    strength: float = Field(default=0.0, ge=0)
    gate_slope: float = Field(default=1.0, ge=0)
    activity_scale: ActivityScale = "layer"
    memory_per_class: Count | Literal["all"] = "all"
    start: Literal["base", "random"] = "base"

    @property
    def moving_steps(self) -> int:
        """In how many of the steps the embedding moves."""
        return self.steps if self.embedding_steps == "all" else min(self.embedding_steps, self.steps)


class Consolidation(ContinualLearner):
    """Slow and fast weights over a replayed memory. `methods.py` lists the named settings."""

    def __init__(self, network: Network, dials: Dials, *, seed: int, name: str = "consolidation") -> None:
        self.network = network.randomised(generator(seed, "random-start")) if dials.start == "random" else network
        self.dials = dials
        self.seed = seed
        self.name = name
        self.memory = ReplayMemory(None if dials.memory_per_class == "all" else dials.memory_per_class)
        self.n_tasks = 0
        self.slow: Params = frozen_copy(self.network.params)
        self.slow_head: Params = empty_head(network.n_features, network.dtype)
        self.fast: Params = self.slow
        self.fast_head: Params = self.slow_head
        self.activity: Params = {name: torch.zeros_like(tensor) for name, tensor in self.slow.items()}
        self.statistics: Statistics | None = None
        self.pull_ratio: float | None = None

    @property
    def n_classes(self) -> int:
        return len(self.slow_head["bias"])

    def learn_task(self, support: Examples) -> None:
        self._check_support(support)
        n_classes = max(self.n_classes, int(support.labels.max()) + 1)
        rows = [generator(self.seed, "head-row", label) for label in range(n_classes)]
        slow_head = grow_head(self.slow_head, n_classes, rows)
        replay = self.memory.with_new(support)
        x, y = self.network.to_input(replay.images), replay.labels

        activity, gates = self._tag(slow_head, support)
        fast, fast_head = trainable_copy(self.slow), trainable_copy(slow_head)
        optimiser = torch.optim.Adam(
            [*fast.values(), *fast_head.values()], lr=self.dials.learning_rate, betas=self.dials.betas
        )
        pulled: Params = {}
        for step in range(self.dials.moving_steps):
            loss = cross_entropy(linear(fast_head, self.network.features(x, fast)), y)
            if gates is not None:
                loss = loss + self.dials.strength * penalty(fast, self.slow, gates)
                if step + 1 == self.dials.moving_steps:
                    pulled = pull(fast, self.slow, gates, self.dials.strength)
            self._step(optimiser, loss, step)
        pull_ratio = _pull_ratio(pulled, fast)
        statistics = self.network.freeze_statistics(x, fast)
        if self.dials.moving_steps < self.dials.steps:
            features = self.network.embed(replay.images, fast, statistics=statistics)
            for tensor in fast.values():
                tensor.grad = None  # Adam skips what has no gradient: from here on only the head moves
            for step in range(self.dials.moving_steps, self.dials.steps):
                self._step(optimiser, cross_entropy(linear(fast_head, features), y), step)
        self._refuse_divergence(fast, fast_head)

        # nothing above changed the learner: a task that fails leaves it as it was
        self.fast, self.fast_head, self.statistics = frozen_copy(fast), frozen_copy(fast_head), statistics
        self.slow = interpolate(self.slow, self.fast, self.dials.slow_rate)
        self.slow_head = interpolate(slow_head, self.fast_head, self.dials.slow_rate)
        self.activity, self.pull_ratio = activity, pull_ratio
        self.memory.add(support)
        self.n_tasks += 1

    def predict(self, images: Tensor) -> Tensor:
        self._check_can_predict()
        return linear(self.fast_head, self.network.embed(images, self.fast, statistics=self.statistics))

    def diagnostics(self) -> dict[str, float]:
        """How hard the regulariser pulled in the last step of the embedding, as a share of the loss's own gradient."""
        return {} if self.pull_ratio is None else {"pull_ratio": self.pull_ratio}

    def _tag(self, slow_head: Params, support: Examples) -> tuple[Params, Params | None]:
        """Step 1: tags summed up to and with this task, and the gates they give."""
        if self.dials.regulariser == "none":
            return self.activity, None
        if self.dials.regulariser == "constant":
            return self.activity, constant_gates(self.slow)
        slow = trainable_copy(self.slow)
        scores = linear(slow_head, self.network.features(self.network.to_input(support.images), slow))
        grads = torch.autograd.grad(cross_entropy(scores, support.labels), list(slow.values()))
        activity = {name: self.activity[name] + grad.abs() for name, grad in zip(slow, grads, strict=True)}
        return activity, tag_gates(activity, self.n_tasks + 1, self.dials.gate_slope, self.dials.activity_scale)

    def _step(self, optimiser: torch.optim.Optimizer, loss: Tensor, step: int) -> None:
        if step % FINITE_CHECK_EVERY == 0 and not torch.isfinite(loss):
            raise self._divergence(f"the loss is {loss.item()} at step {step + 1}")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    def _refuse_divergence(self, *weights: Params) -> None:
        if not all(bool(torch.isfinite(tensor).all()) for params in weights for tensor in params.values()):
            raise self._divergence("the weights are no longer finite")

    def _divergence(self, what: str) -> Divergence:
        return Divergence(
            f"{self.name} diverged in task {self.n_tasks + 1}: {what}, with learning_rate {self.dials.learning_rate:g} and "
            f"strength {self.dials.strength:g}. Lower one of them; the learner is as it was before the task."
        )

    def state(self) -> LearnerState:
        tensors = {f"memory/{key}": tensor for key, tensor in self.memory.tensors().items()}
        for group, params in self._groups().items():
            tensors |= {f"{group}/{key}": tensor.clone() for key, tensor in params.items()}
        return LearnerState(tensors, {"n_tasks": self.n_tasks, "method": self.name})

    def restore(self, state: LearnerState) -> None:
        optional = {key for key in state.tensors if key.startswith(("memory/", "statistics/"))}
        needed = {f"{part}/{key}" for part, params in self._groups().items() for key in params if part != "statistics"}
        expect_keys(state.tensors, needed | optional, self.name)

        def group(part: str) -> Params:
            prefix = f"{part}/"
            found = {key: tensor for key, tensor in state.tensors.items() if key.startswith(prefix)}
            return {key.removeprefix(prefix): tensor.clone() for key, tensor in found.items()}

        def weights(part: str) -> Params:
            found = group(part)
            return in_layout({name: found[name] for name in self.network.params})

        self.slow, self.fast, self.activity = weights("slow"), weights("fast"), weights("activity")
        self.slow_head, self.fast_head = group("slow_head"), group("fast_head")
        self.statistics = group("statistics") or None
        self.memory.restore(group("memory"))
        self.n_tasks = int(state.details["n_tasks"])

    def _groups(self) -> dict[str, Params]:
        return {
            "slow": self.slow,
            "slow_head": self.slow_head,
            "fast": self.fast,
            "fast_head": self.fast_head,
            "activity": self.activity,
            "statistics": self.statistics or {},
        }


def _pull_ratio(pulled: Params, fast: Params) -> float | None:
    """‖gradient of the penalty‖ / ‖gradient of the loss without it‖; the gradients left in `fast` are the sum of both."""
    if not pulled:
        return None
    by_penalty = torch.stack([grad.norm() for grad in pulled.values()]).norm()
    total = {name: tensor.grad for name, tensor in fast.items() if tensor.grad is not None}
    by_loss = torch.stack([(total[name] - grad).norm() for name, grad in pulled.items()]).norm()
    return float(by_penalty / by_loss.clamp_min(torch.finfo(by_loss.dtype).tiny))
