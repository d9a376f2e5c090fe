"""What the embedding learns by: a loss over the replayed shots.

*Cross-entropy* of the head's scores is the paper's. It is fitted within a few dozen steps, five shots a class being so few,
and then teaches nothing. *Leave one out* asks each shot for its class by distance to the class means, its own mean taken
without it: a shot can never help itself, so the loss goes on measuring what a new image of the class would meet
(Snell, Swersky, Zemel 2017 for distances to means; the left-out form is that of cross-validation).
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.nets.params import Params, class_sums


def leave_one_out(features: Tensor, labels: Tensor, temperature: float) -> Tensor | None:
    """Mean cross-entropy over the shots whose class has another one here; None if there is no such shot."""
    own = torch.unique(labels, return_inverse=True)[1]
    sums, counts = class_sums(features, own, int(own.max()) + 1)
    others = counts[own] - 1
    asked = others > 0
    if not bool(asked.any()):
        return None
    means = sums / counts[:, None]
    without = (sums[own] - features) / others.clamp_min(1)[:, None]
    scores = 2 * features @ means.T - means.square().sum(1)  # the shot's own square is the same for every class
    own_score = 2 * (features * without).sum(1) - without.square().sum(1)
    scores = scores.scatter(1, own[:, None], own_score[:, None])
    return cross_entropy(scores[asked] / temperature, own[asked])


def head_of_means(
    head: Mapping[str, Tensor],
    features: Tensor,
    labels: Tensor,
    temperature: float,
    lost: Mapping[str, Tensor] | None = None,
) -> Params:
    """A linear head that scores by squared distance to the class means; classes without a shot keep their rows.

    `lost` has "sums" and "counts" of features of shots that are not here any more, for each class; they count as others.
    """
    sums, counts = class_sums(features.detach(), labels, len(head["bias"]))
    if lost:
        sums, counts = sums + lost["sums"], counts + lost["counts"]
    known = counts > 0
    means = sums / counts.clamp_min(1)[:, None]
    return {
        "weight": torch.where(known[:, None], 2 * means / temperature, head["weight"].detach()),
        "bias": torch.where(known, -means.square().sum(1) / temperature, head["bias"].detach()),
    }
