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
- prediction is inductive: BatchNorm uses statistics frozen from the replay set after the embedding has moved, or those of
  the base throughout.
Dials that the paper does not have, off unless a method sets them: another objective for the embedding (objectives.py),
jittered shots, a head that starts from class means, a stop at convergence, mini-batches, bounds on the memory.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.continual.generator import generate, parameter_counts
from fscl.continual.learner import ContinualLearner, LearnerState, expect_keys, n_bytes
from fscl.continual.lost import grown, with_lost
from fscl.continual.memory import ReplaySet, balanced, memory_for
from fscl.continual.objectives import head_of_means, leave_one_out
from fscl.continual.regularisers import (
    Hold,
    accumulated,
    can_be_squared,
    constant_gates,
    fisher_information,
    gradient_sizes,
    output_sensitivity,
    path_importance,
    pull_ratio,
    tag_gates,
    weighed_anchor,
)
from fscl.continual.settings import Dials
from fscl.continual.shown import Shown
from fscl.data.augment import view
from fscl.data.pool import Examples
from fscl.device import autocast
from fscl.errors import Divergence
from fscl.nets.network import Network
from fscl.nets.norm import Statistics
from fscl.nets.params import (
    Params,
    empty_head,
    frozen_copy,
    grow_head,
    in_layout,
    interpolate,
    linear,
    trainable_copy,
)
from fscl.rng import child_seed, generator

MAY_LACK = ("statistics", "lost")  # parts of a state that are there only after some tasks
HELD_STILL = {"embedding_steps": 0, "regulariser": "none"}  # for a base that has no weights to move
FINITE_CHECK_EVERY = 50  # steps; a check each step would cost more than it tells


