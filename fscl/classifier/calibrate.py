"""How good the classifier is, from its stored examples alone: each is left out in turn, and asked for.

A learner that can leave an example out of what it has learned does so (`ContinualLearner.held_out_scores`): `tsc_tail` by
tails that have never seen the example, other methods on a frozen embedding by being fitted again without one example of
every class at a time. A method whose head is trained by gradient would have to learn everything again,
so its examples are asked for by class means.

Where the embedding moves and nothing was left out while it learned (`tsc`), it would recognise the example: of birds, 31 %
of which it got right, such an estimate promised 92. So the examples are asked for in the base's embedding, which has never
seen them. That is the accuracy of class means on the base; what learning adds is not in it.

*Interval*: Wilson's, at 95 %, over the left-out examples. Duplicates count once.

*Temperature*: what divides the scores so that the left-out examples' labels are likeliest. Each label is softened as the
rule of succession has it: n right answers of n promise (n + 1) / (n + 2), so that ten examples never make anyone certain.
Where the left-out scores are not the method's own, the mean probability of its answers is made to match the estimate. With
one example a class there is no estimate, and the stored examples themselves get a probability half-way between chance and
certainty: new ones less. On photographs that is too modest by far (a tenth, where a third is right of 50 classes), but
nothing here says how far new examples fall below stored ones, and with a trained head on a weak base they do not at all.

*Unknown*: see unknown.py; *doubts* about labels: see doubts.py.
"""

import math
from dataclasses import replace

import torch
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import norm
from torch import Tensor

from fscl.classifier.doubts import find_doubts
from fscl.classifier.knowledge import Calibration, Knowledge
from fscl.classifier.unknown import Unknown, first_of_each, fit_again, fit_unknown
from fscl.continual.held_out import HeldOut, by_means, with_company
from fscl.continual.learner import ContinualLearner
from fscl.data.duplicates import find_duplicates
from fscl.data.pool import Examples
from fscl.nets.network import Network
from fscl.nets.params import Params, class_sums

LOG_TEMPERATURES = (math.log(1e-4), math.log(1e6))
WITHOUT_ESTIMATE = 0.5  # of the way from chance to certainty: what stored examples get where none can be left out
CONFIDENCE = 0.95
ROWS = 2  # dimensions of examples that are rows of numbers


def base_features(base: Network, learner: ContinualLearner, images: Tensor, features: Tensor) -> Tensor:
    """Features of images by weights that have not learned from the examples; `features` where nothing moved.

    A base that has BatchNorm and no statistics cannot embed anything by itself, and `features` has to do.
    """
    blind = base.needs_statistics and base.statistics is None
    return base.embed(images) if learner.moves_embedding and not blind else features


def calibrate(
    learner: ContinualLearner, features: Tensor, base_features: Tensor, examples: Examples
) -> tuple[Calibration, Unknown | None]:
    """Leave each stored example out, and ask for it.

    Args:
        learner: what has learned them.
        features: of the stored examples, as the learner sees them.
        base_features: of the same, by weights that have not learned from them.
        examples: the stored ones.
    """
    labels, n_classes = examples.labels, learner.n_classes
    chance = 1 / n_classes
    groups = _groups(examples, base_features)
    held = _left_out(learner, features, base_features, labels, groups)
    in_base = learner.moves_embedding and (held is None or not held.own_weights)
    if in_base:  # the left-out scores are of other features than the method's answers, and say nothing about those
        unknown = _unknown(base_features, labels, n_classes, None, groups)
    else:
        unknown = _unknown(features, labels, n_classes, held, groups)
    n_repeats = len(labels) - len(torch.unique(groups))
    if held is None:
        return Calibration(
            per_class=(None,) * n_classes,
            temperature=matching_temperature(learner.scores(features), chance + WITHOUT_ESTIMATE * (1 - chance)),
            unknown_in_base=in_base,
            n_repeats=n_repeats,
        ), unknown
    right = (held.scores.argmax(1) == held.labels).double()
    sums, counts = class_sums(right[:, None], held.labels, n_classes)
    per_class = tuple(float(s) / int(n) if n else None for s, n in zip(sums[:, 0], counts, strict=True))
    accuracy = min(max(float(right.mean()) + held.shift, 0.0), 1.0)
    if held.own_scale:
        temperature = likeliest_temperature(held.scores, held.labels)
    else:
        promised = (float(right.sum()) + 1) / (len(right) + 2)
        temperature = matching_temperature(learner.scores(features), promised)
    return Calibration(
        accuracy,
        per_class,
        temperature,
        threshold=None if unknown is None else _finite(unknown.threshold),
        interval=wilson(accuracy, len(right)),
        n_left_out=len(right),
        unknown_in_base=in_base,
        n_repeats=n_repeats,
        doubts=_doubts(held, base_features, labels, groups),
    ), unknown


