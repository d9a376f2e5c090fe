"""Whether a picture shows a class that was never taught.

The score is a likelihood ratio: is the picture better explained by the nearest class, or by the population that all examples
come from? Features are replaced by their square roots, scaled to length 1. A class is a Student's t with d degrees of
freedom around its mean, with the covariance of examples about their class means; the population is one around the mean of
the class means, with the covariance of examples about that, and counts 0.8. Both covariances are 0.9 isotropic and 0.1
empirical: a few examples a class hardly tell directions. The squared distance to a class mean is reduced by what the mean's
own error adds (1/n of the variance), so that classes of few and of many examples, and examples left out, can be compared.
How low the best score of the head is counts 0.3. Both are in units of their spread over left-out examples.

*Threshold*: each example is left out (a tenth of them at a time, at most one of a class that has up to ten) and scored; 5 %
of them would be rejected. Where weights have moved, these are the examples that one of the two tails has not seen, in the
features of the mean of both, because that is what new pictures are compared in. With fewer than 40 examples the tail of the
scores is that of Student's t. With one example a class the score is the distance to the nearest example. Then, or with a
single pair in all, nothing can be left out: there is no threshold.

Measured on features of an ImageNet network that no example moved, with ridge regression as head, half of the classes taught
and half not, 8 divisions (birds and cars: 40). AUROC of pictures of taught classes against those of the others.
*Probability* is the largest of the head; *mean* and *nearest* are distances of plain features to the nearest class mean and
the nearest example:

| | shots | probability | mean | nearest | this score | false alarms | caught |
|---|---|---|---|---|---|---|---|
| birds, 5 of 10 classes | 1 | 0.672 | 0.657 | 0.657 | 0.757 | | |
| | 5 | 0.831 | 0.722 | 0.705 | 0.882 | 4.6 % | 29 % |
| | 10 | 0.867 | 0.744 | 0.733 | 0.906 | 3.9 % | 33 % |
| cars, 5 of 10 classes | 1 | 0.469 | 0.575 | 0.575 | 0.596 | | |
| | 5 | 0.485 | 0.595 | 0.594 | 0.607 | 3.6 % | 8 % |
| | 10 | 0.520 | 0.588 | 0.592 | 0.642 | 4.3 % | 11 % |
| drawings, 30 of 60 classes | 1 | 0.668 | 0.696 | 0.696 | 0.757 | | |
| | 5 | 0.840 | 0.788 | 0.772 | 0.919 | 4.8 % | 54 % |
| | 10 | 0.882 | 0.795 | 0.785 | 0.941 | 4.4 % | 66 % |
| birds of 64 pixels, 25 of 50 classes | 1 | 0.537 | 0.533 | 0.533 | 0.579 | | |
| | 5 | 0.665 | 0.578 | 0.549 | 0.692 | 3.8 % | 10 % |
| | 10 | 0.674 | 0.586 | 0.563 | 0.706 | 4.3 % | 10 % |
| objects of 64 pixels, 25 of 50 classes | 1 | 0.665 | 0.638 | 0.638 | 0.678 | | |
| | 5 | 0.765 | 0.714 | 0.690 | 0.811 | 3.8 % | 23 % |
| | 10 | 0.793 | 0.720 | 0.706 | 0.835 | 4.4 % | 28 % |

So it is above the best of the three by 0.01 to 0.08 with five shots, and most pictures of other classes are caught only
where classes are far apart. The form of the score and its constants were chosen on other divisions of the same classes:
expect a little less elsewhere. Where weights have moved, the threshold was looked at on two streams each of drawings, birds
and objects of 64 pixels, 25 of 50 classes taught: false alarms of 5.6 and 5.6, 5.2 and 6.8, 5.6 and 1.2 %. With scores by
the tail that has not seen an example, in its own features, they were 0.0 to 1.2 %. With two or three shots a class there
are 1.5 to 3.5 % false alarms (objects: up to 7 %). Weights learned by logistic regression from classes left out in turn,
instead of these constants, lowered the AUROC by up to 0.05, or left it where it was if held near them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from scipy.stats import t as student_t
from torch import Tensor

from fscl.continual.heads.rooted import root
from fscl.nets.params import Params

ISOTROPIC = 0.9  # share of the covariances
POPULATION = 0.8  # how much the distance to the population counts against that to the nearest class
HEAD_WEIGHT = 0.3
FALSE_ALARMS = 0.05
N_FOLDS = 10
FEW = 40  # left-out examples; a quantile of fewer is left to Student's t


@dataclass(frozen=True)
class Unknown:
    """A fitted score and its threshold: a picture is of an unknown class if its score is above the threshold.

    Attributes:
        tensors: what `unknown_score` reads.
        threshold: 5 % of pictures of known classes are above it; None where no example could be left out.
    """

    tensors: Params
    threshold: float | None

    def score(self, features: Tensor, head_scores: Tensor) -> Tensor:
        """Higher means more likely unknown. Features (n, d) and the head's scores (n, n_classes) give (n,)."""
        return unknown_score(self.tensors, features, head_scores)


