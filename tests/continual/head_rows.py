"""Rows for heads to be fitted to."""

import torch
from torch import Tensor

from fscl.continual.heads import Head
from fscl.nets.params import Params
from fscl.rng import generator

N_CLASSES = 4


def shots(
    counts: tuple[int, ...] = (5, 5, 5, 5), n_features: int = 30, *, spread: float = 1.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Rows of classes far from the origin, in an order of no meaning."""
    random = generator(seed, "shots")
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=random)]
    centres = 10 + torch.randn(len(counts), n_features, generator=generator(0, "centres"))
    noise = torch.randn(len(labels), n_features, generator=random)
    return (centres[labels] + spread * noise).double(), labels


def one_by_one(head: Head, features: Tensor, labels: Tensor, extras: Params | None = None) -> Tensor:
    """Scores of each row by a fit to all others."""
    rows = []
    for row in range(len(labels)):
        others = torch.arange(len(labels)) != row
        rows.append(head.scores(head.fit(features[others], labels[others], N_CLASSES, extras), features[row : row + 1]))
    return torch.cat(rows)
