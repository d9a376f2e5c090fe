"""Anchors: points among features that stand for classes, and how far other weights would change what they say.

What an old network says of an image is a distribution over its anchors: p(k | z) ∝ exp(−‖z − c_k‖² / temperature). Features
may move freely as long as these distributions stay: a shift that is at right angles to all differences of anchors changes
none of them. (Liu et al. 2020, "indirect discriminant alignment".)
"""

from torch import Tensor
from torch.nn.functional import kl_div, log_softmax


def anchor_log_shares(features: Tensor, anchors: Tensor, temperature: float) -> Tensor:
    """log p(k | z), (n, n_anchors), of features (n, n_features)."""
    centre = anchors.mean(0)  # large common parts would cost digits
    x, points = features - centre, anchors - centre
    # the feature's own square is the same for every anchor
    return log_softmax((2 * x @ points.T - points.square().sum(1)) / temperature, dim=1)


def discriminant_divergence(features: Tensor, old: Tensor, anchors: Tensor, temperature: float) -> Tensor:
    """Mean over images of KL(p(· | old feature) ‖ p(· | feature)); 0 for one anchor, or where nothing moved.

    Examples:
        >>> import torch
        >>> old = torch.tensor([[1.0, 2.0]])
        >>> anchors = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
        >>> float(discriminant_divergence(old + torch.tensor([0.0, 5.0]), old, anchors, 1.0))  # at right angles: free
        0.0

    Args:
        features: as they are now, (n, n_features).
        old: of the same images, by the old weights; no gradient goes there.
        anchors: (n_anchors, n_features), in the coordinates of the old weights.
        temperature: what divides squared distances.
    """
    wanted = anchor_log_shares(old.detach(), anchors, temperature)
    found = anchor_log_shares(features, anchors, temperature)
    return kl_div(found, wanted, reduction="batchmean", log_target=True)


def feature_distance(features: Tensor, old: Tensor, temperature: float) -> Tensor:
    """Mean over images of the squared distance to the old features, over the temperature: every shift counts."""
    return (features - old.detach()).square().sum(1).mean() / temperature
