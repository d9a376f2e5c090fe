"""TOPIC: nodes of a neural gas stand for what was learned, and hold the features of one image each while new classes come.

X. Tao, X. Hong, X. Chang, S. Dong, X. Wei, Y. Gong, "Few-Shot Class-Incremental Learning", 2020.

A node is a centroid of unit-length features, their variance, a class, and the image nearest to it. A session moves the last
stage of the network and the rows of its own classes, by cross-entropy over all classes; by an *anchor* term that keeps the
images of old nodes where they were; by one that *pulls* shots to the node of their class; and by one that *pushes* nodes of
different classes apart that an edge joins. Rows have no bias, and the largest product with a row wins.

`preset = "described"` follows the text: the anchor term is weighted by inverse variances, and every new class gets a node.
"shipped" follows the scripts of the authors: plain squared distances to what the images were before the session, pulling
by centres that are trained beside, and no node after those of the first task.

Departs from the paper:
- its own code for graph and losses was never published: constants are those of the scripts, or (described) of the text from
  memory, and the form of the pulling and pushing terms is ours: squared distances, the mean of a class as its new node;
- terms are means over nodes, shots and edges; variances have a floor, since a node may stand for one image;
- the gas is built from a first task of more images than `nodes` (a base session), whose rows are learned on features that
  stand still; without one, the graph is one node a class, so that one image of each old class is held;
- the learning rate is one that did well on validation classes of Omniglot, a hundredth of the scripts';
- nodes of earlier sessions stay where they are; the last step counts, and none is chosen by test accuracy;
- classes that return move their own rows, and get no second node.
"""

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from fscl.continual.frozen import copied, distances
from fscl.continual.learner import LearnerState, Remembered, expect_keys, renumbered, without_row
from fscl.continual.moved import MovedWeights
from fscl.continual.neural_gas import Graph, grown, no_graph, settled
from fscl.continual.registry import Method
from fscl.data.pool import Examples
from fscl.data.stream import StreamSpec
from fscl.nets.network import Network, Trunk, named
from fscl.nets.params import Params, class_sums, frozen_copy, linear, relative_distance, trainable_copy
from fscl.rng import generator

ROW_DEVIATION = 1e-3  # of a new row's entries
LAST_STEPS = 10  # of a session, at a tenth of the rate
CENTRE_RATE, CENTRE_MOMENTUM = 0.1, 0.5
BASE_RATE, BASE_PASSES, BASE_BATCH = 0.1, 10, 128  # of the rows of a base session, as in the scripts
FLOOR = 0.1  # of a variance, in units of what a dimension of a unit-length feature has
LAST_SHARE = 0.05  # of the work of a network, in its last stage
GRAPH = ("centroids", "variances", "labels", "ages")

Weight = Annotated[float, Field(ge=0)] | Literal["preset"]
WEIGHTS = {  # anchor, pull, push
    "described": (0.5, 0.005, 0.005),
    "shipped": (350.0, 0.3, 1e-5),
}