def unknown_again(knowledge: Knowledge, scales: Tensor) -> Params:
    """What the score of unknown is computed with, from what is stored; the same bits as when it was learned."""
    examples = knowledge.examples
    if examples is None:
        return {}
    features = knowledge.base_features if knowledge.calibration.unknown_in_base else knowledge.features
    groups = _groups(examples, knowledge.base_features)
    return fit_again(features, examples.labels, len(knowledge.classes), scales, groups)


def _groups(examples: Examples, base_features: Tensor) -> Tensor:
    """Which examples show the same thing; rows of numbers are each their own."""
    if examples.images.ndim == ROWS:
        return torch.arange(len(examples.labels))
    return find_duplicates(examples.images, base_features, examples.labels)


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's interval of a share of n, at 95 %.

    Examples:
        >>> [round(bound, 3) for bound in wilson(0.5, 100)]
        [0.404, 0.596]
    """
    z = float(norm.ppf((1 + CONFIDENCE) / 2))
    middle, spread = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, (middle - spread) / (1 + z * z / n)), min(1.0, (middle + spread) / (1 + z * z / n))


def _left_out(
    learner: ContinualLearner, features: Tensor, base_features: Tensor, labels: Tensor, groups: Tensor
) -> HeldOut | None:
    """Scores of examples that were left out, duplicates together; None where no class has two examples.

    A learner that does not know of duplicates is asked as if only the first of each had been taught.
    """
    if not bool(with_company(labels, learner.n_classes).any()):
        return None
    first = first_of_each(labels, groups)
    several = first[with_company(labels[first], learner.n_classes)]
    held = learner.held_out_scores(features, base_features, labels)
    if held is not None and held.duplicates_together:
        return held
    if len(several) == 0:
        return None
    if held is not None and len(first) < len(labels):
        held = learner.held_out_scores(features[first], base_features[first], labels[first])
        if held is not None and held.positions is not None:
            held = replace(held, positions=first[held.positions])
    if held is None:
        squared, own = by_means(base_features[first], labels[first], learner.n_classes)
        held = HeldOut(-squared, own, several, own_scale=False)
    return held


def _unknown(features: Tensor, labels: Tensor, n_classes: int, held: HeldOut | None, groups: Tensor) -> Unknown | None:
    """The score of unknown, and its threshold by what was left out."""
    scores = torch.full((len(labels), n_classes), -torch.inf)
    if held is not None and held.own_scale and held.positions is not None:
        scores[held.positions] = held.scores.to(scores)
    return fit_unknown(features, labels, n_classes, scores, groups)


def _finite(threshold: float | None) -> float | None:
    """Two examples may say nothing about a threshold."""
    return threshold if threshold is not None and math.isfinite(threshold) else None


def _doubts(held: HeldOut, features: Tensor, labels: Tensor, groups: Tensor) -> tuple[tuple[int, int, float], ...]:
    """Stored examples whose label is probably wrong: position, the class that is likelier, and how sure that is."""
    if held.positions is None or len(held.positions) < ROWS:
        return ()
    own = held.positions
    found = find_doubts(held.scores, features[own], labels[own], groups[own])
    return tuple((int(own[doubt.position]), doubt.suggestion, doubt.confidence) for doubt in found)


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
