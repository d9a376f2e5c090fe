"""What a base knows about its own classes: their means, how images of a class spread, and how classes differ.

A base carries these as `extras`, so that a method can use them without any image of the base classes. Features are those
of the finished network, of training classes as they are (not turned, not bent).
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fscl.data.pool import ClassPool
from fscl.nets.network import Network
from fscl.nets.params import Params, class_sums, signed_root

MAX_IMAGES = 20_000  # that are looked at, unless a class has no more than `LEAST_PER_CLASS`
LEAST_PER_CLASS = 20
STATISTICS = ("class_means", "mean", "within", "between", "root_within")
LOOK_AT = 1000  # images between two reports of progress


def base_statistics(
    network: Network, pool: ClassPool, progress: Callable[[int, int, str], None] | None = None
) -> Params:
    """Statistics of the classes of a pool, by name.

    `class_means` (n_classes, n_features), in half precision; `mean` (n_features,) of all classes, each counted alike;
    `within` (n_features, n_features), the covariance inside classes; `between`, that of the true class means: what the
    means found spread, less what so many images of a class would make them spread anyway. `root_within` is `within` of
    the square roots of features, with the sign kept.

    Examples:
        >>> import fscl
        >>> from fscl.testing import noise_pool, small_base
        >>> sorted(base_statistics(small_base(), noise_pool()))
        ['between', 'class_means', 'mean', 'root_within', 'within']
    """
    return statistics_of(*class_features(network, pool, progress))


def class_features(
    network: Network, pool: ClassPool, progress: Callable[[int, int, str], None] | None = None
) -> tuple[Tensor, Tensor]:
    """Features of the classes of a pool, of as many images as are looked at, and the numbers of their classes."""
    each = max(LEAST_PER_CLASS, MAX_IMAGES // len(pool))
    rows = [start + torch.arange(min(count, each)) for start, count in zip(pool.starts, pool.counts, strict=True)]
    labels = torch.arange(len(pool)).repeat_interleave(torch.tensor([len(row) for row in rows]))
    return _features(network, pool.images, torch.cat(rows), progress), labels


def statistics_of(features: Tensor, labels: Tensor) -> Params:
    """The same of features (n, n_features) with the labels 0, 1, … of their classes."""
    doubles, n_classes = features.cpu().double(), int(labels.max()) + 1
    sums, counts = class_sums(doubles, labels, n_classes)
    means = sums / counts[:, None]
    within, root_within = (covariance_within(rows, labels, n_classes) for rows in (doubles, signed_root(doubles)))
    centred = means - means.mean(0)
    spread = centred.T @ centred / max(n_classes - 1, 1)
    between = positive(spread - within * (1 / counts).mean())
    found = {"class_means": means.half(), "mean": means.mean(0), "within": within, "between": between}
    found["root_within"] = root_within
    return {name: tensor if name == "class_means" else tensor.float() for name, tensor in found.items()}


def covariance_within(features: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """Around the means of classes, over its degrees of freedom."""
    sums, counts = class_sums(features, labels, n_classes)
    inside = features - (sums / counts[:, None])[labels]
    return inside.T @ inside / max(len(labels) - n_classes, 1)


def positive(matrix: Tensor) -> Tensor:
    """The nearest symmetric matrix without negative eigenvalues."""
    values, vectors = torch.linalg.eigh(matrix)
    kept: Tensor = (vectors * values.clamp(min=0)) @ vectors.T
    return kept


def carried(extras: Mapping[str, Tensor]) -> str:
    """What a base carries beside its weights, for people; empty if nothing."""
    return ", ".join(sorted({name.partition("/")[0] for name in extras}))


def _features(
    network: Network, images: Tensor, rows: Tensor, progress: Callable[[int, int, str], None] | None
) -> Tensor:
    parts = []
    for piece in rows.split(LOOK_AT):
        parts.append(network.embed(images[piece]).cpu())
        if progress is not None:
            progress(sum(map(len, parts)), len(rows), "")
    return torch.cat(parts)