class Topology(MovedWeights):
    """Rows and the last stage, held by the images of nodes."""

    class Settings(MovedWeights.Settings):
        """Whose TOPIC, how many nodes, and how a session is learned.

        Attributes:
            preset: as the paper describes it, or as its scripts were shipped.
            nodes: of the gas that a base session builds; a first task of no more images gives one node a class.
            moving: the "last" stage of the network, or "all" of it.
            anchor_weight: of keeping the images of nodes in place (λ_A); "preset" for that of the preset, as below.
            pull_weight: of pulling shots to their class's node (λ_min).
            push_weight: of pushing joined nodes of different classes apart (λ_max).
            margin: the squared distance that nodes are pushed to.
            steps: of a session, Nesterov's SGD on all of its shots.
            learning_rate: 0.1 in the scripts. There it follows a long base session at the same rate; without one, new rows
                outgrow the old ones at once, and the lower the rate, the less.
        """

        preset: Literal["described", "shipped"] = "described"
        nodes: int = Field(default=400, ge=2)
        moving: Literal["last", "all"] = "last"
        anchor_weight: Weight = "preset"
        pull_weight: Weight = "preset"
        push_weight: Weight = "preset"
        margin: float = Field(default=0.5, ge=0)
        steps: int = Field(default=100, ge=1)
        learning_rate: float = Field(default=1e-3, gt=0)
        momentum: float = Field(default=0.9, ge=0, lt=1)
        weight_decay: float = Field(default=5e-4, ge=0)

        @property
        def weights(self) -> tuple[float, float, float]:
            """Of anchor, pull and push, as numbers."""
            given = (self.anchor_weight, self.pull_weight, self.push_weight)
            anchor, pull, push = (
                usual if own == "preset" else own for own, usual in zip(given, WEIGHTS[self.preset], strict=True)
            )
            return anchor, pull, push

    settings: Settings

    def __init__(self, network: Network, settings: Settings, *, seed: int) -> None:
        self.trunk: Trunk | None = None
        self.tail = network
        if network.params and settings.moving == "last" and network.n_stages > 1:
            self.trunk, self.tail = network.split(network.n_stages - 1)
        super().__init__(network, settings, seed=seed)
        self.graph = no_graph(network.n_features, network.dtype, network.device)
        self.rows = self.graph.centroids
        self.shown: Tensor | None = None  # the image of each node
        self._kept = torch.zeros(0, dtype=torch.int64)

    def movable_weights(self) -> Params:
        return self.tail.params if self.network.params else {}

    @property
    def n_classes(self) -> int:
        return len(self.rows)

    def scores(self, features: Tensor) -> Tensor:
        return unit_scores(self.rows, normalize(features))

    # learning

    def learn_task(self, support: Examples) -> None:
        self.check_support(support)
        x = self._inputs(support.images)
        labels = support.labels.to(x.device)
        rows = self._with_rows(max(self.n_classes, int(labels.max()) + 1))
        if self.n_tasks == 0 and len(support) > self.settings.nodes:
            features = self._features_by(x)(self.weights)
            weights, diagnostics = self.weights, dict[str, float]()
            rows = self._rows_of_base_session(rows, features, labels)
            gas = self._random("gas")
            graph = grown(features, labels, self.settings.nodes, passes=BASE_PASSES, random=gas)
            graph, chosen = settled(graph, features, labels)
            order = chosen.argsort()  # images are kept in the order in which they were taught
            graph, chosen = graph.chosen(order), chosen[order]
        else:
            weights, rows, diagnostics = self._session(x, labels, rows)
            graph, chosen = self._with_new_nodes(self._features_by(x)(weights), labels)
        chosen = chosen.cpu()
        new = support.images.cpu()[chosen]

        # nothing above changed the learner: a task that fails leaves it as it was
        n_before = 0 if self.shown is None else len(self.shown)
        self.shown = new if self.shown is None else torch.cat([self.shown, new])
        self._kept = torch.cat([torch.arange(n_before), n_before + chosen])
        self.weights, self.rows, self.graph = weights, rows, graph
        self.n_tasks, self._diagnostics = self.n_tasks + 1, diagnostics

    def _session(self, x: Tensor, labels: Tensor, rows: Tensor) -> tuple[Params, Tensor, dict[str, float]]:
        """The weights and rows after a session."""
        settings, own = self.settings, torch.unique(labels)
        anchor_weight, pull_weight, push_weight = settings.weights
        features_by, old_by = self._features_by(x), self._features_by(self._inputs_of_nodes())
        position = torch.searchsorted(own, labels)
        with torch.no_grad():
            joined = self._joined(features_by(self.weights), position, own)
            before = old_by(self.weights) if settings.preset == "shipped" else self.graph.centroids
        weights = trainable_copy(self.weights)
        learned = trainable_copy({"rows": rows[own]})["rows"]
        centres = self._centres(own)
        optimiser, centre_optimiser = self._optimisers([*weights.values(), learned], centres)
        diagnostics: dict[str, float] = {}
        for step in range(1, settings.steps + 1):
            features = features_by(weights)
            loss = cross_entropy(session_scores(rows, own, learned, features), labels)
            if len(self.graph) and anchor_weight:
                variances = self.graph.variances if settings.preset == "described" else None
                loss = loss + anchor_weight * anchor_loss(old_by(weights), before, variances)
            means = class_means(features, position, len(own))
            if pull_weight:
                nodes = means if settings.preset == "described" else centres
                loss = loss + pull_weight * (features - nodes[position]).square().sum(1).mean() / 2
            if push_weight and len(joined):
                loss = loss + push_weight * push_loss(torch.cat([self.graph.centroids, means]), joined, settings.margin)
            diagnostics["loss"] = loss.item()
            self.refuse_divergence(step, diagnostics["loss"], settings.learning_rate)
            late = settings.steps > LAST_STEPS and step > settings.steps - LAST_STEPS
            optimiser.param_groups[0]["lr"] = settings.learning_rate * (0.1 if late else 1)
            for each in (optimiser, centre_optimiser):
                each.zero_grad()
            loss.backward()
            for each in (optimiser, centre_optimiser):
                each.step()
        self.refuse_divergence(settings.steps, diagnostics["loss"], settings.learning_rate, weights, {"rows": learned})
        if weights:
            diagnostics["moved"] = relative_distance({**self.network.params, **weights}, self.network.params)
        return frozen_copy(weights), rows.index_copy(0, own, learned.detach()), diagnostics

    def _rows_of_base_session(self, rows: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Rows learned on features that stand still, by small batches."""
        learned, random = trainable_copy({"rows": rows})["rows"], self._random("base-rows")
        optimiser, _ = self._optimisers([learned], learned)
        for number in range(BASE_PASSES):
            optimiser.param_groups[0]["lr"] = BASE_RATE * (0.1 if number == BASE_PASSES - 1 else 1)
            for batch in torch.randperm(len(labels), generator=random).to(labels.device).split(BASE_BATCH):
                loss = cross_entropy(unit_scores(learned, features[batch]), labels[batch])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        return learned.detach().clone()

    def _with_new_nodes(self, features: Tensor, labels: Tensor) -> tuple[Graph, Tensor]:
        """The graph with a node for each class that has none, and the positions of the shots that stand for those."""
        if self.settings.preset == "shipped" and self.n_tasks:
            return self.graph, labels.new_zeros(0)
        new = [label for label in torch.unique(labels).tolist() if label not in self.graph.labels.tolist()]
        members = [torch.where(labels == label)[0] for label in new]
        if not new:
            return self.graph, labels.new_zeros(0)
        means = torch.stack([features[own].mean(0) for own in members])
        variances = torch.stack([features[own].var(0, correction=0) for own in members])
        near = [distances(features[own], means[[i]])[:, 0].argmin() for i, own in enumerate(members)]
        chosen = torch.stack([own[nearest] for own, nearest in zip(members, near, strict=True)])
        order = chosen.argsort()  # images are kept in the order in which they were taught
        graph = self.graph.with_nodes(means[order], variances[order], labels[chosen[order]])
        seen = graph.after(features)  # edges alone: nodes stay in place
        return Graph(graph.centroids, graph.variances, graph.labels, seen.ages), chosen[order]

    def _joined(self, features: Tensor, position: Tensor, own: Tensor) -> Tensor:
        """Pairs (n, 2) of nodes of different classes that an edge joins, one of them new; old nodes first."""
        means = class_means(features, position, len(own))
        graph = self.graph.with_nodes(means, torch.zeros_like(means), own).after(features)
        one, other = torch.where((graph.ages > 0).triu(1))
        wanted = (other >= len(self.graph)) & (graph.labels[one] != graph.labels[other])
        return torch.stack([one[wanted], other[wanted]], 1)

    def _centres(self, own: Tensor) -> Tensor:
        """What shots are pulled to as shipped: Xavier's start, trained beside the network and forgotten after."""
        n_features = self.network.n_features
        drawn = torch.empty(len(own), n_features)
        torch.nn.init.xavier_normal_(drawn, generator=self._random("centres"))
        return drawn.to(self.rows).requires_grad_()

    def _optimisers(self, tensors: list[Tensor], centres: Tensor) -> tuple[torch.optim.SGD, torch.optim.SGD]:
        settings = self.settings
        own = torch.optim.SGD(
            tensors,
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=settings.momentum > 0,
        )
        return own, torch.optim.SGD([centres], lr=CENTRE_RATE, momentum=CENTRE_MOMENTUM)

    def _inputs(self, images: Tensor) -> Tensor:
        """What does not move, computed once: maps of the fixed stages, or features where nothing moves."""
        if not self.weights:
            return self.network.embed(images)
        return self.tail.to_input(images if self.trunk is None else self.trunk.activations(images))

    def _inputs_of_nodes(self) -> Tensor | None:
        return None if self.shown is None or not len(self.shown) else self._inputs(self.shown)

    def _features_by(self, x: Tensor | None) -> Callable[[Params], Tensor]:
        """Unit-length features of inputs as a function of the moved weights."""
        if x is None:
            return lambda _: self.graph.centroids[:0]
        if not self.weights:
            return lambda _: normalize(x)
        features_by, statistics = self.tail.featurer(x), self.tail.statistics
        return lambda weights: normalize(features_by(weights, statistics))

    def _with_rows(self, n_classes: int) -> Tensor:
        n_features = self.network.n_features
        drawn = [
            torch.randn(n_features, generator=generator(self.seed, "topology-row", label)) * ROW_DEVIATION
            for label in range(self.n_classes, n_classes)
        ]
        return torch.cat([self.rows, torch.stack(drawn).to(self.rows)]) if drawn else self.rows.clone()

    def _random(self, name: str) -> torch.Generator:
        return generator(self.seed, f"topology-{name}", self.n_tasks)

    # keeping and forgetting

    def state(self) -> LearnerState:
        own = {"rows": self.rows.clone(), **{name: getattr(self.graph, name).clone() for name in GRAPH}}
        tensors = {**named(weights=frozen_copy(self.weights)), **own}
        return LearnerState(tensors, {"n_tasks": self.n_tasks}, self._examples())

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, {*named(weights=self.weights), "rows", *GRAPH}, "topic")
        self.weights = self.weights_of(state)
        (self.rows,) = copied(state, self.network.device, "rows")
        self.graph = Graph(*copied(state, self.network.device, *GRAPH))
        self.shown = None if state.examples is None else state.examples.images.cpu().clone()
        self._kept = torch.arange(len(self.graph))
        self.n_tasks = int(state.details["n_tasks"])

    def without_class(self, label: int) -> bool:
        stay = torch.where(self.graph.labels != label)[0]
        graph = self.graph.chosen(stay)
        self.graph = Graph(graph.centroids, graph.variances, renumbered(graph.labels, label), graph.ages)
        self.shown = None if self.shown is None else self.shown[stay.cpu()]
        self._kept = torch.arange(len(stay))
        self.rows = without_row(self.rows, label)
        return True

    def remembered(self) -> Remembered | None:
        examples = self._examples()
        return None if examples is None else Remembered(examples, self._kept.clone())

    def _examples(self) -> Examples | None:
        return None if self.shown is None else Examples(self.shown.clone(), self.graph.labels.cpu().clone())

    # answers about itself

    def work(self, stream: StreamSpec, number: int) -> float:
        settings = self.settings
        shots, queries = stream.task_sizes[number] * stream.shots(number), sum(stream.task_sizes[: number + 1])
        if shots > settings.nodes and number == 0:
            return shots + queries * stream.n_query
        nodes = min(stream.task_sizes[0] * stream.shots(0), settings.nodes) + sum(stream.task_sizes[1:number])
        share = 1.0 if settings.moving == "all" else LAST_SHARE
        return (1 + 3 * settings.steps * share) * (shots + nodes) + queries * stream.n_query