def unknown_score(tensors: Mapping[str, Tensor], features: Tensor, head_scores: Tensor) -> Tensor:
    """What `Unknown.score` returns: tensor operations alone, so that it can be exported."""
    ratio = _ratio(tensors, features.to(tensors["scales"].dtype))
    location, scale, head_location, head_scale = tensors["scales"].unbind()
    score: Tensor = (ratio - location) * scale + (head_location - head_scores.amax(1)) * head_scale
    return score


def fit_unknown(
    features: Tensor,
    labels: Tensor,
    n_classes: int,
    held_out_scores: Tensor,
    groups: Tensor | None = None,
) -> Unknown | None:
    """Fit the score to stored examples, and set its threshold by leaving them out; None if there are no examples.

    Args:
        features: (n, d), as a new picture is compared with.
        labels: (n,), of the same.
        n_classes: how many classes the head knows; some may have no example.
        held_out_scores: (n, n_classes), of the head for each example as if it had been left out; minus infinity for those
            that were not. The others alone set the threshold, if there are any.
        groups: (n,), what `find_duplicates` returns; of duplicates with one label only the first counts.

    Examples:
        >>> means = torch.eye(4).repeat(1, 3)  # of four classes, of which three are taught
        >>> noise = torch.rand(40, 12, generator=torch.Generator().manual_seed(0))
        >>> features, labels = means.repeat(10, 1) + noise, torch.arange(40) % 4
        >>> taught = labels < 3
        >>> unknown = fit_unknown(features[taught], labels[taught], 3, torch.eye(3)[labels[taught]])
        >>> scores = unknown.score(features, torch.ones(40, 3))
        >>> bool(scores[~taught].min() > scores[taught].max())
        True
    """
    if len(features) == 0:
        return None
    first = first_of_each(labels, groups)
    known, labels = features[first].double(), labels[first]
    tensors = _fit(root(known), labels, n_classes)
    positions, ratios = _leave_out(known, labels, n_classes)
    head = held_out_scores[first][positions].double().amax(1)
    has_score = torch.isfinite(head)
    if bool(has_score.any()):
        ratios, head = ratios[has_score], head[has_score]
    if len(ratios) == 0:
        scales = torch.tensor([0.0, 1.0, 0.0, 0.0])
        return Unknown(_stored(tensors, scales), None)
    scales = torch.tensor([float(ratios.mean()), _inverse_spread(ratios), 0.0, 0.0], dtype=torch.float64)
    scores = (ratios - scales[0]) * scales[1]
    if int(has_score.sum()) > 1:
        scales[2], scales[3] = head.mean(), HEAD_WEIGHT * _inverse_spread(head)
        scores = scores + (scales[2] - head) * scales[3]
    return Unknown(_stored(tensors, scales), upper_quantile(scores))


def fit_again(features: Tensor, labels: Tensor, n_classes: int, scales: Tensor, groups: Tensor | None = None) -> Params:
    """The tensors that `fit_unknown` made of the same examples, bit for bit; the scales alone cannot be had so.

    Args:
        features, labels, n_classes, groups: as of `fit_unknown`.
        scales: those that it found.
    """
    first = first_of_each(labels, groups)
    return _stored(_fit(root(features[first].double()), labels[first], n_classes), scales)


def upper_quantile(scores: Tensor) -> float:
    """What a further score exceeds with a probability of 5 %.

    Of n scores the one of rank 0.95 (n + 1), interpolated; of a few, what Student's t expects.

    Examples:
        >>> upper_quantile(torch.arange(1.0, 100.0))
        95.0
    """
    n, ordered = len(scores), scores.double().sort().values
    if n < 2:
        return math.inf
    if n < FEW:
        width = float(ordered.std()) * math.sqrt(1 + 1 / n)
        return float(ordered.mean()) + float(student_t.ppf(1 - FALSE_ALARMS, n - 1)) * width
    rank = (1 - FALSE_ALARMS) * (n + 1) - 1
    below = math.floor(rank)
    return float(ordered[below] + (rank - below) * (ordered[below + 1] - ordered[below]))


def first_of_each(labels: Tensor, groups: Tensor | None) -> Tensor:
    """Positions of the first example of each group of duplicates, separately for each label; in order."""
    if groups is None:
        return torch.arange(len(labels))
    first: dict[tuple[int, int], int] = {}
    for position, pair in enumerate(zip(groups.tolist(), labels.tolist(), strict=True)):
        first.setdefault(pair, position)
    return torch.tensor(list(first.values()))


