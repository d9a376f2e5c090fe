"""Stored examples whose label is probably wrong.

An example is listed if two opinions that do not know it agree on one other class: the head's, with the example left out, and
that of its nearest neighbours among the other examples. On hard data both are often wrong about right labels, so how much
they prefer the other class has to be compared with how much they would if the label were wrong. Both are known from the
examples themselves: the preference for the best other class over the label as it stands, and over each label it might have
been given by mistake. A logistic regression between the two, at the share of labels that is wrong a priori, gives the
probability that a label is wrong.

Measured with ridge regression on features of an ImageNet network, labels swapped at random; precision is the share of the
listed that were swapped, recall the share of the swapped that are listed:

| | answers right, left out | 5 shots, 5 % swapped | 5 shots, 10 % | 10 shots, 5 % | 10 shots, 10 % |
|---|---|---|---|---|---|
| birds, 10 classes | 81 to 85 % | 0.76, 0.30 | 0.96, 0.25 | 1.00, 0.56 | 1.00, 0.41 |
| drawings, 60 classes | 73 to 84 % | 0.93, 0.53 | 0.98, 0.37 | 1.00, 0.57 | 1.00, 0.53 |
| objects, 50 classes | 55 to 64 % | 0.74, 0.36 | 0.82, 0.33 | 0.81, 0.53 | 0.92, 0.39 |
| cars, 10 classes | 45 to 53 % | 0.16, 0.07 | 0.39, 0.08 | 0.47, 0.16 | 0.80, 0.23 |
| birds of 64 pixels, 50 classes | 27 to 39 % | 0.32, 0.13 | 0.45, 0.10 | 0.67, 0.21 | 0.71, 0.16 |

The percentages are those with 5 % swapped. Where no label was swapped, 0 to 0.6 % of the examples are listed, of the cars
and the small birds 0.4 to 2 %.
"""

from typing import NamedTuple

import torch
from torch import Tensor

PRIOR, PRIOR_WEIGHT = 0.05, 30.0  # the share of labels that are wrong, and how many examples that is worth
N_NEIGHBOURS = 3
RIDGE = 1e-3
STEPS = 15
TURNS = 6


class Doubt(NamedTuple):
    """A stored example whose label is probably wrong."""

    position: int
    suggestion: int
    confidence: float


def find_doubts(
    held_out_scores: Tensor, features: Tensor, labels: Tensor, groups: Tensor, *, least_confidence: float = 0.3
) -> list[Doubt]:
    """The examples whose label is probably wrong, the surest first.

    An example that is alone in its class (or has only duplicates there) is never listed: left out, its class is unknown.

    Args:
        held_out_scores: (n, n_classes), of the head for each example as if it had been left out.
        features: (n, d), of the same.
        labels: (n,), of the same.
        groups: (n,), what `find_duplicates` returns: a duplicate has no say about its like.
        least_confidence: list those whose label is wrong with at least this probability.

    Examples:
        >>> features = torch.tensor([[0.0, 1], [0.1, 1], [0.2, 1], [1, 0], [1, 0.1], [1, 0.2], [1, 0.05]])
        >>> labels = torch.tensor([0, 0, 0, 1, 1, 1, 0])
        >>> doubts = find_doubts(features.flip(1), features, labels, torch.arange(7), least_confidence=0.1)
        >>> [(doubt.position, doubt.suggestion) for doubt in doubts]
        [(6, 1)]
    """
    n_classes = held_out_scores.shape[1]
    others = groups[:, None] != groups
    can_ask = (others & (labels[:, None] == labels)).any(1)
    if n_classes < 2 or int(can_ask.sum()) < 2:
        return []
    near = neighbour_scores(features, labels, others, n_classes)
    opinions = torch.stack([_standardised(held_out_scores[can_ask]), _standardised(near[can_ask])])
    given = labels[can_ask]
    preferences = torch.stack([_preference(opinion) for opinion in opinions], 2)  # (examples, classes, 2)
    is_given = torch.zeros(preferences.shape[:2], dtype=torch.bool).scatter_(1, given[:, None], True)
    # Had another label been given by mistake, this example would look so. Where both opinions prefer the class given, it is
    # right for certain; the others would only blur the comparison.
    sure = opinions.argmax(2).eq(given).all(0)
    mistaken = preferences[sure][~is_given[sure]]
    if len(mistaken) == 0:
        return []
    probability = _probability_of_mistake(preferences[is_given], mistaken)
    answers = opinions.argmax(2)
    listed = (answers[0] == answers[1]) & (answers[0] != given) & (probability >= least_confidence)
    doubts = zip(
        can_ask.nonzero()[:, 0][listed].tolist(), answers[0][listed].tolist(), probability[listed].tolist(), strict=True
    )
    return sorted((Doubt(*doubt) for doubt in doubts), key=lambda doubt: (-doubt.confidence, doubt.position))


