"""A linear head that learns online, one example at a time by gradient descent, without the head ever being formed.

With the error e_i = softmax(z_i) - onehot(y_i), an example of feature f_i moves rows and biases by -α e_i f_iᵀ and -α e_i.
So the scores of any feature q after a pass are those before it, less α Σ_i (q·f_i + 1) e_i: inner products of features and a
few errors tell everything. It is exact, and differentiating it is differentiating through every step of the pass.
"""

import torch
from torch import Tensor


def online_pass(features: Tensor, labels: Tensor, rate: Tensor | float, start: Tensor) -> Tensor:
    """The error (n, n_rows) of each example at its turn, in one pass over all of them in their order.

    Examples:
        >>> online_pass(torch.ones(1, 2), torch.tensor([0]), 0.1, torch.zeros(1, 2)).tolist()
        [[-0.5, 0.5]]

    Args:
        features: (n, n_features).
        labels: (n,), which row each example belongs to.
        rate: of each step of gradient descent.
        start: (n, n_rows), the scores of the examples before the pass.
    """
    steps = rate * (features @ features.T + 1)
    right = torch.nn.functional.one_hot(labels, start.shape[1]).to(start)
    waiting, errors = start, []
    for turn in range(len(features)):
        errors.append(waiting[0].softmax(0) - right[turn])
        waiting = torch.addr(waiting[1:], steps[turn + 1 :, turn], errors[-1], alpha=-1)
    return torch.stack(errors)


def online_scores(query: Tensor, features: Tensor, errors: Tensor, rate: Tensor | float, start: Tensor) -> Tensor:
    """The scores (n_query, n_rows) of query features after a pass.

    Args:
        query: (n_query, n_features).
        features: what was learned from, in order.
        errors: of these, as `online_pass` found them.
        rate: that they were learned with.
        start: (n_query, n_rows), the scores before the pass.
    """
    return start - rate * (query @ features.T + 1) @ errors
