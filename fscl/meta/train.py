"""The only meta-training loop: episodes in, the network with the best validation accuracy out.

Everything random is found by name from the seed and the step, so a run that was killed and continued by the same call ends
with the same bits as one that was not. The best weights are chosen on validation classes and nothing else.
"""

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fscl.data.episode import sample_episode
from fscl.data.pool import ClassPool
from fscl.errors import ConfigError, Divergence, Interrupted, RunError
from fscl.meta.base import BaseLearner
from fscl.nets.fast import Params, frozen_copy, in_layout, trainable_copy
from fscl.nets.network import Network, NetworkSpec
from fscl.rng import generator
from fscl.storage import load_tensors, save_tensors

CALIBRATION_IMAGES = 512  # training images whose statistics BatchNorm predicts with

Progress = Callable[[int, int, str], None]
"""Called with (steps done, steps in all, a few words)."""


class TrainSpec(BaseModel):
    """How long and on what episodes to meta-train."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: int = Field(default=1000, ge=1)
    meta_batch: int = Field(default=1, ge=1, le=1000)
    n_way: int = Field(default=5, ge=2)
    n_shot: int = Field(default=5, ge=1)
    n_query: int = Field(default=15, ge=1)
    rotations: bool = False
    learning_rate: float = Field(default=1e-3, gt=0)
    schedule: Literal["constant", "cosine"] = "constant"
    validate_every: int = Field(default=100, ge=1)
    validation_episodes: int = Field(default=100, ge=1)
    validation_way: int = Field(default=5, ge=2)
    validation_query: int = Field(default=15, ge=1)
    test_episodes: int = Field(default=600, ge=1)

    def rate(self, step: int) -> float:
        """The outer learning rate of a step, counted from 0."""
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * step / self.steps))


@dataclass(frozen=True)
class TrainedBase:
    """The best network by validation, and how it was found: (step, accuracy) at each validation."""

    network: Network
    best_step: int
    best_accuracy: float
    history: tuple[tuple[int, float], ...]


def meta_train(
    learner: BaseLearner,
    network_spec: NetworkSpec,
    train: ClassPool,
    validation: ClassPool,
    spec: TrainSpec,
    *,
    seed: int,
    checkpoint: Path,
    progress: Progress | None = None,
) -> TrainedBase:
    """Meta-train, or continue from `checkpoint` if it is there.

    Ctrl-C finishes the step at hand, saves and raises `Interrupted`; the same call continues.
    """
    job = _Job(learner, network_spec, train, validation, spec, seed)
    job.check()
    identity = job.identity()
    state = _State.load(checkpoint, identity) if checkpoint.exists() else None
    if state is None:
        state = _State.fresh(learner.init(network_spec, spec.n_way, generator(seed, "meta", "init")))
    with _stop_between_steps() as stop:
        while state.step < spec.steps:
            job.train_step(state)
            if state.step % spec.validate_every == 0 or state.step == spec.steps:
                state.note(job.validation_accuracy(state.meta))
                state.save(checkpoint, identity)
            if progress is not None:
                progress(state.step, spec.steps, f"step {state.step}/{spec.steps}, {state.summary()}")
            if stop.asked:
                state.save(checkpoint, identity)
                raise Interrupted(
                    f"stopped after step {state.step} of {spec.steps}; the same command continues from there."
                )
    return TrainedBase(job.network(state.best), state.best_step, state.best_accuracy, tuple(state.history))


def episode_accuracy(
    learner: BaseLearner,
    network: Network,
    pool: ClassPool,
    *,
    n_episodes: int,
    n_way: int,
    n_shot: int,
    n_query: int,
    seed: int,
) -> list[float]:
    """Accuracy on the queries of each of `n_episodes` episodes drawn from `pool`."""
    accuracies = []
    for number in range(n_episodes):
        random = generator(seed, "evaluation-episode", number)
        episode = sample_episode(pool, n_way=n_way, n_shot=n_shot, n_query=n_query, generator=random)
        right = learner.query_scores(network, episode).argmax(1) == episode.query.labels
        accuracies.append(right.float().mean().item())
    return accuracies


@dataclass
class _State:
    """All that a checkpoint holds."""

    meta: Params
    optimiser: torch.optim.Adam
    best: Params
    step: int = 0
    best_step: int = 0
    best_accuracy: float = -1.0
    history: list[tuple[int, float]] | Any = None

    @classmethod
    def fresh(cls, start: Params) -> "_State":
        meta = trainable_copy(start)
        return cls(meta, torch.optim.Adam(meta.values()), frozen_copy(meta), history=[])

    def note(self, accuracy: float) -> None:
        self.history.append((self.step, accuracy))
        if accuracy > self.best_accuracy:
            self.best, self.best_step, self.best_accuracy = frozen_copy(self.meta), self.step, accuracy

    def summary(self) -> str:
        return f"best validation {100 * self.best_accuracy:.2f} %" if self.best_step else "no validation yet"

    def save(self, path: Path, identity: dict[str, Any]) -> None:
        tensors: dict[str, Tensor] = {}
        for name, tensor in self.meta.items():
            tensors[f"meta/{name}"] = tensor
            tensors[f"best/{name}"] = self.best[name]
            tensors |= {f"adam/{key}/{name}": value for key, value in self.optimiser.state.get(tensor, {}).items()}
        details = {
            "identity": identity,
            "step": self.step,
            "best_step": self.best_step,
            "best_accuracy": self.best_accuracy,
            "history": self.history,
        }
        save_tensors(path, "meta-training checkpoint", tensors, details)

    @classmethod
    def load(cls, path: Path, identity: dict[str, Any]) -> "_State":
        tensors, details = load_tensors(path, "meta-training checkpoint")
        _refuse_other_identity(path, details["identity"], identity)

        def group(prefix: str) -> Params:
            found = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            return in_layout(found)

        state = cls.fresh(group("meta/"))
        state.best = group("best/")
        for key in ("step", "exp_avg", "exp_avg_sq"):
            for name, value in group(f"adam/{key}/").items():
                state.optimiser.state[state.meta[name]][key] = value
        state.step, state.best_step = details["step"], details["best_step"]
        state.best_accuracy = details["best_accuracy"]
        state.history = [(int(step), float(accuracy)) for step, accuracy in details["history"]]
        return state


@dataclass(frozen=True)
class _Job:
    """What is trained, on what, and how."""

    learner: BaseLearner
    spec: NetworkSpec
    train: ClassPool
    validation: ClassPool
    plan: TrainSpec
    seed: int

    def check(self) -> None:
        """Refuse what the data or the learner cannot serve, before anything is computed."""
        plan = self.plan
        if self.learner.fixed_way and plan.validation_way != plan.n_way:
            raise ConfigError(
                f"the head of {type(self.learner).__name__} has {plan.n_way} rows (n_way), so validation_way must be as "
                f"many, but it is {plan.validation_way}."
            )
        self.train.require(n_classes=plan.n_way, n_images=plan.n_shot + plan.n_query, purpose="meta-training")
        self.validation.require(
            n_classes=plan.validation_way,
            n_images=plan.n_shot + plan.validation_query,
            purpose="validation of meta-training",
        )

    def identity(self) -> dict[str, Any]:
        """All that the outcome depends on."""
        return {
            "learner": self.learner.model_dump(),
            "network": self.spec.model_dump(),
            "train": self.plan.model_dump(),
            "data": {"train": self.train.content_hash, "validation": self.validation.content_hash},
            "seed": {"seed": self.seed},
        }

    def train_step(self, state: _State) -> None:
        """One step of the outer optimiser, on episodes that the step's number decides."""
        plan, rate = self.plan, self.plan.rate(state.step)
        state.optimiser.zero_grad()
        for number in range(plan.meta_batch):
            random = generator(self.seed, "meta", "episode", state.step, number)
            episode = sample_episode(
                self.train, n_way=plan.n_way, n_shot=plan.n_shot, n_query=plan.n_query, generator=random
            )
            loss = self.learner.loss(self.spec, state.meta, episode) / plan.meta_batch
            if not torch.isfinite(loss):
                raise Divergence(
                    f"meta-training diverged: the loss is {loss.item()} at step {state.step + 1} with learning rate "
                    f"{rate:g}. Lower learning_rate (or inner_rate); earlier checkpoints are intact."
                )
            loss.backward()
        for group in state.optimiser.param_groups:
            group["lr"] = rate
        state.optimiser.step()
        state.step += 1

    def network(self, meta: Params) -> Network:
        """The network at these weights, with the statistics of training images where it has BatchNorm."""
        network = self.learner.network(self.spec, frozen_copy(meta))
        order = torch.randperm(len(self.train.images), generator=generator(self.seed, "meta", "calibration"))
        images = self.train.images[order[:CALIBRATION_IMAGES]]
        return replace(network, statistics=network.freeze_statistics(network.to_input(images)))

    def validation_accuracy(self, meta: Params) -> float:
        """Mean accuracy on the same episodes of validation classes each time."""
        accuracies = episode_accuracy(
            self.learner,
            self.network(meta),
            self.validation,
            n_episodes=self.plan.validation_episodes,
            n_way=self.plan.validation_way,
            n_shot=self.plan.n_shot,
            n_query=self.plan.validation_query,
            seed=self.seed,
        )
        return sum(accuracies) / len(accuracies)


def _refuse_other_identity(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for part, values in wanted.items():
        for key, value in values.items():
            before = found.get(part, {}).get(key)
            if before != value:
                raise RunError(
                    f"{path} was begun with {part}.{key} = {before!r}, but now it is {value!r}. Use the old value, or "
                    "another output folder, or delete the checkpoint."
                )


@dataclass
class _Stop:
    asked: bool = False


@contextmanager
def _stop_between_steps() -> Iterator[_Stop]:
    """The first Ctrl-C asks to stop at the next whole step; a second one interrupts at once."""
    stop = _Stop()

    def ask(number: int, frame: object) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    try:
        before = signal.signal(signal.SIGINT, ask)
    except ValueError:  # not in the main thread: the caller handles signals
        yield stop
        return
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
