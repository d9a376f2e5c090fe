"""Indirect discriminant alignment (IDA), from task to task: the embedding learns each task, and what it said of an image by
the anchors of earlier classes must stay.

Q. Liu, O. Majumder, A. Achille, A. Ravichandran, R. Bhotika, S. Soatto, "Incremental Few-Shot Meta-Learning via Indirect
Discriminant Alignment", 2020.

An anchor is the mean feature of a class when it was learned, and stays where it is. While a task is learned, its shots are
also looked at by the weights before it: how anchors share a shot between them, by distance, is to stay (nets/anchors.py). No
image is kept. A question is answered with the nearest anchor. `fscl/meta/ida.py` is the same for meta-training.

Departs from the paper:
- `weight` and `temperature` are those of a small grid that did best on validation classes of Omniglot;
- it is about one increment of many classes; here every task of a few shots is one;
- five shots have no query images beside them, so the loss of a task leaves one shot out (objectives.py);
- squared distances are divided by a temperature, in units of how far the task's shots spread about their class means;
- anchors of base classes take part only if asked for (`base_anchors`), and the first task without them is not held at all;
- BatchNorm keeps the base's statistics; a class that returns moves its anchor to the mean of all its shots.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fscl.continual.frozen import copied, distances
from fscl.continual.learner import LearnerState, expect_keys, n_bytes, without_row
from fscl.continual.moved import MovedWeights
from fscl.continual.objectives import leave_one_out, spread
from fscl.continual.registry import Method
from fscl.data.pool import Examples
from fscl.data.stream import StreamSpec
from fscl.nets.anchors import discriminant_divergence, feature_distance
from fscl.nets.network import Network, named
from fscl.nets.params import Params, class_sums, frozen_copy, relative_distance, trainable_copy

FITTED = 1e-6  # a loss below this has gradients that are rounding alone, of which Adam would make whole steps


class Alignment(MovedWeights):
    """Moves the embedding without replay, held by what it said before each task."""

    class Settings(MovedWeights.Settings):
        """How a task is learned, and what is held.

        Attributes:
            alignment: what is held: what anchors say of a shot ("discriminant"), its "features", or "none".
            weight: of the alignment (λ).
            temperature: what divides squared distances, in units of the mean squared distance of the task's shots to their
                class means, before it is learned.
            base_anchors: whether the means of the base's own classes are anchors, too; the base must carry them.
            steps: of Adam, on all shots of the task.
        """

        alignment: Literal["discriminant", "features", "none"] = "discriminant"
        weight: float = Field(default=10.0, ge=0)
        temperature: float = Field(default=0.3, gt=0)
        base_anchors: bool = False
        steps: int = Field(default=20, ge=0)
        learning_rate: float = Field(default=5e-4, gt=0)

    settings: Settings

    def __init__(self, network: Network, settings: Settings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        self.anchors = torch.zeros(0, network.n_features, dtype=network.dtype, device=network.device)
        self.counts = torch.zeros(0, dtype=torch.int64, device=network.device)
        self.base_anchors = self.anchors
        if settings.base_anchors:
            self.base_anchors = network.extra("class_means", "ida with base_anchors").to(self.anchors)

    @property
    def n_classes(self) -> int:
        return len(self.counts)

    def learn_task(self, support: Examples) -> None:
        self.check_support(support)
        x = self.network.to_input(support.images)
        labels = support.labels.to(x.device)
        weights, diagnostics = self._moved(x, labels)
        features = self.network.embed_inputs(x, weights).to(self.anchors)

        n_known, n_classes = self.n_classes, max(self.n_classes, int(labels.max()) + 1)
        sums, counts = class_sums(features, labels, n_classes)
        returned = counts[:n_known]
        anchors = sums / counts.clamp_min(1)[:, None]
        share = returned / (
            self.counts + returned
        )  # 0 for classes that are not here: these anchors keep their last bit
        anchors[:n_known] = torch.lerp(self.anchors, anchors[:n_known], share[:, None].to(anchors))
        counts[:n_known] += self.counts

        # nothing above changed the learner: a task that fails leaves it as it was
        self.weights, self.anchors, self.counts = weights, anchors, counts
        self.n_tasks, self._diagnostics = self.n_tasks + 1, diagnostics

    def scores(self, features: Tensor) -> Tensor:
        return -distances(features, self.anchors)

    def _moved(self, x: Tensor, labels: Tensor) -> tuple[Params, dict[str, float]]:
        """The weights after the task, and what became of its loss."""
        settings, statistics = self.settings, self.network.statistics
        if not self.weights or not settings.steps:
            return self.weights, {}
        old = self.network.embed_inputs(x, self.weights)
        temperature = settings.temperature * spread(old, labels)
        weights = trainable_copy(self.weights)
        optimiser = torch.optim.Adam(weights.values(), lr=settings.learning_rate)
        features_by, diagnostics = self.network.featurer(x), dict[str, float]()
        for step in range(1, settings.steps + 1):
            features = features_by(weights, statistics)
            loss = leave_one_out(features, labels, temperature)
            if loss is None:  # no class has two shots: nothing to learn, and so nothing to hold
                return self.weights, {}
            held = self._alignment(features, old, temperature)
            diagnostics = {"loss": loss.item()} | ({} if held is None else {"alignment": held.item()})
            total = loss if held is None else loss + settings.weight * held
            self.refuse_divergence(step, total.item(), settings.learning_rate)
            if diagnostics["loss"] < FITTED:
                break
            optimiser.zero_grad()
            total.backward()
            optimiser.step()
        self.refuse_divergence(settings.steps, diagnostics["loss"], settings.learning_rate, weights)
        diagnostics["moved"] = relative_distance(weights, self.network.params)
        return frozen_copy(weights), diagnostics

    def _alignment(self, features: Tensor, old: Tensor, temperature: float) -> Tensor | None:
        """How far what is held has changed; None where nothing is held."""
        settings = self.settings
        if settings.alignment == "none" or settings.weight == 0:
            return None
        if settings.alignment == "features":
            return feature_distance(features, old, temperature)
        anchors = torch.cat([self.base_anchors, self.anchors])
        return discriminant_divergence(features, old, anchors, temperature) if len(anchors) else None

    # keeping and forgetting

    def state(self) -> LearnerState:
        own = {"anchors": self.anchors.clone(), "counts": self.counts.clone()}
        return LearnerState({**named(weights=frozen_copy(self.weights)), **own}, {"n_tasks": self.n_tasks})

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, {*named(weights=self.weights), "anchors", "counts"}, "ida")
        self.weights = self.weights_of(state)
        self.anchors, self.counts = copied(state, self.network.device, "anchors", "counts")
        self.n_tasks = int(state.details["n_tasks"])

    def without_class(self, label: int) -> bool:
        self.anchors, self.counts = without_row(self.anchors, label), without_row(self.counts, label)
        return True

    # answers about itself

    @property
    def moves_embedding(self) -> bool:
        return super().moves_embedding and self.settings.steps > 0

    def stored_bytes(self) -> dict[str, int]:
        own = super().stored_bytes()
        return {**own, "weights": own["weights"] + n_bytes([self.base_anchors])}

    def work(self, stream: StreamSpec, number: int) -> float:
        shots, queries = stream.task_sizes[number] * stream.shots(number), sum(stream.task_sizes[: number + 1])
        return (3 * self.settings.steps + 2) * shots + queries * stream.n_query


METHODS = (
    Method(
        "ida",
        Alignment,
        "Moves the embedding without replay, while what the anchors of earlier classes say of the shots stays.",
        "Liu et al. 2020",
    ),
)
