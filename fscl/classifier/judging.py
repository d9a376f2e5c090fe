"""How good the classifier is, from its stored examples alone: each is left out in turn, and asked for.

*Class means* (`prototypes`) leave an example out exactly: its class's mean is taken without it. Other methods on the frozen
embedding are fitted again without one example of every class at a time, ten times at most. Methods whose head is trained by
gradient would have to learn everything again, so their examples are asked for by class means.

Where the embedding moves (`tsc`), it has learned from the very example that is left out, and would recognise it: of birds,
31 % of which it got right, such an estimate promised 92. So the examples are judged by the base's embedding, which has never
seen them. That is the accuracy of class means on the base; what learning adds is not in it.

*Temperature*: what divides the scores so that the left-out examples' labels are likeliest. Each label is softened as the
rule of succession has it: n right answers of n promise (n + 1) / (n + 2), so that ten examples never make anyone certain.
Where the left-out scores are not the method's own, the mean probability of its answers is made to match the estimate.

*Threshold*: 95 of 100 left-out examples are nearer to their class's mean, taken without them, than this; in the same
embedding.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.optimize import brentq, minimize_scalar
from torch import Tensor

from fscl.classifier.knowledge import Judgement
from fscl.continual.consolidation import Consolidation
from fscl.continual.frozen import FrozenFeatures
from fscl.continual.learner import ContinualLearner
from fscl.continual.methods.prototypes import Prototypes
from fscl.errors import MisuseError
from fscl.nets.network import Network
from fscl.nets.params import class_sums, linear

KNOWN_SHARE = 0.95  # of pictures of known classes shall not be rejected
MAX_FOLDS = 10
LOG_TEMPERATURES = (math.log(1e-4), math.log(1e6))


@dataclass(frozen=True)
class HeldOut:
    """Scores (n, n_classes) of examples that had no part in what scored them, and their true classes (n,).

    `own_scale` says whether the scores are those that the method answers with.
    """

    scores: Tensor
    labels: Tensor
    own_scale: bool


def features_of(learner: ContinualLearner, images: Tensor) -> Tensor:
    """What the learner sees in images."""
    if isinstance(learner, Consolidation):
        return learner.embed(images, learner.fast, learner.statistics)
    if isinstance(learner, FrozenFeatures):
        return learner.network.embed(images)
    raise MisuseError(f"a {type(learner).__name__} has no features to explain its answers by.")


def moves(learner: ContinualLearner) -> bool:
    """Whether the embedding has learned from the examples."""
    return isinstance(learner, Consolidation) and learner.settings.moving_steps > 0


def fair_features(base: Network, learner: ContinualLearner, images: Tensor, seen: Tensor) -> Tensor:
    """What weights that have not learned from the examples see in images: the base's; `seen` where nothing moved.

    A base that has BatchNorm and no statistics cannot see anything by itself, and `seen` has to do.
    """
    blind = base.needs_statistics and base.statistics is None
    return base.embed(images) if moves(learner) and not blind else seen


def scores_of(learner: ContinualLearner, features: Tensor) -> Tensor:
    """The learner's scores of features that `features_of` gave."""
    if isinstance(learner, Consolidation):
        return linear(learner.fast_head, features)
    if isinstance(learner, FrozenFeatures):
        return learner.score_features(features)
    raise MisuseError(f"a {type(learner).__name__} has no features to answer from.")


def judge(
    learner: ContinualLearner, fresh: Callable[[], ContinualLearner], features: Tensor, fair: Tensor, labels: Tensor
) -> Judgement:
    """Leave each stored example out, and ask for it.

    Args:
        fresh: makes a learner that has learned nothing.
        features, fair: of the stored examples, as the learner sees them, and by weights that have not learned from them.
    """
    n_classes = learner.n_classes
    several = torch.bincount(labels, minlength=n_classes)[labels] > 1
    if n_classes == 0 or not bool(several.any()):
        return Judgement(per_class=(None,) * n_classes)
    distances = distances_without(fair, labels, n_classes)[several]
    own = labels[several]
    held = _held_out(learner, fresh, features, labels, distances, own)
    right = (held.scores.argmax(1) == held.labels).double()
    sums, counts = class_sums(right[:, None], held.labels, n_classes)
    per_class = tuple(float(s) / int(n) if n else None for s, n in zip(sums[:, 0], counts, strict=True))
    if held.own_scale:
        temperature = likeliest_temperature(held.scores, held.labels)
    else:
        sure = (float(right.sum()) + 1) / (len(right) + 2)
        temperature = matching_temperature(scores_of(learner, features), sure)
    nearness = distances.gather(1, own[:, None])[:, 0].sqrt()
    threshold = float(torch.quantile(nearness.double(), KNOWN_SHARE))
    return Judgement(float(right.mean()), per_class, temperature, threshold)


