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
from typing import Annotated, Any, Literal

import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
)
from torch import Tensor

from fscl.data.augment import Variation
from fscl.data.episode import jittered_episode, sample_episode, sample_positions, varied_episode
from fscl.data.pool import ClassChoice, ClassPool
from fscl.device import autocast as autocasting
from fscl.errors import ConfigError, Divergence, Interrupted
from fscl.meta.base import BaseLearner, EmbeddingLearner
from fscl.meta.checkpoint import TrainingState
from fscl.meta.team import Team
from fscl.nets.network import Network
from fscl.nets.params import Params, frozen_copy, interpolate, placed
from fscl.nets.trained import NetworkSpec, TrainedNetwork
from fscl.rng import generator
from fscl.storage import tensor_digest

CALIBRATION_IMAGES = 512  # training images whose statistics BatchNorm predicts with

Progress = Callable[[int, int, str], None]
"""Called with (steps done, steps in all, a few words)."""

OnValidation = Callable[[int, Network], None]
"""Called with the steps done and the network as it is then."""


class TrainSpec(BaseModel):
    """How long and on what episodes to meta-train.

    Attributes:
        steps: of the outer optimiser (AdamW), each on `meta_batch` episodes.
        classes: "all" training classes, or one half of them in their order, for bases that are trained in two parts.
        rotations: every training class turned by 90, 180 and 270 degrees makes three more.
        jitter: how far training images are turned, scaled, sheared and shifted at random; 0 not at all, 1 is ±10° and so on.
        weight_decay: of the optimiser; 0 makes it plain Adam.
        flip: training images may be mirrored.
        crop: training images may be cut-outs, smaller by up to this part of the side and enlarged again.
        colour: brightness, contrast and saturation of training images change by up to this part.
        validation_shot: of the episodes that the base is chosen and tested on; without, `n_shot`.
        test_episodes: how many to test the finished base on; 0 while settings are still being chosen.
        test_ways: the sizes of those episodes; without, `validation_way`.
        test_mirrored: test once more with every picture looked at both ways, its features averaged; each judged alone.
        averaging: validate and keep a running average of the weights with this decay; 0 keeps the weights themselves.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: int = Field(default=1000, ge=1)
    meta_batch: int = Field(default=1, ge=1, le=1000)
    n_way: int = Field(default=5, ge=2)
    n_shot: int = Field(default=5, ge=1)
    n_query: int = Field(default=15, ge=1)
    classes: ClassChoice = "all"
    rotations: bool = False
    jitter: float = Field(default=0.0, ge=0, le=2)
    flip: bool = False
    crop: float = Field(default=0.0, ge=0, lt=1)
    colour: float = Field(default=0.0, ge=0, lt=1)
    averaging: float = Field(default=0.0, ge=0, lt=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.0, ge=0, lt=1)
    schedule: Literal["constant", "cosine"] = "constant"
    validate_every: int = Field(default=100, ge=1)
    validation_episodes: int = Field(default=100, ge=1)
    validation_way: int = Field(default=5, ge=2)
    validation_shot: int | None = Field(default=None, ge=1)
    validation_query: int = Field(default=15, ge=1)
    test_episodes: int = Field(default=600, ge=0)
    test_ways: tuple[Annotated[int, Field(ge=2)], ...] = ()
    test_mirrored: bool = False

    @model_serializer(mode="wrap")
    def _without_usual_classes(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """All classes go without saying, as they did before there was a choice: checkpoints and records stay as they are."""
        content: dict[str, Any] = serialize(self)
        return {key: value for key, value in content.items() if (key, value) != ("classes", "all")}

    @field_validator("test_episodes")
    @classmethod
    def _enough_for_an_interval(cls, count: int) -> int:
        if count == 1:
            raise ValueError("one episode gives no interval; ask for none (0) or at least two")
        return count

    @property
    def shots_to_test(self) -> int:
        """Shots of the episodes that the base is chosen and tested on."""
        return self.n_shot if self.validation_shot is None else self.validation_shot

    @property
    def variation(self) -> Variation:
        """How training photographs are varied."""
        return Variation(flip=self.flip, crop=self.crop, colour=self.colour)

    def rate(self, step: int) -> float:
        """The outer learning rate of a step, counted from 0."""
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * step / self.steps))


@dataclass(frozen=True)
class TrainedBase:
    """The best network by validation, the meta-parameters behind it, and how it was found: (step, accuracy) each time."""

    network: TrainedNetwork
    meta: Params
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
    start: Network | None = None,
    progress: Progress | None = None,
    team: Team | None = None,
    on_validation: OnValidation | None = None,
    device: torch.device | str = "cpu",
    autocast: bool = False,
) -> TrainedBase:
    """Meta-train, or continue from `checkpoint` if it is there. Every process of a `team` makes the same call.

    The backbone starts at random, or where a trained network of the same shape, `start`, is. All is computed on `device`,
    where the network that comes back is, too; with `autocast`, features in training are bfloat16 where torch thinks it safe.

    Ctrl-C finishes the step at hand, saves and raises `Interrupted`; the same call continues. `on_validation` is called
    before the first step and at each validation; after a kill, once more for those since the last checkpoint.
    """
    team = team or Team()
    place = torch.device(device)
    train, validation = train.to(place), validation.to(place)
    job = _Job(learner, network_spec, train, validation, spec, seed, team, start, place, autocast)
    job.check()
    identity = job.identity()
    state = TrainingState.load(checkpoint, identity, place) if checkpoint.exists() else None
    if state is None:
        random = generator(seed, "meta", "init")
        meta = learner.init(network_spec, n_way=spec.n_way, n_classes=len(train), generator=random)
        state = TrainingState.fresh(placed(meta if start is None else learner.started_from(meta, start), place))
        if on_validation is not None:
            on_validation(0, job.network(state.average))
    team.agree(state.step)
    with _stop_between_steps() as stop:
        while state.step < spec.steps:
            job.train_step(state)
            if state.step % spec.validate_every == 0 or state.step == spec.steps:
                state.note(job.validation_accuracy(state.average))
                if on_validation is not None:
                    on_validation(state.step, job.network(state.average))
                job.save(state, checkpoint, identity)
            if progress is not None:
                progress(state.step, spec.steps, f"step {state.step}/{spec.steps}, {state.summary()}")
            if team.any(stop.asked):
                job.save(state, checkpoint, identity)
                raise Interrupted(
                    f"stopped after step {state.step} of {spec.steps}; the same command continues from there."
                )
    history = tuple(state.history)
    return TrainedBase(job.network(state.best), state.best, state.best_step, state.best_accuracy, history)


def episode_accuracy(
    learner: BaseLearner,
    network: TrainedNetwork,
    meta: Params,
    pool: ClassPool,
    *,
    n_episodes: int,
    n_way: int,
    n_shot: int,
    n_query: int,
    seed: int,
    mirrored: bool = False,
    team: Team | None = None,
    progress: Progress | None = None,
) -> list[float]:
    """Accuracy on the queries of each of `n_episodes` episodes drawn from `pool`.

    `mirrored` looks at every picture both ways and averages its features, for learners that predict from them.

    Learners that predict from frozen features embed the pool once, which makes a thousand episodes as cheap as ten.
    """
    learner = learner.with_learned(meta)
    features = network.embed(pool.images) if isinstance(learner, EmbeddingLearner) else None
    if features is not None and mirrored:
        features = (features + network.embed(pool.images.flip(3))) / 2
    shape = {"n_way": n_way, "n_shot": n_shot, "n_query": n_query}

    def accuracy(number: int) -> Tensor:
        random = generator(seed, "evaluation-episode", number)
        if features is not None and isinstance(learner, EmbeddingLearner):
            drawn = sample_positions(pool, **shape, generator=random)
            labels = torch.arange(n_way, device=network.device)
            support, query = features[drawn.support.flatten()], features[drawn.query.flatten()]
            scores = learner.feature_scores(support, labels.repeat_interleave(n_shot), query, n_way)
            asked = labels.repeat_interleave(n_query)
        else:
            episode = sample_episode(pool, **shape, generator=random).to(network.device)
            scores, asked = learner.query_scores(network, meta, episode), episode.query.labels
        if progress is not None:
            progress(number + 1, n_episodes, "")
        return (scores.argmax(1) == asked).float().mean()[None]

    return [share.item() for share in (team or Team()).map(n_episodes, accuracy)]


@dataclass(frozen=True)
class _Job:
    """What is trained, on what, and how."""

    learner: BaseLearner
    spec: NetworkSpec
    train: ClassPool
    validation: ClassPool
    plan: TrainSpec
    seed: int
    team: Team
    start: Network | None
    device: torch.device
    autocast: bool

    def check(self) -> None:
        """Refuse what the data or the learner cannot serve, before anything is computed."""
        plan = self.plan
        self.learner.check_training(start=self.start, weight_decay=plan.weight_decay)
        if self.learner.has_fixed_way and plan.validation_way != plan.n_way:
            raise ConfigError(
                f"the head of {type(self.learner).__name__} has {plan.n_way} rows (n_way), so validation_way must be as "
                f"many, but it is {plan.validation_way}."
            )
        if self.learner.stands_still and (self.start is None or plan.weight_decay):
            problem = "base.start to name one" if self.start is None else "base.train.weight_decay = 0, or it shrinks"
            raise ConfigError(f"{self.learner.method} leaves a trained network as it is, and needs {problem}.")
        if self.start is not None and self.start.spec != self.spec:
            differing = [
                f for f in type(self.spec).model_fields if getattr(self.spec, f) != getattr(self.start.spec, f)
            ]
            raise ConfigError(
                f"the network to start from has {differing[0]} = {getattr(self.start.spec, differing[0])!r}, but "
                f"{getattr(self.spec, differing[0])!r} is to be trained. Give base.network the same shape."
            )
        self.train.require(n_classes=plan.n_way, n_images=plan.n_shot + plan.n_query, purpose="meta-training")
        self.validation.require(
            n_classes=plan.validation_way,
            n_images=plan.shots_to_test + plan.validation_query,
            purpose="validation of meta-training",
        )

    def identity(self) -> dict[str, Any]:
        """All that the outcome depends on; the CPU goes without saying, as it did before there was another device."""
        elsewhere = {"device": {"type": self.device.type}} if self.device.type != "cpu" else {}
        return {
            **elsewhere,
            **({"autocast": {"on": True}} if self.autocast else {}),
            "learner": self.learner.model_dump(mode="json"),
            "network": self.spec.model_dump(mode="json"),
            "train": self.plan.model_dump(mode="json", exclude={"test_ways", "test_episodes", "test_mirrored"}),
            "data": {"train": self.train.content_hash, "validation": self.validation.content_hash},
            "seed": {"seed": self.seed},
            "start": {"weights": None if self.start is None else tensor_digest(self.start.params)},
        }

    def train_step(self, state: TrainingState) -> None:
        """One step of the outer optimiser, on episodes that the step's number decides."""
        plan, rate, parameters = self.plan, self.plan.rate(state.step), list(state.meta.values())
        sizes = [1, *(parameter.numel() for parameter in parameters)]

        def loss_and_gradients(number: int) -> Tensor:
            random = generator(self.seed, "meta", "episode", state.step, number)
            episode = sample_episode(
                self.train, n_way=plan.n_way, n_shot=plan.n_shot, n_query=plan.n_query, generator=random
            )
            episode = episode.to(self.device)
            episode = varied_episode(jittered_episode(episode, plan.jitter, random), plan.variation, random)
            with autocasting(self.autocast):
                loss, grads = self.learner.gradients(self.spec, state.meta, episode, state.step / plan.steps)
            return torch.cat([loss.reshape(1), *(grad.reshape(-1) for grad in grads)])

        total = None
        for found in self.team.map(plan.meta_batch, loss_and_gradients):
            if not torch.isfinite(found[0]):
                raise Divergence(
                    f"meta-training diverged: the loss is {found[0].item()} at step {state.step + 1} with learning rate "
                    f"{rate:g}. Lower learning_rate (or inner_rate); earlier checkpoints are intact."
                )
            total = found if total is None else total.add_(found)
        assert total is not None
        if not torch.isfinite(total).all():  # or the next checkpoint would hold weights that are no numbers
            raise Divergence(
                f"meta-training diverged: the gradient is not finite at step {state.step + 1} with learning rate "
                f"{rate:g}. Lower learning_rate (or inner_rate); earlier checkpoints are intact."
            )
        mean = total.div_(plan.meta_batch).to(self.device)  # of a team they may come over the CPU
        for parameter, grad in zip(parameters, mean.split(sizes)[1:], strict=True):
            parameter.grad = grad.view(parameter.shape)
        for group in state.optimiser.param_groups:
            group["lr"], group["weight_decay"] = rate, plan.weight_decay
        state.optimiser.step()
        state.step += 1
        # early on a long average would remember the random start, so it begins short
        decay = min(plan.averaging, state.step / (state.step + 10))
        state.average = interpolate(state.average, state.meta, 1 - decay)

    def save(self, state: TrainingState, checkpoint: Path, identity: dict[str, Any]) -> None:
        """Write a checkpoint, once for the whole team."""
        if self.team.leads:
            state.save(checkpoint, identity)
        self.team.wait()

    def network(self, meta: Params) -> TrainedNetwork:
        """The network at these weights, with the statistics of training images where it has BatchNorm."""
        network = self.learner.network(self.spec, frozen_copy(meta))
        if network.statistics is not None:
            return network
        order = torch.randperm(len(self.train.images), generator=generator(self.seed, "meta", "calibration"))
        images = self.train.images[order[:CALIBRATION_IMAGES]]
        return replace(network, statistics=network.freeze_statistics(network.to_input(images)))

    def validation_accuracy(self, meta: Params) -> float:
        """Mean accuracy on the same episodes of validation classes each time."""
        accuracies = episode_accuracy(
            self.learner,
            self.network(meta),
            meta,
            self.validation,
            n_episodes=self.plan.validation_episodes,
            n_way=self.plan.validation_way,
            n_shot=self.plan.shots_to_test,
            n_query=self.plan.validation_query,
            seed=self.seed,
            team=self.team,
        )
        return sum(accuracies) / len(accuracies)


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
        previous = signal.signal(signal.SIGINT, ask)
    except ValueError:  # not in the main thread: the caller handles signals
        yield stop
        return
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, previous)