class Consolidation(ContinualLearner):
    """Slow and fast weights over a replayed memory. `methods.py` lists the named settings.

    On a frozen pretrained base there is no embedding to move or to hold: every setting then learns the head alone.
    """

    def __init__(self, network: Network, settings: Dials, *, seed: int, name: str = "consolidation") -> None:
        self.network = network.randomised(generator(seed, "random-start")) if settings.start == "random" else network
        self.settings = settings if self.network.params else settings.model_copy(update=HELD_STILL)
        self.seed = seed
        self.name = name
        self.memory = memory_for(settings)
        self.n_tasks = 0
        self.lost: Params = {}  # by class, of the shots that were not kept: how many, and the sum of their features
        self.slow: Params = frozen_copy(self.network.params)
        self.slow_head: Params = empty_head(network.n_features, network.dtype, network.device)
        self.fast: Params = self.slow
        self.fast_head: Params = self.slow_head
        self.importance: Params = {}
        if settings.regulariser not in ("none", "constant"):
            self.importance = {name: torch.zeros_like(tensor) for name, tensor in self.slow.items()}
        self.weighted: Params = {}  # importance · weights, summed over tasks; for accumulate = "each" alone
        if settings.accumulate == "each":
            self.weighted = {name: torch.zeros_like(tensor) for name, tensor in self.slow.items()}
        self.statistics: Statistics | None = None
        if settings.memory == "generated" and network.image_size is not None and network.picture_shape is not None:
            parameter_counts(settings.generator, *network.picture_shape)  # refuses what does not fit
        self._said: dict[str, float] = {}

    @property
    def n_classes(self) -> int:
        return len(self.slow_head["bias"])

    def learn_task(self, support: Examples) -> None:
        self._check_support(support)
        support = Examples(support.images.to(self.network.device), support.labels.cpu())
        n_classes = max(self.n_classes, int(support.labels.max()) + 1)
        rows = [generator(self.seed, "head-row", label) for label in range(n_classes)]
        slow_head = grow_head(self.slow_head, n_classes, rows)
        replay = self._replay(support)
        if self.settings.head_start == "means" and self.settings.objective == "cross_entropy":
            with torch.no_grad():
                features = self.network.features(replay.x, self.slow, statistics=self._learned_with)
                slow_head = head_of_means(slow_head, features, replay.y, self.settings.temperature)

        importance, hold = self._hold(slow_head, support)
        fast, fast_head = trainable_copy(self.slow), trainable_copy(slow_head)
        rates = (fast, self.settings.learning_rate), (fast_head, self.settings.rate_of_head)
        groups = [{"params": list(params.values()), "lr": rate} for params, rate in rates]
        optimiser = torch.optim.Adam(groups, betas=self.settings.betas)
        path = {name: torch.zeros_like(tensor) for name, tensor in fast.items()} if self._follows_path else {}
        said: dict[str, float] = {}
        n_moved = 0
        shown = Shown(self.network, self.settings, replay)
        for step in range(self.settings.moving_steps):
            loss = self._embedding_loss(fast, fast_head, shown)
            if loss is None:
                break
            said["loss"] = loss.item()
            if not math.isfinite(said["loss"]):
                raise self._divergence(f"the loss is {said['loss']} at step {step + 1}")
            if said["loss"] < self.settings.stop_loss:
                break
            optimiser.zero_grad()
            loss.backward()
            self._move(optimiser, fast, hold, path, said)
            n_moved = step + 1
        statistics = self._freeze_statistics(replay, fast)
        if self.settings.objective == "leave_one_out":
            known = grow_head(self.fast_head, n_classes, rows)  # classes that are no longer remembered keep their means
            features = self.embed(replay.images, fast, statistics)
            fast_head = head_of_means(known, features, replay.y, self.settings.temperature, grown(self.lost, n_classes))
        else:
            self._learn_head(optimiser, fast, fast_head, replay, statistics, n_moved)
        self._refuse_divergence(fast, fast_head)
        weights, head = frozen_copy(fast), frozen_copy(fast_head)
        importance, weighted = self._importance_after(importance, path, weights, head, statistics, support)
        remembered = self._to_remember(support)

        # nothing above changed the learner: a task that fails leaves it as it was
        self.fast, self.fast_head, self.statistics = weights, head, statistics
        if self.settings.slow_rate == 1:
            self.slow, self.slow_head = self.fast, self.fast_head  # one set of weights, kept once
        else:
            self.slow = interpolate(self.slow, self.fast, self.settings.slow_rate)
            self.slow_head = interpolate(slow_head, self.fast_head, self.settings.slow_rate)
        self.importance, self.weighted, self._said = importance, weighted, {**said, "embedding_steps": n_moved}
        kept = self.memory.add(remembered)
        if self.settings.objective == "leave_one_out" and self.settings.memory == "shots":
            self.lost = with_lost(grown(self.lost, n_classes), features, replay.y, kept)
        self.n_tasks += 1

    def predict(self, images: Tensor) -> Tensor:
        self._check_can_predict()
        return linear(self.fast_head, self.embed(images, self.fast, self.statistics))

    def starting_point(self) -> Network:
        return self.network.with_weights(frozen_copy(self.slow), self._learned_with)

    def diagnostics(self) -> dict[str, float]:
        """For how many steps the embedding moved, the last loss that it met, and (pull_ratio) how hard the regulariser
        pulled in the last step, as a share of the loss's own gradient."""
        return dict(self._said)

    def stored_bytes(self) -> dict[str, int]:
        apart = ("importance", "weighted")
        weights = [t for group, params in self._groups().items() if group not in apart for t in params.values()]
        importance = [*self.importance.values(), *self.weighted.values()]
        weights += self.network.fixed.values()
        return {"weights": n_bytes(weights), "memory": self.memory.n_bytes, "importance": n_bytes(importance)}

    @property
    def _follows_path(self) -> bool:
        return self.settings.regulariser == "si"

    def _replay(self, support: Examples) -> ReplaySet:
        both = self.memory.with_new(support)
        size = len(both) if self.settings.batch_size == "all" else self.settings.batch_size
        order = generator(self.seed, "batches", self.n_tasks)
        x = self.network.to_input(both.images)
        own, whole_classes = torch.unique(support.labels), self.settings.objective == "leave_one_out"
        return ReplaySet(x, both.images, both.labels.to(x.device), own, size, whole_classes, order)

    def _shown(self, support: Examples) -> Examples:
        """The images of a task by which importance is told: all, or as many of every class as a batch has room for."""
        room = None if self.settings.batch_size == "all" else self.settings.batch_size
        if room is None or len(support) <= room:
            return support
        kept = balanced(support.labels, None, room)
        return Examples(support.images[kept], support.labels[kept])

    def embed(self, images: Tensor, params: Params, statistics: Statistics | None) -> Tensor:
        """Features to answer with, each image alone."""
        total = None
        for seen in (images, images.flip(3)) if self.settings.mirror else (images,):
            for number in range(self.settings.views):
                features = self.network.embed(view(seen, number), params, statistics=statistics)
                total = features if total is None else total + features
        assert total is not None
        return total / (self.settings.views * (2 if self.settings.mirror else 1))

    def _embedding_loss(self, fast: Params, fast_head: Params, shown: Shown) -> Tensor | None:
        """The loss of one step; None where the shots have nothing to teach the embedding."""
        features_by, y = shown.next()
        with autocast(self.settings.autocast):
            features = features_by(fast, self._learned_with)
        return self._loss(features, y, fast_head)

    def _loss(self, features: Tensor, y: Tensor, head: Params) -> Tensor | None:
        if self.settings.objective == "leave_one_out":
            return leave_one_out(features, y, self.settings.temperature)
        return cross_entropy(linear(head, features), y)

    @property
    def _learned_with(self) -> Statistics | None:
        """The statistics that the steps of the embedding use; None for those of the images at hand."""
        return self.network.statistics if self.settings.statistics == "base" else None

    def _freeze_statistics(self, replay: ReplaySet, fast: Params) -> Statistics | None:
        if self.settings.statistics == "base":
            return self._learned_with
        chosen = replay.batch()
        return self.network.freeze_statistics(replay.x if chosen is None else replay.x[chosen], fast)

    def _move(
        self,
        optimiser: torch.optim.Optimizer,
        fast: Params,
        hold: Hold | None,
        path: Params,
        said: dict[str, float],
    ) -> None:
        """One step of everything, by the loss's gradient and the pull; `path` and `said` are brought up to date."""
        by_loss = {name: tensor.grad for name, tensor in fast.items() if tensor.grad is not None}
        if path:
            by_loss = {name: grad.clone() for name, grad in by_loss.items()}
        if hold is not None:
            pulled = hold.pull(fast, self.settings.strength)
            if not can_be_squared(pulled):
                raise self._divergence("the penalty pulls harder than Adam can reckon with")
            said["pull_ratio"] = pull_ratio(pulled, by_loss)
            for name, tensor in fast.items():
                if tensor.grad is not None:
                    tensor.grad = tensor.grad + pulled[name]
        before = {name: fast[name].detach().clone() for name in path}
        optimiser.step()
        for name, total in path.items():
            total.sub_(by_loss[name] * (fast[name].detach() - before[name]))

    def _learn_head(
        self,
        optimiser: torch.optim.Optimizer,
        fast: Params,
        fast_head: Params,
        replay: ReplaySet,
        statistics: Statistics | None,
        n_done: int,
    ) -> None:
        """The steps that are left, of the head alone, on features computed once."""
        if n_done == self.settings.steps:
            return
        features = self.embed(replay.images, fast, statistics)
        for tensor in fast.values():
            tensor.grad = None  # Adam skips what has no gradient: from here on only the head moves
        for step in range(n_done, self.settings.steps):
            chosen = replay.batch()
            known, y = (features, replay.y) if chosen is None else (features[chosen], replay.y[chosen])
            loss = cross_entropy(linear(fast_head, known), y)
            self._check_finite(loss, step)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    def _hold(self, slow_head: Params, support: Examples) -> tuple[Params, Hold | None]:
        """Step 1: importance up to this task, the task's own tags included, and the hold that it gives."""
        name = self.settings.regulariser
        if name == "none":
            return self.importance, None
        if name == "constant":
            return self.importance, Hold(constant_gates(self.slow), self.slow)
        if name == "tagging":
            slow = trainable_copy(self.slow)
            shown = self._shown(support)
            x = self.network.to_input(shown.images)
            features = self.network.features(x, slow, statistics=self._learned_with)
            loss = self._loss(features, shown.labels.to(features.device), slow_head)
            new = {} if loss is None else gradient_sizes(loss, slow)
            tags = {key: total + new.get(key, 0.0) for key, total in self.importance.items()}
            gates = tag_gates(tags, self.n_tasks + 1, self.settings.gate_slope, self.settings.activity_scale)
            return tags, Hold(gates, self.slow)
        if self.n_tasks == 0:
            return self.importance, None
        anchor = weighed_anchor(self.importance, self.weighted, self.slow) if self.weighted else self.slow
        return self.importance, Hold(self.importance, anchor)

    def _importance_after(
        self,
        importance: Params,
        path: Params,
        weights: Params,
        head: Params,
        statistics: Statistics | None,
        support: Examples,
    ) -> tuple[Params, Params]:
        """What ewc, si and mas make of the task that was just learned."""
        settings, support = self.settings, self._shown(support)
        x = self.network.to_input(support.images)
        if settings.regulariser == "ewc":
            labels, which = support.labels, settings.fisher_labels
            found = fisher_information(self.network, weights, head, x, labels, statistics, which)
        elif settings.regulariser == "mas":
            found = output_sensitivity(self.network, weights, head, x, statistics)
        elif settings.regulariser == "si":
            found = path_importance(path, {name: weights[name] - self.slow[name] for name in path}, settings.damping)
        else:
            return importance, self.weighted
        if self.weighted:
            found = {name: tensor.clamp_min(0) for name, tensor in found.items()}
        total = accumulated(importance, found, self.n_tasks, settings.accumulate, settings.decay)
        weighted = {name: settings.decay * old + found[name] * weights[name] for name, old in self.weighted.items()}
        return total, weighted

    def _to_remember(self, support: Examples) -> Examples:
        if self.settings.memory == "shots" or self.memory.keeps_nothing:
            return support
        labels = torch.unique(support.labels)
        made = [
            generate(
                support.images[support.labels == label],
                self.settings.generator,
                seed=child_seed(self.seed, "generated", int(label), self.n_tasks),
            )
            for label in labels
        ]
        return Examples(torch.cat(made), labels.repeat_interleave(len(made[0])))

    def _check_finite(self, loss: Tensor, step: int) -> None:
        if step % FINITE_CHECK_EVERY == 0 and not torch.isfinite(loss):
            raise self._divergence(f"the loss is {loss.item()} at step {step + 1}")

    def _refuse_divergence(self, *weights: Params) -> None:
        if not all(bool(torch.isfinite(tensor).all()) for params in weights for tensor in params.values()):
            raise self._divergence("the weights are no longer finite")

    def _divergence(self, what: str) -> Divergence:
        rate, strength = self.settings.learning_rate, self.settings.strength
        held = f" and strength {strength:g}. Lower one of them" if strength else ". Lower it"
        return Divergence(
            f"{self.name} diverged in task {self.n_tasks + 1}: {what}, with learning_rate {rate:g}{held}; the learner is as "
            "it was before the task."
        )

    def state(self) -> LearnerState:
        tensors = {f"memory/{key}": tensor for key, tensor in self.memory.tensors().items()}
        for group, params in self._groups().items():
            tensors |= {f"{group}/{key}": tensor.clone() for key, tensor in params.items()}
        return LearnerState(tensors, {"n_tasks": self.n_tasks, "method": self.name})

    def restore(self, state: LearnerState) -> None:
        optional = {key for key in state.tensors if key.startswith(("memory/", "statistics/", "lost/"))}
        needed = {f"{part}/{key}" for part, params in self._groups().items() for key in params if part not in MAY_LACK}
        expect_keys(state.tensors, needed | optional, self.name)

        def group(part: str) -> Params:
            prefix = f"{part}/"
            found = {key: tensor for key, tensor in state.tensors.items() if key.startswith(prefix)}
            return {key.removeprefix(prefix): t.to(self.network.device, copy=True) for key, t in found.items()}

        def weights(part: str) -> Params:
            found = group(part)
            return in_layout({name: found[name] for name in self.network.params})

        self.slow, self.fast = weights("slow"), weights("fast")
        self.importance = weights("importance") if self.importance else {}
        self.weighted = weights("weighted") if self.weighted else {}
        self.slow_head, self.fast_head = group("slow_head"), group("fast_head")
        self.statistics = group("statistics") or None
        self.lost = group("lost")
        self.memory.restore(group("memory"))
        self.n_tasks = int(state.details["n_tasks"])

    def _groups(self) -> dict[str, Params]:
        return {
            "slow": self.slow,
            "slow_head": self.slow_head,
            "fast": self.fast,
            "fast_head": self.fast_head,
            "importance": self.importance,
            "weighted": self.weighted,
            "statistics": self.statistics or {},
            "lost": self.lost,
        }
