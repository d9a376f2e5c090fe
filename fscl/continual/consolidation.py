"""Two-step consolidation, and every method that is a setting of it.

Slow weights carry what generalises from task to task; fast weights start from them, learn the task at hand together with
the replayed ones, and answer questions. Learning a task is two steps: *tag* the slow weights by the task's expected
gradient, then *fast learning*, in which the tags gate how far the embedding may move. The slow weights follow a little.

L. Wang, Q. Li, Y. Zhong, J. Zhu, "Few-shot Continual Learning: a Brain-inspired Approach", 2021 (Algorithm 1).

Put together from three parts, each of several kinds with settings of its own: an objective (objectives.py), a regulariser
(regularisers/), and a memory (memory.py).

Departs from the paper, or settles what it leaves open:
- one iteration is one full-batch step over the replay set; a task takes `steps` of them, the embedding moves in the first
  `embedding_steps`, the head in all of them, under one Adam state;
- the head grows by a fresh row for each new class and has a slow copy that follows at the same rate;
- prediction is inductive: BatchNorm's statistics are frozen from the replay set once the embedding has moved, or the base's.
Settings beyond the paper, off unless a method sets them: another objective, jittered shots, a stop, mini-batches.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.continual.batches import BatchSource, ReplaySet
from fscl.continual.consolidation_settings import ConsolidationSettings
from fscl.continual.held_out import HeldOut, by_means, stretch, with_company
from fscl.continual.learner import (
    ContinualLearner,
    HeldWeights,
    LearnerState,
    Remembered,
    Waypoint,
    expect_keys,
    n_bytes,
    without_row,
)
from fscl.continual.memory import AllShots, grown, with_evicted, within
from fscl.continual.objectives import head_of_means
from fscl.continual.regularisers import ComingTask, LearnedTask, Regulariser, can_be_squared, gradient_ratio
from fscl.data.augment import view
from fscl.data.pool import Examples
from fscl.data.stream import StreamSpec
from fscl.device import autocast
from fscl.errors import Divergence
from fscl.nets.network import Network, grouped, named
from fscl.nets.norm import Statistics
from fscl.nets.params import (
    Params,
    empty_head,
    frozen_copy,
    grow_head,
    in_layout,
    interpolate,
    linear,
    relative_distance,
    trainable_copy,
)
from fscl.rng import generator
from fscl.stopping import each

FINITE_CHECK_EVERY = 50  # steps; a check each step would cost more than it tells


class Consolidation(ContinualLearner):
    """Slow and fast weights over a replayed memory; `methods/two_step.py` lists the named settings.

    On a frozen base there is no embedding to move or to hold: every setting then learns the head alone.
    """

    Settings = ConsolidationSettings
    settings: ConsolidationSettings

    def __init__(self, network: Network, settings: ConsolidationSettings, *, seed: int) -> None:
        settings = settings.fitting(network)
        if settings.start == "random":
            network = network.randomised(generator(seed, "random-start"))
        super().__init__(network, settings, seed=seed)
        settings.memory.check(network)
        self.memory = settings.memory.empty()
        self.n_tasks = 0
        self.evicted: Params = {}  # by class, of the shots that were not kept: how many, and the sum of their features
        self.slow: Params = frozen_copy(self.network.params)
        self.slow_head: Params = empty_head(network.n_features, network.dtype, network.device)
        self.fast: Params = self.slow
        self.fast_head: Params = self.slow_head
        self.statistics: Statistics | None = None
        self.regulariser: Regulariser = settings.regulariser.start(self.slow)
        self._diagnostics: dict[str, float] = {}

    @property
    def n_classes(self) -> int:
        return len(self.slow_head["bias"])

    def learn_task(self, support: Examples) -> None:
        """Algorithm 1."""
        self.check_support(support)
        support = Examples(support.images.to(self.network.device), support.labels.cpu())
        settings, replay = self.settings, self._replay(support)
        n_classes = max(self.n_classes, int(support.labels.max()) + 1)
        slow_head = settings.objective.starting_head(
            self._with_rows(self.slow_head, n_classes), lambda: self._slow_features(replay.x), replay.y
        )

        regulariser = self.regulariser.copy()  # step 1: tag
        regulariser.before_task(ComingTask(self.n_tasks, self.slow, lambda slow: self._loss(slow, slow_head, support)))

        fast, fast_head = trainable_copy(self.slow), trainable_copy(slow_head)  # step 2: fast learning
        optimiser = self._optimiser(fast, fast_head)
        diagnostics = self._move(optimiser, fast, fast_head, replay, regulariser)
        if fast:
            diagnostics["moved"] = relative_distance(fast, self.network.params)
        statistics = self._freeze_statistics(replay, fast)
        features = None
        if settings.objective.trains_head:
            n_moved = int(diagnostics["embedding_steps"])
            self._learn_head(optimiser, fast, fast_head, replay, statistics, range(n_moved, settings.steps))
        else:
            features = self._embed_replay(replay, fast, statistics)
            known = self._with_rows(self.fast_head, n_classes)  # classes that are no longer remembered keep their means
            evicted = grown(self.evicted, n_classes)
            fast_head = head_of_means(known, features, replay.y, settings.objective.temperature, evicted)
        self._refuse_divergence(fast, fast_head)
        fast, fast_head = frozen_copy(fast), frozen_copy(fast_head)
        shots = within(self.settings.batch_size, support)
        regulariser.after_task(LearnedTask(self.n_tasks, self.network, self.slow, fast, fast_head, statistics, shots))
        remembered = settings.memory.remembered(support, seed=self.seed, n_tasks=self.n_tasks)

        # nothing above changed the learner: a task that fails leaves it as it was
        self.fast, self.fast_head, self.statistics = fast, fast_head, statistics
        if settings.slow_rate == 1:
            self.slow, self.slow_head = self.fast, self.fast_head  # one set of weights, kept once
        else:
            self.slow = interpolate(self.slow, self.fast, settings.slow_rate)
            self.slow_head = interpolate(slow_head, self.fast_head, settings.slow_rate)
        self.regulariser, self._diagnostics = regulariser, diagnostics
        kept = self.memory.add(remembered)
        if features is not None and settings.memory.keeps_shots:
            self.evicted = with_evicted(grown(self.evicted, n_classes), features, replay.y, kept)
        self.n_tasks += 1

    def features(self, images: Tensor) -> Tensor:
        return self._embed(images, self.fast, self.statistics)

    def features_together(self, images: Tensor) -> Tensor:
        statistics = self.network.freeze_statistics(self.network.to_input(images), self.fast)
        return self._embed(images, self.fast, statistics)

    def scores(self, features: Tensor) -> Tensor:
        return linear(self.fast_head, features)

    def starting_point(self) -> Network:
        """With the slow weights, as a copy."""
        return self.network.with_weights(frozen_copy(self.slow), self._learned_with)

    # the two steps

    def _move(
        self,
        optimiser: torch.optim.Optimizer,
        fast: Params,
        fast_head: Params,
        replay: ReplaySet,
        regulariser: Regulariser,
    ) -> dict[str, float]:
        """The steps in which everything moves, by the gradient of the loss and that of the penalty."""
        settings, second_views = self.settings, self.settings.objective.lone_shots == "view"
        diagnostics: dict[str, float] = {"embedding_steps": 0}
        source = BatchSource(self.network, replay, settings.jitter, settings.mirror, second_views, settings.autocast)
        for step in each(range(settings.moving_steps_of(self.n_tasks))):
            features_by, y = source.next()
            with autocast(settings.autocast):
                features = features_by(fast, self._learned_with)
            loss = settings.objective.loss(features, y, fast_head)
            if loss is None:
                break
            diagnostics["loss"] = loss.item()
            if not math.isfinite(diagnostics["loss"]):
                raise self._divergence(f"the loss is {diagnostics['loss']} at step {step + 1}")
            if diagnostics["loss"] < settings.stop_loss:
                break
            optimiser.zero_grad()
            loss.backward()
            of_loss = {name: tensor.grad for name, tensor in fast.items() if tensor.grad is not None}
            of_penalty = regulariser.gradient(fast)
            if of_penalty is not None:
                if not can_be_squared(of_penalty):
                    raise self._divergence("the gradient of the penalty overflows")
                diagnostics["pull_ratio"] = gradient_ratio(of_penalty, of_loss)
                for name in of_loss:
                    fast[name].grad = of_loss[name] + of_penalty[name]
            before = frozen_copy(fast) if regulariser.follows_steps else {}
            optimiser.step()
            if regulariser.follows_steps:
                regulariser.after_step(of_loss, before, {name: tensor.detach() for name, tensor in fast.items()})
            diagnostics["embedding_steps"] = step + 1
        return diagnostics

    def _learn_head(
        self,
        optimiser: torch.optim.Optimizer,
        fast: Params,
        fast_head: Params,
        replay: ReplaySet,
        statistics: Statistics | None,
        steps: range,
    ) -> None:
        """The steps that are left, of the head alone, on features computed once."""
        if not steps:
            return
        features = self._embed_replay(replay, fast, statistics)
        for step in each(steps):
            chosen = replay.batch()
            known, y = (features, replay.y) if chosen is None else (features[chosen], replay.y[chosen])
            loss = cross_entropy(linear(fast_head, known), y)
            if step % FINITE_CHECK_EVERY == 0 and not torch.isfinite(loss):
                raise self._divergence(f"the loss is {loss.item()} at step {step + 1}")
            optimiser.zero_grad()  # Adam skips what has no gradient: only the head moves
            loss.backward()
            optimiser.step()

    def _loss(self, params: Params, head: Params, support: Examples) -> Tensor | None:
        """Of the shots of a task, with these weights."""
        shots = within(self.settings.batch_size, support)
        features = self.network.features(self.network.to_input(shots.images), params, statistics=self._learned_with)
        return self.settings.objective.loss(features, shots.labels.to(features.device), head)

    def _replay(self, support: Examples) -> ReplaySet:
        both = self.memory.with_new(support)
        size = len(both) if self.settings.batch_size == "all" else self.settings.batch_size
        order = generator(self.seed, "batches", self.n_tasks)
        x = self.network.to_input(both.images)
        whole_classes = self.settings.objective.compares_images
        return ReplaySet(
            x, both.images, both.labels.to(x.device), torch.unique(support.labels), size, whole_classes, order
        )

    def _with_rows(self, head: Params, n_classes: int) -> Params:
        return grow_head(head, n_classes, [generator(self.seed, "head-row", label) for label in range(n_classes)])

    def _optimiser(self, fast: Params, fast_head: Params) -> torch.optim.Adam:
        rates = (fast, self.settings.learning_rate), (fast_head, self.settings.rate_of_head)
        groups = [{"params": list(params.values()), "lr": rate} for params, rate in rates]
        return torch.optim.Adam(groups, betas=self.settings.betas)

    def _slow_features(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.network.features(x, self.slow, statistics=self._learned_with)

    def _embed(self, images: Tensor, params: Params, statistics: Statistics | None) -> Tensor:
        """Features to answer with, each image alone, averaged over its views."""
        both_ways = (images, images.flip(3)) if self.settings.mirror else (images,)
        views = (view(seen, number) for seen in both_ways for number in range(self.settings.views))
        total = self.network.embed(next(views), params, statistics=statistics)
        for seen in views:
            total = total + self.network.embed(seen, params, statistics=statistics)
        n_views = self.settings.views * len(both_ways)
        return total if n_views == 1 else total / n_views  # not copied: rows are their own features

    def _embed_replay(self, replay: ReplaySet, params: Params, statistics: Statistics | None) -> Tensor:
        if self.settings.views > 1 or self.settings.mirror:
            return self._embed(replay.images, params, statistics)
        return self.network.embed_inputs(replay.x, params, statistics=statistics)

    @property
    def _learned_with(self) -> Statistics | None:
        """The statistics that the steps of the embedding use; None for those of the images at hand."""
        return self.network.statistics if self.settings.statistics == "base" else None

    def _freeze_statistics(self, replay: ReplaySet, fast: Params) -> Statistics | None:
        if self.settings.statistics == "base":
            return self._learned_with
        chosen = replay.batch()
        return self.network.freeze_statistics(replay.x if chosen is None else replay.x[chosen], fast)

    def _refuse_divergence(self, *weights: Params) -> None:
        if not all(bool(torch.isfinite(tensor).all()) for params in weights for tensor in params.values()):
            raise self._divergence("the weights are no longer finite")

    def _divergence(self, what: str) -> Divergence:
        rate, strength = self.settings.learning_rate, self.regulariser.strength
        held = f" and strength {strength:g}. Lower one of them" if strength else ". Lower it"
        where = f"{self.name} diverged in task {self.n_tasks + 1}: {what}, with learning_rate {rate:g}{held}"
        return Divergence(f"{where}; the learner is as it was before the task.")

    # keeping and forgetting

    def state(self) -> LearnerState:
        groups = {name: frozen_copy(params) for name, params in self._groups().items()}
        tensors = named(memory=self.memory.tensors(), **groups)
        return LearnerState(tensors, {"n_tasks": self.n_tasks}, self.memory.examples)

    def restore(self, state: LearnerState) -> None:
        may_lack = ("memory/", "statistics/", "evicted/")  # there only after some tasks
        optional = {key for key in state.tensors if key.startswith(may_lack)}
        needed = {key for key in named(**self._groups()) if not key.startswith(may_lack)}
        expect_keys(state.tensors, needed | optional, self.name)

        def group(name: str) -> Params:
            (tensors,) = grouped(state.tensors, name)
            return {key: tensor.to(self.network.device, copy=True) for key, tensor in tensors.items()}

        def weights(name: str) -> Params:
            tensors = group(name)
            return in_layout({key: tensors[key] for key in self.network.params if key in tensors})

        self.slow, self.fast = weights("slow"), weights("fast")
        self.slow_head, self.fast_head = group("slow_head"), group("fast_head")
        self.regulariser.restore({name: weights(name) for name in self.regulariser.tensors()})
        self.statistics = group("statistics") or None
        self.evicted = group("evicted")
        shots = None if state.examples is None else state.examples.to(self.network.device)
        self.memory.restore(group("memory"), shots)
        self.n_tasks = int(state.details["n_tasks"])

    def without_class(self, label: int) -> bool:
        heads = [{name: without_row(t, label) for name, t in head.items()} for head in (self.slow_head, self.fast_head)]
        self.slow_head, self.fast_head = heads
        self.evicted = {name: without_row(tensor, label) for name, tensor in self.evicted.items()}
        self.memory.without_class(label)
        return True

    def remembered(self) -> Remembered | None:
        return self.memory.remembered()

    def _groups(self) -> dict[str, Params]:
        return {
            "slow": self.slow,
            "slow_head": self.slow_head,
            "fast": self.fast,
            "fast_head": self.fast_head,
            **self.regulariser.tensors(),
            "statistics": self.statistics or {},
            "evicted": self.evicted,
        }

    # answers about itself

    @property
    def moves_embedding(self) -> bool:
        return self.settings.moving_steps > 0 or (self.network.needs_statistics and self._learned_with is None)

    def diagnostics(self) -> dict[str, float]:
        """For how many steps the embedding moved, the last loss that it met, how far it is from the base as a share of the
        base's size (moved), and the penalty's gradient in the last step as a share of the loss's (pull_ratio)."""
        return dict(self._diagnostics)

    def stored_bytes(self) -> dict[str, int]:
        importance = self.regulariser.tensors()
        weights = [t for group, params in self._groups().items() if group not in importance for t in params.values()]
        weights += self.network.fixed.values()
        held = [tensor for params in importance.values() for tensor in params.values()]
        return {"weights": n_bytes(weights), "memory": self.memory.n_bytes, "importance": n_bytes(held)}

    def held_out_scores(self, features: Tensor, base_features: Tensor, labels: Tensor) -> HeldOut | None:
        """By class means of the base, where the head is made of class means: the embedding has learned from the examples. As
        its own class means may lie further apart, distances are stretched by as much."""
        if self.settings.objective.trains_head:
            return None
        squared, own = by_means(base_features, labels, self.n_classes)
        scores = -squared * stretch(base_features, features, labels) / self.settings.objective.temperature
        return HeldOut(scores, own, torch.where(with_company(labels, self.n_classes))[0])

    def work(self, stream: StreamSpec, number: int) -> float:
        settings, ways = self.settings, stream.task_sizes
        queries = sum(ways[: number + 1]) * stream.n_query
        kept = sum(way * settings.memory.per_class_of(stream.shots(n)) for n, way in enumerate(ways[:number]))
        replayed = ways[number] * stream.shots(number) + kept
        if settings.batch_size != "all":
            replayed = min(replayed, settings.batch_size)
        return (3 * settings.moving_steps_of(number) + 1) * replayed + queries * settings.views

    def artefacts(self, shots: Examples) -> dict[str, bytes]:
        return self.settings.memory.pictures(shots, self.memory)

    def held_weights(self) -> HeldWeights | None:
        return self.regulariser.held(self.slow, self.n_tasks)

    def course(self, support: Examples, steps: Sequence[int]) -> Iterator[Waypoint]:
        """The task is learned anew, for 1 step, for 2 and so on: learning is deterministic."""
        if not self.network.params:
            return
        for step in sorted({min(step, self.settings.steps) for step in steps}):
            # a copy is not checked, so that 0 steps can be had; what would be remembered has no part in the first task
            settings = self.settings.model_copy(update={"steps": step, "memory": AllShots()})
            learner = type(self)(self.network, settings, seed=self.seed)
            learner.learn_task(support)
            yield Waypoint(step, learner.network.with_weights(learner.fast, learner.statistics), learner.fast_head)

    def export_obstacle(self) -> str | None:
        if self.settings.views != 1:
            return (
                f"a classifier that looks at {self.settings.views} views of a picture cannot be one ONNX file; teach it "
                'with settings={"views": 1}.'
            )
        if self.settings.mirror:
            return "a classifier that looks at a picture both ways cannot be one ONNX file; teach it without mirror."
        return None
