"""The replay memory: shots of earlier tasks, kept as uint8 images."""

import torch
from torch import Tensor

from fscl.data.pool import Examples


class ReplayMemory:
    """Keeps the first `per_class` images of each class; all of them if None; nothing if 0."""

    def __init__(self, per_class: int | None = None) -> None:
        self.per_class = per_class
        self.stored: Examples | None = None

    def __len__(self) -> int:
        return 0 if self.stored is None else len(self.stored)

    @property
    def n_bytes(self) -> int:
        """Bytes of the images and labels held."""
        return 0 if self.stored is None else self.stored.images.nbytes + self.stored.labels.nbytes

    def with_new(self, support: Examples) -> Examples:
        """The replay set of a task: what is remembered, then what is new."""
        if self.stored is None:
            return support
        return Examples(
            torch.cat([self.stored.images, support.images]), torch.cat([self.stored.labels, support.labels])
        )

    def add(self, support: Examples) -> None:
        """Remember a task, within the bound. Copies, so that the caller's tensors stay the caller's."""
        if self.per_class == 0:
            return
        both = self.with_new(support)
        kept = torch.arange(len(both)) if self.per_class is None else _first_of_each(both.labels, self.per_class)
        self.stored = Examples(both.images[kept], both.labels[kept])

    def tensors(self) -> dict[str, Tensor]:
        """What is held, by name, for storage."""
        return {} if self.stored is None else {"images": self.stored.images, "labels": self.stored.labels}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Hold what `tensors` returned."""
        self.stored = Examples(tensors["images"], tensors["labels"]) if tensors else None


def _first_of_each(labels: Tensor, n: int) -> Tensor:
    """Positions of the first `n` of each label, in order."""
    seen: dict[int, int] = {}
    kept = []
    for position, label in enumerate(labels.tolist()):
        seen[label] = seen.get(label, 0) + 1
        if seen[label] <= n:
            kept.append(position)
    return torch.tensor(kept, dtype=torch.int64)