def unit_scores(rows: Tensor, features: Tensor) -> Tensor:
    """Products (n, n_classes) of unit-length features and rows."""
    return linear({"weight": rows, "bias": rows.new_zeros(len(rows))}, features)


def session_scores(rows: Tensor, own: Tensor, learned: Tensor, features: Tensor) -> Tensor:
    """Scores of all classes; those of other sessions teach the features nothing."""
    return unit_scores(rows, features.detach()).index_copy(1, own, unit_scores(learned, features))


def anchor_loss(features: Tensor, before: Tensor, variances: Tensor | None) -> Tensor:
    """How far the images of nodes have moved, mean over nodes: squared, over the variance of each dimension if given, or
    else mean over dimensions."""
    squared = (features - before).square()
    if variances is None:
        return squared.mean()
    return (squared / (variances + FLOOR / features.shape[1])).sum(1).mean()


def push_loss(centroids: Tensor, pairs: Tensor, margin: float) -> Tensor:
    """How much pairs of nodes are nearer than the margin (of squared distances), mean over pairs."""
    squared = (centroids[pairs[:, 0]] - centroids[pairs[:, 1]]).square().sum(1)
    return (margin - squared).clamp_min(0).mean()


def class_means(features: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """(n_classes, n_features); every class has a feature."""
    sums, counts = class_sums(features, labels, n_classes)
    return sums / counts[:, None]


METHODS = (
    Method(
        "topic",
        Topology,
        "Moves the last stage and new rows, held by one image for each node of a neural gas.",
        "Tao et al. 2020",
    ),
)