def neighbour_scores(features: Tensor, labels: Tensor, others: Tensor, n_classes: int) -> Tensor:
    """(n, n_classes): mean cosine, about the mean of all, of each example and its 3 nearest `others` of each class."""
    centred = features.double() - features.double().mean(0)
    directions = centred / centred.norm(dim=1, keepdim=True).clamp_min(1e-12)
    cosines = (directions @ directions.T).masked_fill(~others, -torch.inf)
    scores = torch.full((len(features), n_classes), -1.0, dtype=torch.float64)
    for label in range(n_classes):
        of_class = cosines[:, labels == label]
        top = of_class.topk(min(N_NEIGHBOURS, of_class.shape[1]), 1).values
        there = torch.isfinite(top)
        mean = top.masked_fill(~there, 0).sum(1) / there.sum(1)
        scores[:, label] = torch.where(there.any(1), mean, scores[:, label])
    return scores


def _standardised(scores: Tensor) -> Tensor:
    """Scores in units of their spread over classes; what is not finite becomes the lowest."""
    exact = scores.double()
    finite = torch.where(torch.isfinite(exact), exact, exact[torch.isfinite(exact)].min())
    return finite / finite.std(1).mean().clamp_min(1e-12)


def _preference(scores: Tensor) -> Tensor:
    """(n, n_classes): how far the best of the other classes is above each class."""
    best, second = scores.topk(2, 1).values.T
    is_best = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, scores.argmax(1, keepdim=True), True)
    return torch.where(is_best, second[:, None], best[:, None]) - scores


def _probability_of_mistake(given: Tensor, mistaken: Tensor) -> Tensor:
    """Of each row of `given`: a logistic regression between these, as far as they are right, and the `mistaken` ones.

    Which are right is what is asked for, so regression and probabilities take turns (expectation maximisation), and the
    share of wrong labels follows, held near the prior as if `PRIOR_WEIGHT` more examples had been seen.
    """
    wrong = torch.full((len(given),), PRIOR, dtype=given.dtype)
    for _ in range(TURNS):
        share = (PRIOR * PRIOR_WEIGHT + float(wrong.sum())) / (PRIOR_WEIGHT + len(given))
        weight = torch.cat(
            [(1 - wrong) * (1 - share) / (1 - wrong).sum(), torch.full((len(mistaken),), share / len(mistaken))]
        )
        wrong = _logistic(torch.cat([given, mistaken]), len(given), weight)[: len(given)]
    return wrong


def _logistic(rows: Tensor, n_right: int, weight: Tensor) -> Tensor:
    """Probability that each row is wrong; the first `n_right` are right and the rest wrong. By Newton's method."""
    inputs = torch.cat([rows, torch.ones(len(rows), 1, dtype=rows.dtype)], 1)
    wrong = (torch.arange(len(rows)) >= n_right).to(rows.dtype)
    penalty = RIDGE * torch.diag(torch.tensor([1.0, 1.0, 1e-6], dtype=rows.dtype))
    coefficients = torch.zeros(3, dtype=rows.dtype)
    for _ in range(STEPS):
        p = torch.sigmoid(inputs @ coefficients)
        gradient = inputs.T @ (weight * (p - wrong)) + penalty @ coefficients
        curvature = (inputs * (weight * p * (1 - p))[:, None]).T @ inputs + penalty
        coefficients = coefficients - torch.linalg.solve(curvature, gradient)
    return torch.sigmoid(inputs @ coefficients)
