"""The probe: how well would the learner learn something new, right now?

Learning on should not wear out the ability to learn. After a task, fresh few-shot problems are learned from the weights that
the next task would start from (of two-weight methods: the slow ones), and forgotten again: the learner itself is only read.
All methods and all moments meet the same problems, so that differences between them are paired.

How a problem is learned is a part of the probe and not of the method probed:
- *means*: class means of the features. Cheap: every image of the probe is embedded once for all problems.
- *head*: a fresh linear head, trained on the frozen features for 500 steps; the heads of all problems at once.
- *optimum*: a linear head trained to its end: logistic regression on the frozen features.
- *inner_loop*: as MAML adapts: a few gradient steps of every weight, the head starting from zero.
- *network*: the paper's way: 100 full-batch steps of every weight, then 400 of the head, for each problem on its own.
- *next_task*: the learner itself, or rather a copy, learns the problem as its next task, with all that it replays; answers
  are asked among the problem's own classes. As dear as a task of the method for each problem.

Prediction is inductive: with BatchNorm, features are normalised by statistics of the probe's shots, never of its queries.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.nn.functional import one_hot, pad

from fscl.continual.consolidation import Consolidation
from fscl.continual.heads import Logistic
from fscl.continual.learner import ContinualLearner
from fscl.data.episode import Episode
from fscl.data.pool import ClassPool, Examples
from fscl.errors import ConfigError
from fscl.meta.maml import Maml
from fscl.nets.curvature import join
from fscl.nets.network import Network
from fscl.nets.params import empty_head, grow_head
from fscl.nets.trained import TrainedNetwork
from fscl.rng import child_seed, generator
from fscl.storage import tensor_digest

PROBE_SETTINGS = Consolidation.Settings(
    slow_rate=0.0, embedding_steps=100, steps=500
)  # what "network" does to each problem


class ProbeSpec(BaseModel):
    """What is asked, and after which tasks.

    Examples:
        >>> ProbeSpec(after=(0, 10), n_way=20, n_shot=1).n_episodes
        100

    Attributes:
        after: numbers of tasks learned at which to probe; 0 is the base itself.
        n_episodes: problems, the same at every moment and for every method.
        n_way, n_shot, n_query: classes of a problem, and examples of each to learn from and to ask about.
        n_classes: classes that problems are drawn from, on either side.
        learn: how a problem is learned; see above.
        inner_steps, inner_rate: of "inner_loop".
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    after: tuple[int, ...] = (0, 5, 10)
    n_episodes: int = Field(default=100, ge=2, le=10_000)
    n_way: int = Field(default=5, ge=2, le=1000)
    n_shot: int = Field(default=5, ge=1, le=1000)
    n_query: int = Field(default=15, ge=1, le=1000)
    n_classes: int = Field(default=60, ge=2, le=10_000)
    learn: Literal["means", "head", "optimum", "inner_loop", "network", "next_task"] = "means"
    inner_steps: int = Field(default=5, ge=1, le=1000)
    inner_rate: float = Field(default=0.05, gt=0)