def nearest_mean(features: Tensor, known: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """Distance of each of `features` to the nearest class mean of the `known` ones."""
    sums, counts = class_sums(known, labels, n_classes)
    means = (sums / counts[:, None])[counts > 0]
    distances: Tensor = torch.cdist(features, means, compute_mode="donot_use_mm_for_euclid_dist").min(1).values
    return distances


def distances_without(features: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """Squared distances (n, n_classes) to the class means, the own one taken without the example itself.

    Classes without a stored example are infinitely far; so is the own class of an example that is its only one.
    """
    sums, counts = class_sums(features, labels, n_classes)
    means = sums / counts.clamp_min(1)[:, None]
    squared = torch.cdist(features, means, compute_mode="donot_use_mm_for_euclid_dist").square()
    squared[:, counts == 0] = torch.inf
    others = counts[labels] - 1
    without = (sums[labels] - features) / others.clamp_min(1)[:, None]
    own = (features - without).square().sum(1)
    own[others == 0] = torch.inf
    return squared.scatter(1, labels[:, None], own[:, None])


def _held_out(
    learner: ContinualLearner,
    fresh: Callable[[], ContinualLearner],
    features: Tensor,
    labels: Tensor,
    distances: Tensor,
    own: Tensor,
) -> HeldOut:
    if isinstance(learner, Prototypes):
        return HeldOut(-distances.sqrt(), own, own_scale=True)
    if isinstance(learner, FrozenFeatures) and set(labels.tolist()) == set(range(learner.n_classes)):
        return _by_folds(fresh, features, labels)
    if isinstance(learner, Consolidation) and learner.settings.objective == "leave_one_out":
        return HeldOut(-distances / learner.settings.temperature, own, own_scale=True)
    return HeldOut(-distances, own, own_scale=False)


def _by_folds(fresh: Callable[[], ContinualLearner], features: Tensor, labels: Tensor) -> HeldOut:
    counts = torch.bincount(labels)
    n_folds = min(int(counts.max()), MAX_FOLDS)
    turns = torch.zeros_like(labels)
    for label, count in enumerate(counts.tolist()):
        turns[labels == label] = torch.arange(count) % min(n_folds, max(count, 1))
    turns[counts[labels] == 1] = -1  # never left out: nothing would be left
    scores, own = [], []
    for fold in range(n_folds):
        held = turns == fold
        learner = fresh()
        if not isinstance(learner, FrozenFeatures):
            raise MisuseError(f"a {type(learner).__name__} cannot be fitted again on features alone.")
        learner.learn_features(features[~held], labels[~held])
        scores.append(learner.score_features(features[held]))
        own.append(labels[held])
    return HeldOut(torch.cat(scores), torch.cat(own), own_scale=True)


def likeliest_temperature(scores: Tensor, labels: Tensor) -> float:
    """The temperature at which the softened labels of left-out examples are likeliest."""
    n, n_classes = scores.shape
    if n_classes == 1:
        return 1.0
    softness = 1 / (n + 2)
    exact = scores.double()
    finite = torch.where(torch.isfinite(exact), exact, exact[torch.isfinite(exact)].min() - 1)
    targets = torch.full((n, n_classes), softness / (n_classes - 1), dtype=torch.float64)
    targets.scatter_(1, labels[:, None], 1 - softness)

    def unlikely(log_temperature: float) -> float:
        return float(-(targets * torch.log_softmax(finite / math.exp(log_temperature), 1)).sum(1).mean())

    return math.exp(float(minimize_scalar(unlikely, bounds=LOG_TEMPERATURES, method="bounded").x))


def matching_temperature(scores: Tensor, accuracy: float) -> float:
    """The temperature at which the mean probability of the answers equals an accuracy."""
    exact = scores.double()

    def too_sure(log_temperature: float) -> float:
        return float(torch.softmax(exact / math.exp(log_temperature), 1).amax(1).mean()) - accuracy

    low, high = LOG_TEMPERATURES
    if too_sure(high) >= 0:  # no better than chance: as unsure as can be
        return math.exp(high)
    if too_sure(low) <= 0:
        return math.exp(low)
    return math.exp(float(brentq(too_sure, low, high, xtol=1e-3)))
