"""Which stored examples show the same picture, or one thing photographed seconds apart.

Such examples know each other's answer: an estimate that leaves one of them out and keeps the other is too high. They count
once, and the user is told.

Two examples belong together if their features are closer than those of the class usually are, *and* the pictures agree in
small, shifted by up to 6 % against each other. Agreement is the correlation of 32 × 32 cells: of the cells themselves
(where light and dark are), and of their detail (what is left after subtracting the 5 × 5 surroundings). Pictures of the same
kind on the same ground (a pelican on water, another pelican on water) agree in the first and not in the second. Most of a
drawing is plain ground, and two drawings of one letter agree in both, so where most cells have no detail the pictures must
agree nearly exactly.

Measured on five sets of photographs and drawings, 20 to 30 a class (3 million pairs; no known duplicates), and on 40 of each
set changed in six ways:

| | birds | cars | drawings | birds, 64 pixels | objects, 64 pixels |
|---|---|---|---|---|---|
| pictures | 300 | 300 | 1200 | 1500 | 1500 |
| pairs reported | 1 | 1 | 5 | 0 | 0 |
| found: JPEG of quality 60 | 100 % | 100 % | 100 % | 100 % | 100 % |
| found: resized to 96 pixels | 100 % | 100 % | 100 % | 100 % | 100 % |
| found: cropped by 2 to 5 % | 92 % | 95 % | 30 % | 92 % | 92 % |
| found: 10 % brighter or darker | 100 % | 100 % | 100 % | 100 % | 100 % |
| found: turned by 2° and cropped | 82 % | 92 % | 5 % | 78 % | 85 % |
| found: shifted, turned, cropped, brighter, JPEG | 82 % | 88 % | 5 % | 75 % | 85 % |

With five pictures a class, 1 wrong pair among 4500 pictures. The pairs reported among drawings are simple strokes. A burst
is not noticed if nothing else was taught to compare it with.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

CELLS = 32  # a picture in small has so many cells a side
SHIFT = 2  # cells: 6 % of the side
COARSE = 8  # cells a side of the first, cheap comparison
COARSE_AGREEMENT = 0.6
BURST = (0.8, 0.3, 0.7)  # least agreement of cells, of detail; largest distance: seconds apart
COPY = (0.7, 1.0)  # least agreement of detail, largest distance: one picture, stored twice
DRAWING_COPY = (0.97, 1.0)
PLAIN = 0.02  # a cell with less detail than this is plain, of a picture between 0 and 1
MOSTLY_PLAIN = 0.6
PAIRS_AT_ONCE = 1000


def find_duplicates(images: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """A group for each example, numbered from 0 in order of appearance; examples of one group count once.

    The labels only say how far apart examples of a class usually are: one picture taught under two labels is found, too.

    Args:
        images: (n, channels, side, side), uint8.
        features: (n, d), of the same.
        labels: (n,), of the same.

    Examples:
        >>> images = torch.randint(0, 256, (3, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        >>> images[2] = images[0]
        >>> find_duplicates(images, images.flatten(1) / 255, torch.tensor([0, 1, 1])).tolist()
        [0, 1, 0]
    """
    n = len(images)
    if n < 2:
        return torch.arange(n)
    distances = relative_distances(features, labels)
    thumbnails = torch.cat([_in_small(part, CELLS) for part in images.split(256)])
    coarse = _unit(_in_small(thumbnails, COARSE))
    near = (coarse @ coarse.T > COARSE_AGREEMENT) & (distances < COPY[1])
    same = distances < 1e-3  # blank pictures have no correlation
    first, second = torch.triu(near | same, 1).nonzero().T
    pairs = zip(first.split(PAIRS_AT_ONCE), second.split(PAIRS_AT_ONCE), strict=True)
    belong = [_belong(thumbnails[i], thumbnails[j], distances[i, j]) for i, j in pairs]
    together = torch.cat(belong) if belong else torch.zeros(0, dtype=torch.bool)
    return connected(n, first[together].tolist(), second[together].tolist())


def repeated(groups: Tensor) -> list[list[int]]:
    """The positions of each group that has two or more examples.

    Examples:
        >>> repeated(torch.tensor([0, 1, 0, 2]))
        [[0, 2]]
    """
    members: dict[int, list[int]] = {}
    for position, group in enumerate(groups.tolist()):
        members.setdefault(group, []).append(position)
    return [positions for positions in members.values() if len(positions) > 1]


def relative_distances(features: Tensor, labels: Tensor) -> Tensor:
    """(n, n) distances of features, in units of what is usual for two examples of a class.

    That is the median over such pairs. Where few are stored, or most of them are bursts, 0.85 of the median over all pairs
    is larger; on photographs the two are about the same.
    """
    centred = features.double() - features.double().mean(0)
    squares = centred.square().sum(1)
    distances = (squares[:, None] + squares - 2 * centred @ centred.T).clamp_min(0).sqrt()
    upper = torch.ones_like(distances, dtype=torch.bool).triu(1)
    usual = 0.85 * distances[upper].median()
    of_class = distances[upper & (labels[:, None] == labels)]
    if len(of_class) > 0:
        usual = torch.maximum(usual, of_class.median())
    return distances / usual.clamp_min(1e-12)


def connected(n: int, first: list[int], second: list[int]) -> Tensor:
    """Groups of 0 … n - 1 that pairs connect, directly or through others, numbered in order of appearance.

    Examples:
        >>> connected(5, [1, 2], [2, 4]).tolist()
        [0, 1, 1, 2, 1]
    """
    parent = list(range(n))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, j in zip(first, second, strict=True):
        a, b = root(i), root(j)
        parent[max(a, b)] = min(a, b)
    numbers: dict[int, int] = {}
    return torch.tensor([numbers.setdefault(root(i), len(numbers)) for i in range(n)], dtype=torch.int64)


def _belong(one: Tensor, other: Tensor, distance: Tensor) -> Tensor:
    """Whether pairs of thumbnails, (k, channels, CELLS, CELLS) each, belong together."""
    detail, other_detail = _detail(one), _detail(other)
    in_detail = _best_agreement(detail, other_detail)
    plain = torch.maximum(_plain_share(detail), _plain_share(other_detail)) > MOSTLY_PLAIN
    copy = (in_detail > COPY[0]) & (distance < COPY[1])
    burst = (in_detail > BURST[1]) & (distance < BURST[2])
    burst[burst.clone()] = _best_agreement(one[burst], other[burst]) > BURST[0]
    drawing = (in_detail > DRAWING_COPY[0]) & (distance < DRAWING_COPY[1])
    equal = ((one - other).abs().flatten(1).amax(1) < 0.5 / 255) & (distance < 1e-3)
    return torch.where(plain, drawing, copy | burst) | equal


def _in_small(images: Tensor, side: int) -> Tensor:
    scaled = images / 255 if images.dtype == torch.uint8 else images
    small: Tensor = F.adaptive_avg_pool2d(scaled, side)
    return small


def _detail(thumbnails: Tensor) -> Tensor:
    return thumbnails - F.avg_pool2d(F.pad(thumbnails, (2, 2, 2, 2), mode="replicate"), 5, 1)


def _plain_share(detail: Tensor) -> Tensor:
    return (detail.abs().amax(1) < PLAIN).flatten(1).float().mean(1)


def _unit(pictures: Tensor) -> Tensor:
    flat = pictures.flatten(1)
    centred = flat - flat.mean(1, keepdim=True)
    unit: Tensor = centred / centred.norm(dim=1, keepdim=True).clamp_min(1e-4)
    return unit


def _best_agreement(one: Tensor, other: Tensor) -> Tensor:
    """The largest correlation of the middle of either picture with the other, over all shifts."""
    inner = CELLS - 2 * SHIFT
    best = torch.full((len(one),), -1.0)
    for still, moved in ((one, other), (other, one)):
        middle = _unit(still[:, :, SHIFT : SHIFT + inner, SHIFT : SHIFT + inner])
        for down in range(2 * SHIFT + 1):
            for right in range(2 * SHIFT + 1):
                window = _unit(moved[:, :, down : down + inner, right : right + inner])
                best = torch.maximum(best, (middle * window).sum(1))
    return best
