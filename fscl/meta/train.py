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
    _check(learner, train, validation, spec)
    identity = _identity(learner, network_spec, train, validation, spec, seed)
    state = _State.load(checkpoint, identity) if checkpoint.exists() else None
    if state is None:
        state = _State.fresh(learner.init(network_spec, spec.n_way, generator(seed, "meta", "init")))
    with _stop_between_steps() as stop:
        while state.step < spec.steps:
            _train_step(learner, network_spec, train, spec, seed, state)
            if state.step % spec.validate_every == 0 or state.step == spec.steps:
                accuracy = _validate(learner, network_spec, train, validation, spec, seed, state.meta)
                state.note(accuracy)
                state.save(checkpoint, identity)
            if progress is not None:
                progress(state.step, spec.steps, f"step {state.step}/{spec.steps}, {state.summary()}")
            if stop.asked:
                state.save(checkpoint, identity)
                raise Interrupted(
                    f"stopped after step {state.step} of {spec.steps}; the same command continues from there."
                )
    network = _with_statistics(learner.network(network_spec, frozen_copy(state.best)), train, seed)
    return TrainedBase(network, state.best_step, state.best_accuracy, tuple(state.history))


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


def _train_step(
    learner: BaseLearner, network_spec: NetworkSpec, train: ClassPool, spec: TrainSpec, seed: int, state: _State
) -> None:
    state.optimiser.zero_grad()
    for number in range(spec.meta_batch):
        random = generator(seed, "meta", "episode", state.step, number)
        episode = sample_episode(train, n_way=spec.n_way, n_shot=spec.n_shot, n_query=spec.n_query, generator=random)
        loss = learner.loss(network_spec, state.meta, episode) / spec.meta_batch
        if not torch.isfinite(loss):
            raise Divergence(
                f"meta-training diverged: the loss is {loss.item()} at step {state.step + 1} with learning rate "
                f"{spec.rate(state.step):g}. Lower learning_rate (or inner_rate); earlier checkpoints are intact."
            )
        loss.backward()
    for group in state.optimiser.param_groups:
        group["lr"] = spec.rate(state.step)
    state.optimiser.step()
    state.step += 1


def _validate(
    learner: BaseLearner,
    network_spec: NetworkSpec,
    train: ClassPool,
    validation: ClassPool,
    spec: TrainSpec,
    seed: int,
    meta: Params,
) -> float:
    network = _with_statistics(learner.network(network_spec, frozen_copy(meta)), train, seed)
    accuracies = episode_accuracy(
        learner,
        network,
        validation,
        n_episodes=spec.validation_episodes,
        n_way=spec.validation_way,
        n_shot=spec.n_shot,
        n_query=spec.validation_query,
        seed=seed,
    )
    return sum(accuracies) / len(accuracies)


def _with_statistics(network: Network, train: ClassPool, seed: int) -> Network:
    chosen = torch.randperm(len(train.images), generator=generator(seed, "meta", "calibration"))[:CALIBRATION_IMAGES]
    return replace(network, statistics=network.freeze_statistics(network.to_input(train.images[chosen])))


def _check(learner: BaseLearner, train: ClassPool, validation: ClassPool, spec: TrainSpec) -> None:
    if learner.fixed_way and spec.validation_way != spec.n_way:
        raise ConfigError(
            f"the head of {type(learner).__name__} has {spec.n_way} rows (n_way), so validation_way must be as many, "
            f"but it is {spec.validation_way}."
        )
    train.require(n_classes=spec.n_way, n_images=spec.n_shot + spec.n_query, purpose="meta-training")
    validation.require(
        n_classes=spec.validation_way,
        n_images=spec.n_shot + spec.validation_query,
        purpose="validation of meta-training",
    )


def _identity(
    learner: BaseLearner, network_spec: NetworkSpec, train: ClassPool, validation: ClassPool, spec: TrainSpec, seed: int
) -> dict[str, Any]:
    return {
        "learner": learner.model_dump(),
        "network": network_spec.model_dump(),
        "train": spec.model_dump(),
        "data": {"train": train.content_hash, "validation": validation.content_hash},
        "seed": {"seed": seed},
    }


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