def _inverse_spread(values: Tensor) -> float:
    spread = float(values.std()) if len(values) > 1 else 0.0
    return 1 / spread if spread > 1e-9 else 0.0


def _stored(tensors: Params, scales: Tensor) -> Params:
    return {name: tensor.float() for name, tensor in {**tensors, "scales": scales}.items()}


def _ratio(tensors: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """How much farther the nearest class is than the population, by the logarithms of Student's t: (n,)."""
    centred = root(features) - tensors["centre"]
    squares = centred.square().sum(1)
    own = squares * tensors["within"] - (centred @ tensors["within_directions"]).square().sum(1)
    nearest = own + (tensors["offsets"] - 2 * centred @ tensors["normals"]).amin(1)
    population = squares * tensors["population"] - (centred @ tensors["population_directions"]).square().sum(1)
    d = features.shape[1]
    return torch.log1p(nearest.clamp_min(0) / d) - tensors["exponent"] * torch.log1p(population / d)


def _leave_out(features: Tensor, labels: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """The positions that can be left out, and the likelihood ratio of each by what the others say."""
    counts = torch.bincount(labels, minlength=n_classes)
    turns = torch.empty_like(labels)
    for label, count in enumerate(counts.tolist()):
        turns[labels == label] = (
            torch.arange(count) + 3 * label
        ) % N_FOLDS  # at most one of a class that has up to ten
    turns[counts[labels] == 1] = -1  # nothing of its class would be left
    if len(labels) - int((counts > 0).sum()) < 2:  # a single pair: without one of it, no class would have a spread
        turns[:] = -1
    known = root(features)
    positions, ratios = [], []
    for turn in range(N_FOLDS):
        held = turns == turn
        if held.any():
            positions.append(held.nonzero()[:, 0])
            ratios.append(_ratio(_fit(known[~held], labels[~held], n_classes), features[held]))
    if not positions:
        return torch.zeros(0, dtype=torch.int64), torch.zeros(0)
    return torch.cat(positions), torch.cat(ratios)


def _fit(known: Tensor, labels: Tensor, n_classes: int) -> Params:
    """Both Gaussians of rooted features: the distance to a class mean m is xᵀ S⁻¹ x - 2 xᵀ S⁻¹ m + mᵀ S⁻¹ m."""
    counts = torch.bincount(labels, minlength=n_classes)
    means = torch.stack([known[labels == label].mean(0) for label in range(n_classes) if counts[label] > 0])
    sizes = counts[counts > 0]
    centre = means.mean(0)
    row = (torch.cumsum(counts > 0, 0) - 1)[labels]
    n_free = len(known) - len(means)
    within = _inverse((known - means[row]) / math.sqrt(max(n_free, 1)))
    population = _inverse((known - centre) / math.sqrt(max(len(known) - 1, 1)))
    normals = _times(within, means - centre)
    # A mean of n examples is too far away by tr(S⁻¹ · true covariance) / n, the trace being about that of S⁻¹ S = d.
    excess = known.shape[1] / sizes if n_free > 0 else torch.zeros(len(sizes))
    return {
        "centre": centre,
        "within": within[0],
        "within_directions": within[1],
        "population": population[0],
        "population_directions": population[1],
        "normals": normals.T.contiguous(),
        "offsets": ((means - centre) * normals).sum(1) - excess,
        # of a single class, or of single examples, the population's covariance says nothing more than that of the class
        "exponent": torch.tensor(POPULATION if len(means) > 1 and n_free > 0 else 0.0, dtype=known.dtype),
    }


def _inverse(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse of 0.9 isotropic + 0.1 rowsᵀ rows as a number a and a matrix B: a - B Bᵀ (Woodbury's identity)."""
    d = rows.shape[1]
    rows = rows if len(rows) <= d else torch.linalg.qr(rows, mode="r").R
    isotropic = ISOTROPIC * float(rows.square().sum()) / d
    if isotropic < 1e-12:  # single examples: as if their spread was that of vectors of length 1
        return torch.tensor(float(d), dtype=rows.dtype), torch.zeros(d, 1, dtype=rows.dtype)
    empirical = (1 - ISOTROPIC) * rows @ rows.T
    factor = torch.linalg.cholesky(empirical + isotropic * torch.eye(len(rows), dtype=rows.dtype))
    directions = torch.linalg.solve_triangular(factor, rows, upper=False).T
    return torch.tensor(1 / isotropic, dtype=rows.dtype), directions * math.sqrt((1 - ISOTROPIC) / isotropic)


def _times(inverse: tuple[Tensor, Tensor], vectors: Tensor) -> Tensor:
    number, directions = inverse
    return vectors * number - vectors @ directions @ directions.T
