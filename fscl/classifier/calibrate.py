"""How good the classifier is, from its stored examples alone: each is left out in turn, and asked for.

A learner that can leave an example out of what it has learned does so (`ContinualLearner.held_out_scores`): class means
exactly, other methods on a frozen embedding by being fitted again without one example of every class at a time. A method
whose head is trained by gradient would have to learn everything again, so its examples are asked for by class means.

Where the embedding moves (`tsc`), it has learned from the very example that is left out, and would recognise it: of birds,
31 % of which it got right, such an estimate promised 92. So the examples are asked for in the base's embedding, which has
never seen them. That is the accuracy of class means on the base; what learning adds is not in it.

*Temperature*: what divides the scores so that the left-out examples' labels are likeliest. Each label is softened as the
rule of succession has it: n right answers of n promise (n + 1) / (n + 2), so that ten examples never make anyone certain.
Where the left-out scores are not the method's own, the mean probability of its answers is made to match the estimate.

*Threshold*: 95 of 100 left-out examples are nearer to their class's mean, taken without them, than this; in the same
embedding.
"""

import math

import torch
from scipy.optimize import brentq, minimize_scalar
from torch import Tensor

from fscl.classifier.knowledge import Calibration
from fscl.continual.held_out import HeldOut, by_means
from fscl.continual.learner import ContinualLearner
from fscl.nets.network import Network
from fscl.nets.params import class_sums

KNOWN_SHARE = 0.95  # of pictures of known classes shall not be rejected
LOG_TEMPERATURES = (math.log(1e-4), math.log(1e6))


def base_features(base: Network, learner: ContinualLearner, images: Tensor, features: Tensor) -> Tensor:
    """Features of images by weights that have not learned from the examples; `features` where nothing moved.

    A base that has BatchNorm and no statistics cannot embed anything by itself, and `features` has to do.
    """
    blind = base.needs_statistics and base.statistics is None
    return base.embed(images) if learner.moves_embedding and not blind else features


def calibrate(learner: ContinualLearner, features: Tensor, base_features: Tensor, labels: Tensor) -> Calibration:
    """Leave each stored example out, and ask for it.

    Args:
        learner: what has learned them.
        features: of the stored examples, as the learner sees them.
        base_features: of the same, by weights that have not learned from them.
        labels: their classes.
    """
    n_classes = learner.n_classes
    squared, own = by_means(base_features, labels, n_classes)
    if len(own) == 0:
        return Calibration(per_class=(None,) * n_classes)
    held = learner.held_out_scores(features, base_features, labels) or HeldOut(-squared, own, own_scale=False)
    right = (held.scores.argmax(1) == held.labels).double()
    sums, counts = class_sums(right[:, None], held.labels, n_classes)
    per_class = tuple(float(s) / int(n) if n else None for s, n in zip(sums[:, 0], counts, strict=True))
    if held.own_scale:
        temperature = likeliest_temperature(held.scores, held.labels)
    else:
        promised = (float(right.sum()) + 1) / (len(right) + 2)
        temperature = matching_temperature(learner.scores(features), promised)
    nearness = squared.gather(1, own[:, None])[:, 0].sqrt()
    threshold = float(torch.quantile(nearness.double(), KNOWN_SHARE))
    return Calibration(float(right.mean()), per_class, temperature, threshold)


def nearest_mean(features: Tensor, known: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """Distance of each of `features` to the nearest class mean of the `known` ones."""
    sums, counts = class_sums(known, labels, n_classes)
    means = (sums / counts[:, None])[counts > 0]
    distances: Tensor = torch.cdist(features, means, compute_mode="donot_use_mm_for_euclid_dist").min(1).values
    return distances


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

    def over_confidence(log_temperature: float) -> float:
        return float(torch.softmax(exact / math.exp(log_temperature), 1).amax(1).mean()) - accuracy

    low, high = LOG_TEMPERATURES
    if over_confidence(high) >= 0:  # no better than chance: as unsure as can be
        return math.exp(high)
    if over_confidence(low) <= 0:
        return math.exp(low)
    return math.exp(float(brentq(over_confidence, low, high, xtol=1e-3)))
