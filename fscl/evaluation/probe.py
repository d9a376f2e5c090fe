"""The probe: how well would the learner learn something new, right now?

Learning on should not wear out the ability to learn. After a task, fresh few-shot problems are learned from the weights that
the next task would start from (of two-weight methods: the slow ones), and forgotten again: the learner itself is only read.
All methods and all moments meet the same problems, so that differences between them are paired.

How a problem is learned is a part of the probe and not of the method probed:
- *means*: class means of the features. Cheap: every image of the probe is embedded once for all problems.
- *head*: a fresh linear head, trained on the frozen features; the heads of all problems at once.
- *network*: the paper's way: 100 full-batch steps of every weight, then 400 of the head, for each problem on its own.

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
from fscl.data.pool import ClassPool, Examples
from fscl.nets.network import Network
from fscl.nets.params import empty_head, grow_head
from fscl.rng import child_seed, generator
from fscl.storage import tensor_digest

PROBE_SETTINGS = Consolidation.Settings(
    slow_rate=0.0, embedding_steps=100, steps=500
)  # what "network" does to each problem


class ProbeSpec(BaseModel):
    """What is asked, and after which tasks.

    Attributes:
        after: numbers of tasks learned at which to probe; 0 is the base itself.
        n_classes: classes that problems are drawn from, on either side.
        learn: how a problem is learned; see above.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    after: tuple[int, ...] = (0, 5, 10)
    n_episodes: int = Field(default=100, ge=2, le=10_000)
    n_way: int = Field(default=5, ge=2, le=1000)
    n_shot: int = Field(default=5, ge=1, le=1000)
    n_query: int = Field(default=15, ge=1, le=1000)
    n_classes: int = Field(default=60, ge=2, le=10_000)
    learn: Literal["means", "head", "network"] = "means"


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

    def accuracies(self, network: Network) -> list[float]:
        """The share of queries answered right in each problem, learned from `network`, which is not changed.

        Weights that were probed before, by another method or after another task, are not probed again.
        """
        key = f"{network.spec} {tensor_digest(network.params)}"
        if key not in self._found:
            self._found[key] = self._measure(network)
        return list(self._found[key])

    def _measure(self, network: Network) -> list[float]:
        if self.spec.learn == "network":
            return [self._learned_by_the_network(network, number) for number in range(len(self.problems))]
        known, asked = self._features(network)
        right = self._by_means(known, asked) if self.spec.learn == "means" else self._by_heads(known, asked)
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

    def _learned_by_the_network(self, network: Network, number: int) -> float:
        classes, labels = self.problems[number], torch.arange(self.spec.n_way)
        learner = Consolidation(network, PROBE_SETTINGS, seed=child_seed(self.seed, "probe", number))
        learner.learn_task(Examples(self.shots[classes].flatten(0, 1), labels.repeat_interleave(self.spec.n_shot)))
        answers = learner.predict(self.queries[classes].flatten(0, 1)).argmax(1).cpu()
        return float((answers == labels.repeat_interleave(self.spec.n_query)).double().mean())


def _with_one(features: Tensor) -> Tensor:
    """Features with a constant 1 behind them, for the bias."""
    return pad(features, (0, 1), value=1.0)


def make_probe(pool: ClassPool, spec: ProbeSpec, *, seed: int, without: Collection[str] = ()) -> Probe:
    """Draw the classes, images and problems of a probe from a pool, leaving out classes by name.

    Where the pool has fewer than `n_classes` that can be used, all of them are.
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