@dataclass(frozen=True, eq=False)
class Probe:
    """Few-shot problems over a fixed set of classes. Each class has its shots and its queries once and for all.

    Attributes:
        shots, queries: images (n_classes, n, channels, height, width).
        problems: the classes of each problem, (n_episodes, n_way).
    """

    spec: ProbeSpec
    shots: Tensor
    queries: Tensor
    problems: Tensor
    seed: int
    _found: dict[str, list[float]] = field(default_factory=dict, init=False, repr=False)

    def to(self, device: torch.device) -> "Probe":
        """With its images on a device, where the networks to be probed are."""
        return Probe(self.spec, self.shots.to(device), self.queries.to(device), self.problems, self.seed)

    def of(self, learner: ContinualLearner) -> list[float]:
        """The share of queries answered right in each problem, learned from where `learner` stands, which is not changed."""
        if self.spec.learn != "next_task":
            return self.accuracies(learner.starting_point())
        return [self._learned_next(learner, number) for number in range(len(self.problems))]

    def accuracies(self, network: Network) -> list[float]:
        """The same of problems that are learned from a network alone.

        Weights that were probed before, by another method or after another task, are not probed again.
        """
        key = f"{network.spec} {tensor_digest(network.params)}"
        if key not in self._found:
            self._found[key] = self._measure(network)
        return list(self._found[key])

    def _measure(self, network: Network) -> list[float]:
        alone = {"network": self._learned_by_the_network, "inner_loop": self._learned_by_the_inner_loop}
        if self.spec.learn in alone:
            return [alone[self.spec.learn](network, number) for number in range(len(self.problems))]
        known, asked = self._features(network)
        right = {"means": self._by_means, "head": self._by_heads, "optimum": self._by_optimum}[self.spec.learn](
            known, asked
        )
        return [float(share) for share in right.double().mean((1, 2))]

    def _features(self, network: Network) -> tuple[Tensor, Tensor]:
        """Features (n_classes, n, n_features) of shots and queries, each image embedded once."""
        statistics = network.freeze_statistics(network.to_input(self.shots.flatten(0, 1)))

        def embed(images: Tensor) -> Tensor:
            features = network.embed(images.flatten(0, 1), statistics=statistics)
            return features.view(*images.shape[:2], network.n_features)

        return embed(self.shots), embed(self.queries)

    def _by_means(self, known: Tensor, asked: Tensor) -> Tensor:
        """Which queries the nearest class mean gets right, (n_episodes, n_way, n_query)."""
        means, queries = known.mean(1)[self.problems], asked[self.problems]
        scores = 2 * torch.einsum("ewqf,evf->ewqv", queries, means) - means.square().sum(-1)[:, None, None]
        return torch.eq(scores.argmax(-1).cpu(), torch.arange(self.spec.n_way)[:, None])

    def _by_heads(self, known: Tensor, asked: Tensor) -> Tensor:
        """Which queries a trained head gets right, (n_episodes, n_way, n_query); all heads learn side by side.

        The gradient of a linear head is written out: autograd would take most of the time for so small a thing.
        """
        spec = self.spec
        rows = [generator(self.seed, "probe-row", number) for number in range(spec.n_way)]
        fresh = grow_head(empty_head(known.shape[-1], known.dtype, known.device), spec.n_way, rows)
        x, queries = (_with_one(features[self.problems].flatten(1, 2)) for features in (known, asked))
        head = torch.cat([fresh["weight"], fresh["bias"][:, None]], 1).expand(len(x), -1, -1).contiguous()
        columns = x.transpose(1, 2).contiguous()  # in this order the products are several times faster
        rows_of_shots = x / x.shape[1]  # each head learns by the mean loss of its own problem
        right = one_hot(torch.arange(spec.n_way).repeat_interleave(spec.n_shot)).T.to(x)
        optimiser = torch.optim.Adam([head], lr=PROBE_SETTINGS.learning_rate, betas=PROBE_SETTINGS.betas, fused=True)
        for _ in range(PROBE_SETTINGS.steps):
            head.grad = torch.bmm(torch.bmm(head, columns).softmax(1) - right, rows_of_shots)
            optimiser.step()
        answers = torch.bmm(head, queries.transpose(1, 2)).argmax(1).cpu()
        return torch.eq(answers.unflatten(1, (spec.n_way, spec.n_query)), torch.arange(spec.n_way)[:, None])

    def _by_optimum(self, known: Tensor, asked: Tensor) -> Tensor:
        """Which queries logistic regression gets right, (n_episodes, n_way, n_query)."""
        spec, head = self.spec, Logistic()
        own = torch.arange(spec.n_way)
        answers = []
        for classes in self.problems:
            shots, queries = (features[classes].flatten(0, 1).cpu() for features in (known, asked))
            fitted = head.fit(shots, own.repeat_interleave(spec.n_shot), spec.n_way)
            answers.append(head.scores(fitted, queries).argmax(1).unflatten(0, (spec.n_way, spec.n_query)))
        return torch.eq(torch.stack(answers), own[:, None])

    def _learned_by_the_network(self, network: Network, number: int) -> float:
        problem = self._problem(number)
        learner = Consolidation(network, PROBE_SETTINGS, seed=child_seed(self.seed, "probe", number))
        learner.learn_task(problem.support)
        return _share_right(learner.predict(problem.query.images), problem)

    def _learned_by_the_inner_loop(self, network: Network, number: int) -> float:
        if not isinstance(network, TrainedNetwork):
            raise ConfigError(
                'probe.learn = "inner_loop" needs a base of our own, whose weights all move; try "optimum".'
            )
        problem = self._problem(number).to(network.device)
        zeros = torch.zeros(self.spec.n_way, network.n_features, dtype=network.dtype, device=network.device)
        start = join(network.params, {"weight": zeros, "bias": zeros[:, 0]})
        maml = Maml(inner_steps=self.spec.inner_steps, inner_rate=self.spec.inner_rate)
        return _share_right(maml.query_scores(network, start, problem), problem)

    def _learned_next(self, learner: ContinualLearner, number: int) -> float:
        problem, n_known = self._problem(number), learner.n_classes
        copy = learner.fresh()
        if n_known:
            copy.restore(learner.state())
        copy.learn_task(Examples(problem.support.images, problem.support.labels + n_known))
        return _share_right(copy.predict(problem.query.images)[:, n_known:], problem)

    def _problem(self, number: int) -> Episode:
        """One of the problems, on its own."""
        spec, classes, labels = self.spec, self.problems[number], torch.arange(self.spec.n_way)
        support = Examples(self.shots[classes].flatten(0, 1), labels.repeat_interleave(spec.n_shot))
        query = Examples(self.queries[classes].flatten(0, 1), labels.repeat_interleave(spec.n_query))
        return Episode(support, query, spec.n_way, classes)


