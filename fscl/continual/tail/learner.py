"""Two-step consolidation on the tail of a network.

The first stages stand still, and run once for each stored picture. Two tails on their activations learn each lesson by
leaving one shot out, from the slow weights on: fast weights. Each tail never sees a third of the shots, and those decide
how far the slow weights follow (β), and which head answers. Where they show no gain, nothing moves; where they show that the
base was better, the weights go back to it.

L. Wang, Q. Li, Y. Zhong, J. Zhu, "Few-shot Continual Learning: a Brain-inspired Approach", 2021. How far weights are mixed
with the base's: M. Wortsman et al., "Robust fine-tuning of zero-shot models", 2022.

Departs from the paper: the tail alone moves; β is chosen for each lesson, and counts from the base's weights instead of the
slow ones, so that a long stream cannot drift; what answers are the slow weights, the mean of the two tails; the embedding
learns by a leave-one-out prototype loss (docs/decisions/0005); the head is the best of several.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fscl.continual.held_out import HeldOut
from fscl.continual.learner import (
    ContinualLearner,
    LearnerState,
    Remembered,
    expect_keys,
    n_bytes,
    renumbered,
    without_row,
)
from fscl.continual.regularisers import Regulariser
from fscl.continual.tail.choosing import N_TAILS, choose, folds_for, n_judged
from fscl.continual.tail.codes import Body, content, from_base, laid_out_as, onto_base
from fscl.continual.tail.moving import Diverged, Shots, moved
from fscl.continual.tail.settings import TailSettings
from fscl.data.duplicates import find_duplicates
from fscl.data.pool import Examples
from fscl.data.stream import StreamSpec
from fscl.errors import Divergence
from fscl.nets.network import Network, grouped, named
from fscl.nets.params import Params, class_sums, in_layout
from fscl.rng import generator

SPEED = 45e9  # multiply-adds a second that one core is taken to do
ROWS = 2  # dimensions of examples that are rows of numbers
MIN_STEPS = 4  # fewer are not worth judging


class TailConsolidation(ContinualLearner):
    """Slow and fast weights of the last stages of a network, over replayed activations."""

    Settings = TailSettings
    settings: TailSettings

    def __init__(self, network: Network, settings: TailSettings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        self.body = Body.of(network, settings)
        self.memory = settings.memory.empty()
        self.n_tasks = 0
        self.waiting = 0  # pictures since the tails last had time to learn
        self.moved = False  # whether the slow weights are other than the base's
        self.slow: list[Params] = [self.body.base] * N_TAILS
        self.regularisers: list[Regulariser] = [settings.regulariser.start(self.body.base) for _ in range(N_TAILS)]
        self.codes: Mapping[str, Tensor] = {}  # rows for the stored shots: what the frozen stages make of them
        self.folds = torch.zeros(0, dtype=torch.int64)  # which tail has left each of them out
        self.means = torch.zeros(0, network.n_features)  # of each class, for classes that have no stored shot any more
        self.head, self.fitted = 0, dict[str, Tensor]()
        self.held: Params = {}  # of shots that were left out: scores, labels and positions
        self.shift = 0.0  # see choosing.py
        self._answers = network
        self._own_features: Tensor | None = None  # of the stored shots, by the weights that answer
        self._known_codes: tuple[dict[str, int], Mapping[str, Tensor]] = {}, {}  # for the next lesson; see `reuse`
        self._diagnostics: dict[str, float] = {}

    @property
    def n_classes(self) -> int:
        return len(self.means)

    def learn_task(self, support: Examples) -> None:
        """One lesson: fast learning of both tails, then consolidation by what they left out."""
        self.check_support(support)
        support = Examples(support.images.cpu(), support.labels.cpu())
        both, settings = self.memory.with_new(support), self.settings
        new = self._codes(support.images)
        codes = {name: torch.cat([self.codes[name], rows]) if self.codes else rows for name, rows in new.items()}
        groups = torch.arange(len(both))
        if both.images.ndim > ROWS:
            groups = find_duplicates(both.images, codes["base"], both.labels)
        folds = folds_for(both.labels, groups, self.folds)
        n_classes = max(self.n_classes, int(support.labels.max()) + 1)

        waiting = self.waiting + len(support)
        steps, regularisers = self._steps(codes, len(both), waiting), [each.copy() for each in self.regularisers]
        fast = None
        if steps:
            shots = [Shots(codes["crops"], both.labels, folds != number) for number in range(N_TAILS)]
            fast = [self._fast(number, shots[number], regularisers[number], steps) for number in range(N_TAILS)]
        choice = choose(
            self.body,
            self.slow,
            fast,
            codes,
            both.labels,
            folds,
            groups,
            settings,
            n_classes=n_classes,
            moved=self.moved,
            extras=self.network.extras,
        )
        slow = list(choice.slow)
        features = self._embedded(codes, slow, moved=choice.moved)
        sums, counts = class_sums(features, both.labels, n_classes)
        means = torch.cat([self.means, sums[self.n_classes :]])
        means[counts > 0] = (sums / counts.clamp_min(1)[:, None])[counts > 0]
        fitted = self._fit(choice.head, features, both.labels, means)

        # nothing above changed the learner: a lesson that fails leaves it as it was
        kept = self.memory.add(support)
        place = torch.full((len(both),), -1)
        place[kept] = torch.arange(len(kept))
        stay = place[choice.positions] >= 0
        held = choice.positions[stay]
        self.held = {
            "scores": choice.scores[stay],
            "labels": both.labels[held],
            "positions": place[held],
        }
        self.shift = choice.shift
        self.codes = {name: rows[kept] for name, rows in codes.items()}
        self.folds, self.means, self._own_features = folds[kept], means, features[kept]
        self.slow, self.regularisers, self.moved = slow, regularisers, choice.moved
        self.head, self.fitted, self._answers = choice.head, fitted, self._network(slow)
        self.n_tasks += 1
        self.waiting = 0 if steps else waiting
        self._known_codes = {}, {}
        found = {"embedding_steps": steps, "slow_rate": choice.slow_rate, "head": choice.head, "gain": choice.gain}
        self._diagnostics = {name: float(value) for name, value in found.items()}

    def features(self, images: Tensor) -> Tensor:
        return self._answers.embed(images)

    def scores(self, features: Tensor) -> Tensor:
        return self.settings.heads[self.head].scores(self.fitted, features)

    def starting_point(self) -> Network:
        """With the slow weights."""
        return self._answers

    @property
    def moves_embedding(self) -> bool:
        return self.moved

    # one lesson

    def _steps(self, codes: Params, n: int, n_waiting: int) -> int:
        """How many steps each tail has time for, by a count of multiply-adds; 0 where there is too little of it."""
        if self.body.tail is None or self.settings.steps == 0:
            return 0
        whole, crop = self.body.cost(codes["whole"]), self.body.cost(codes["crops"][:, 0])
        judging = N_TAILS * (1 + len(self.settings.slow_rates)) * min(n, n_judged(self.n_classes)) * whole
        left = self.settings.seconds_for(n_waiting) * SPEED - judging - n * whole
        each = N_TAILS * 3 * crop * self.settings.classes_per_step * self.settings.shots_per_step
        steps = min(self.settings.steps, int(left / each))
        return steps if steps >= min(MIN_STEPS, self.settings.steps) else 0

    def _fast(self, number: int, shots: Shots, regulariser: Regulariser, steps: int) -> Params:
        random = generator(self.seed, "tail", self.n_tasks, number)
        try:
            return moved(
                self.body,
                self.slow[number],
                shots,
                regulariser,
                self.settings,
                steps=steps,
                random=random,
                n_tasks=self.n_tasks,
            )
        except Diverged as error:
            raise Divergence(
                f"{self.name} diverged in task {self.n_tasks + 1}: {error}, with learning_rate "
                f"{self.settings.learning_rate:g}. Lower it; the learner is as it was before the task."
            ) from error

    def _answer(self, slow: list[Params]) -> Params:
        """The mean of the tails."""
        return {name: torch.stack([each[name] for each in slow]).mean(0) for name in slow[0]}

    def _network(self, slow: list[Params]) -> Network:
        """The whole network with the weights that answer."""
        return (
            self.network
            if self.body.tail is None
            else self.network.with_weights(
                {**self.network.params, **in_layout(self._answer(slow))}, self.network.statistics
            )
        )

    def _embedded(self, codes: Mapping[str, Tensor], slow: list[Params], *, moved: bool) -> Tensor:
        """The stored shots' features by the weights that answer."""
        return codes["base"] if not moved else self.body.features(codes["whole"], in_layout(self._answer(slow)))

    def _fit(self, head: int, features: Tensor, labels: Tensor, means: Tensor) -> Params:
        """The head, fitted to all stored shots; a class that has none any more is one shot, its mean."""
        absent = torch.tensor([label for label in range(len(means)) if not bool((labels == label).any())]).long()
        rows, own = torch.cat([features, means[absent]]), torch.cat([labels, absent])
        return self.settings.heads[head].fit(rows, own, len(means), self.network.extras)

    # keeping and forgetting

    def state(self) -> LearnerState:
        tails = {f"tail{number}": from_base(each, self.body.base) for number, each in enumerate(self.slow)}
        tags = {f"regulariser{number}": named(**each.tensors()) for number, each in enumerate(self.regularisers)}
        own = {"folds": self.folds, "means": self.means}
        groups: dict[str, Params] = {
            **(tails if self.moved else {}),
            **tags,
            "head": self.fitted,
            "shots": own,
            "held": self.held,
        }
        tensors = {name: tensor.clone() for name, tensor in named(**groups).items()}
        details = {
            "n_tasks": self.n_tasks,
            "moved": self.moved,
            "head": self.head,
            "shift": self.shift,
            "waiting": self.waiting,
        }
        return LearnerState(tensors, details, self.memory.examples, self.codes)

    def restore(self, state: LearnerState) -> None:
        groups = (
            "head",
            "shots",
            "held",
            *(f"{kind}{number}" for kind in ("tail", "regulariser") for number in range(N_TAILS)),
        )
        expect_keys(
            {name: t for name, t in state.tensors.items() if name.partition("/")[0] not in ("head", *groups[3:])},
            {f"shots/{name}" for name in ("folds", "means")}
            | {f"held/{name}" for name in ("scores", "labels", "positions")},
            self.name,
        )
        head, shots, held, *others = grouped(state.tensors, *groups)
        self.waiting = int(state.details["waiting"])
        self.moved, self.head = bool(state.details["moved"]), int(state.details["head"])
        self.n_tasks, self.shift = int(state.details["n_tasks"]), float(state.details["shift"])
        self.memory.restore({}, state.examples)
        self.folds, self.means = (shots[name].clone() for name in ("folds", "means"))
        self.held = {name: tensor.clone() for name, tensor in held.items()}
        self.fitted = {name: tensor.clone() for name, tensor in head.items()}
        self.slow = [onto_base(tail, self.body.base) for tail in others[:N_TAILS]]
        for regulariser, tensors in zip(self.regularisers, others[N_TAILS:], strict=True):
            found = {group: grouped(tensors, group)[0] for group in regulariser.tensors()}
            regulariser.restore({group: laid_out_as(self.body.base, each) for group, each in found.items()})
        self.codes = self._codes_again() if state.cached is None else state.cached
        self._answers, self._own_features = self._network(self.slow), None

    def without_class(self, label: int) -> bool:
        if not set(self.fitted) <= {"weight", "bias"}:
            return False  # the head has more than a row for each class
        self.fitted = {name: without_row(tensor, label) for name, tensor in self.fitted.items()}
        if self.memory.stored is not None:
            stay = self.memory.stored.labels != label
            place = torch.cumsum(stay, 0) - 1
            self.codes = {name: rows[stay] for name, rows in self.codes.items()}
            self.folds = self.folds[stay]
            self._own_features = None if self._own_features is None else self._own_features[stay]
            held = {name: tensor[self.held["labels"] != label] for name, tensor in self.held.items()}
            self.held = {
                "scores": without_row(held["scores"].T, label).T,
                "labels": renumbered(held["labels"], label),
                "positions": place[held["positions"]],
            }
        self.means = without_row(self.means, label)
        self.memory.without_class(label)
        return True

    def remembered(self) -> Remembered | None:
        kept = self.memory.remembered()
        if kept is None:
            return None
        if self._own_features is None:
            self._own_features = self._embedded(self.codes, self.slow, moved=self.moved)
        return replace(kept, features=self._own_features, base_features=self.codes["base"])

    def reuse(self, state: LearnerState) -> None:
        if state.cached is not None and state.examples is not None:
            self._known_codes = {content(image): row for row, image in enumerate(state.examples.images)}, state.cached

    def _codes(self, images: Tensor) -> Params:
        """What the frozen part makes of pictures; those that a state brought along are not computed again."""
        rows, cached = self._known_codes
        found = [rows.get(content(image), -1) for image in images] if rows else [-1] * len(images)
        new = torch.tensor([row < 0 for row in found])
        if bool(new.all()):
            return self.body.codes(images, self.settings, seed=self.seed)
        codes = {name: tensor[found] for name, tensor in cached.items()}
        if bool(new.any()):
            computed = self.body.codes(images[new], self.settings, seed=self.seed)
            for name, tensor in codes.items():
                tensor[new] = computed[name]
        return codes

    def _codes_again(self) -> Params:
        """From the pictures, where they were lost."""
        stored = self.memory.stored
        return {} if stored is None else self._codes(stored.images)

    # answers about itself

    def held_out_scores(self, features: Tensor, base_features: Tensor, labels: Tensor) -> HeldOut | None:
        """Of shots that the tails never saw, scored by the head without them."""
        held = self.held
        if not held or len(held["labels"]) == 0:
            return None
        return HeldOut(
            held["scores"], held["labels"], held["positions"], self.moved, self.shift, duplicates_together=True
        )

    def diagnostics(self) -> dict[str, float]:
        """Steps of each tail, how far the weights followed, which head answers, and what moving gained on left-out shots."""
        return dict(self._diagnostics)

    def stored_bytes(self) -> dict[str, int]:
        base = [*self.network.params.values(), *self.network.fixed.values(), *self.fitted.values(), self.means]
        tails = [tensor for each in self.slow for tensor in each.values()] if self.moved else []
        tags = [t for each in self.regularisers for group in each.tensors().values() for t in group.values()]
        memory = self.memory.n_bytes + n_bytes([*self.codes.values(), self.folds])
        return {"weights": n_bytes([*base, *tails]), "memory": memory, "importance": n_bytes(tags)}

    def work(self, stream: StreamSpec, number: int) -> float:
        settings, shots = self.settings, stream.task_sizes[number] * stream.shots(number)
        stepped = 0 if self.body.tail is None else settings.steps * settings.classes_per_step * settings.shots_per_step
        return super().work(stream, number) + shots * settings.views + N_TAILS * stepped
