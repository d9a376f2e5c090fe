"""What a continual learner is.

`learn_task` sees a support set and nothing else: no query images, no task label. `predict` scores every class seen so far
and changes nothing. The base network is a value that no learner can change.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fscl.data.pool import Examples
from fscl.errors import DataError, StorageError
from fscl.nets.network import Network


@dataclass(frozen=True)
class LearnerState:
    """All that a learner has learned: tensors by name and a JSON value. Enough to go on as if never interrupted."""

    tensors: dict[str, Tensor]
    details: dict[str, Any]


class ContinualLearner(ABC):
    """Learns tasks one after another. Labels are integers, numbered from 0 in order of arrival."""

    @property
    @abstractmethod
    def n_classes(self) -> int:
        """How many classes can be predicted: the largest label learned so far, plus one."""

    @abstractmethod
    def learn_task(self, support: Examples) -> None:
        """Learn one more task, keeping what earlier tasks taught.

        `support` is neither changed nor kept by reference, and may be on the CPU or on the learner's device.
        """

    @abstractmethod
    def predict(self, images: Tensor) -> Tensor:
        """Scores (n, n_classes) of uint8 images, on the learner's device; the largest wins. Each image is judged alone."""

    @abstractmethod
    def starting_point(self) -> Network:
        """The network that the next task would start from: what learning so far has made of the base. A copy."""

    def diagnostics(self) -> dict[str, float]:
        """Numbers about how the last task was learned, for the record; none unless a method has some."""
        return {}

    def stored_bytes(self) -> dict[str, int]:
        """What is kept from task to task, by kind: "weights" to answer with, and where a method has them "memory" (of
        examples) and "importance" (of weights)."""
        return {"weights": n_bytes(self.state().tensors.values())}

    @abstractmethod
    def state(self) -> LearnerState:
        """A copy of everything learned."""

    @abstractmethod
    def restore(self, state: LearnerState) -> None:
        """Go back to a state of a learner with the same settings and network; it may come from another device."""

    def _check_support(self, support: Examples) -> None:
        """Refuse what cannot be learned, before anything changes."""
        if len(support) == 0:
            raise DataError("a task needs at least one example, and this one has none.")
        if support.labels.dtype != torch.int64:
            raise DataError(f"labels are int64, but these are {support.labels.dtype}. Convert them with labels.long().")
        if len(support.images) != len(support.labels):
            raise DataError(
                f"a task needs one label an image, but has {len(support.images)} and {len(support.labels)}."
            )
        labels = set(support.labels.tolist())
        new = sorted(label for label in labels if label >= self.n_classes)
        if min(labels) < 0 or new != list(range(self.n_classes, self.n_classes + len(new))):
            raise DataError(
                f"labels are numbered from 0 in order of arrival: the next new one is {self.n_classes}, but the task has "
                f"{sorted(labels)}."
            )

    def _check_can_predict(self) -> None:
        if self.n_classes == 0:
            raise DataError("nothing was learned yet, so there is nothing to predict; call learn_task first.")


def n_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of tensors together; memory that two of them share counts once."""
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())


def expect_keys(tensors: dict[str, Tensor], keys: set[str], what: str) -> None:
    """Refuse a state that belongs to another learner."""
    if tensors.keys() != keys:
        wrong = sorted(tensors.keys() ^ keys)
        raise StorageError(f"this state is not one of {what}: {wrong[0]!r} is missing or too many.")