def _share_right(scores: Tensor, problem: Episode) -> float:
    return float((scores.argmax(1).cpu() == problem.query.labels.cpu()).double().mean())


def _with_one(features: Tensor) -> Tensor:
    """Features with a constant 1 behind them, for the bias."""
    return pad(features, (0, 1), value=1.0)


def make_probe(pool: ClassPool, spec: ProbeSpec, *, seed: int, without: Collection[str] = ()) -> Probe:
    """Draw the classes, images and problems of a probe from a pool, leaving out classes by name.

    Where the pool has fewer than `n_classes` that can be used, all of them are.

    Examples:
        >>> import fscl
        >>> probe = make_probe(fscl.load_glyphs().test, ProbeSpec(after=(0, 2)), seed=0)
        >>> probe.spec.after
        (0, 2)

    Args:
        pool: classes that the problems are of.
        spec: what is asked, and when.
        seed: the same seed gives the same problems.
        without: names of classes that no problem may have, such as those of the stream.
    """
    per_class = spec.n_shot + spec.n_query
    left = [index for index, name in enumerate(pool.class_names) if name not in set(without)]
    rest = pool.subset([index for index in left if pool.counts[index] >= per_class], f"{pool.name}, for probing")
    rest.require(n_classes=spec.n_way, n_images=per_class, purpose=f"a probe of {spec.n_way} ways")
    random = generator(seed, "probe")
    classes = torch.randperm(len(rest), generator=random)[: spec.n_classes].tolist()
    images = torch.stack(
        [rest.of_class(c)[torch.randperm(rest.counts[c], generator=random)[:per_class]] for c in classes]
    )
    problems = torch.stack(
        [torch.randperm(len(classes), generator=random)[: spec.n_way] for _ in range(spec.n_episodes)]
    )
    return Probe(spec, images[:, : spec.n_shot], images[:, spec.n_shot :], problems, seed)
