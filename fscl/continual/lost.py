"""Shots that a bounded memory did not keep: of each class, how many they were and the sum of their features.

With them a class's mean is that of all its shots, those lost as the embedding saw them when it let them go.
"""

import torch
from torch import Tensor

from fscl.nets.params import Params, class_sums


def grown(lost: Params, n_classes: int) -> Params:
    """With rows of nothing for classes that are new."""
    missing = n_classes - len(lost["counts"]) if lost else 0
    return {name: torch.cat([tensor, tensor.new_zeros(missing, *tensor.shape[1:])]) for name, tensor in lost.items()}


def with_lost(lost: Params, features: Tensor, labels: Tensor, kept: Tensor) -> Params:
    """With the features of the replayed shots that were not kept."""
    gone = torch.ones(len(labels), dtype=torch.bool, device=labels.device)
    gone[kept] = False
    if not bool(gone.any()):
        return lost
    n_classes = len(lost["counts"]) if lost else int(labels.max()) + 1
    sums, counts = class_sums(features[gone], labels[gone], n_classes)
    return (
        {"sums": sums + lost["sums"], "counts": counts + lost["counts"]} if lost else {"sums": sums, "counts": counts}
    )
