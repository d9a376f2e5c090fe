"""Adaptive posterior learning (APL): stores the features of surprising shots, and decodes a query's nearest keys.

T. Ramalho, M. Garnelo, "Adaptive Posterior Learning: few-shot learning with a surprise-based memory module", 2019.

A shot is predicted from the memory so far, and its features are stored as a key with its label if that was surprising:
-log p above 0.75 ln N for N classes. A query is answered from its k nearest keys by the decoder that was trained with the
base (base learner `apl`), or by a vote of these keys where the base brings none. Nothing else is learned.

Departs from the paper:
- the first shot of a class is always stored, or the class might never be an answer;
- keys are kept in the order of their writing, and the oldest is dropped where the paper has a ring and its pointer;
- the vote of the nearest keys, which the public test has as a control, is the decoder of a base that brings none;
- with the decoder "neighbours" there are no empty slots: a memory of fewer keys than k is looked at as it is.
"""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fscl.continual.frozen import FrozenFeatures, copied, distances
from fscl.continual.learner import LearnerState, expect_keys, n_bytes
from fscl.continual.registry import Method
from fscl.data.stream import StreamSpec
from fscl.errors import MisuseError
from fscl.nets.decoders import (
    GROUP,
    class_scores,
    kernel_scores,
    label_scores,
    n_labels_of,
    neighbour_slots,
    with_empty_slots,
)
from fscl.nets.network import Network, grouped

NAMES = ("keys", "labels", "seen", "written")


class Surprise(FrozenFeatures):
    """A memory of the features of surprising shots."""

    class Settings(FrozenFeatures.Settings):
        """What is stored, and how the nearest keys answer.

        Attributes:
            decoder: how the nearest keys answer: as "trained" with the base (base learner `apl`), by a "kernel" vote, each
                weighed with softmax(-squared distance), or as the "nearest" alone. "auto" is as trained on a base that
                brings a decoder, else a kernel vote.
            neighbours: how many keys a query looks at (k). A trained decoder should have as many as in training.
            write: which shots are stored: those that "surprise", or "all".
            threshold: a shot is a surprise if -log p of its label is above this times ln N.
            capacity: how many keys are stored at most; then the oldest is dropped.
        """

        decoder: Literal["auto", "trained", "kernel", "nearest"] = "auto"
        neighbours: int = Field(default=5, ge=1)
        write: Literal["surprise", "all"] = "surprise"
        threshold: float = Field(default=0.75, ge=0)
        capacity: int = Field(default=10_000, ge=1)

    settings: Settings

    def __init__(self, network: Network, settings: Settings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        if settings.decoder == "trained":
            network.extra(f"{GROUP}/out/weight", "the decoder of the method 'apl' called \"trained\"")
        (brought,) = grouped(network.extras, GROUP)
        self.decoder = brought if settings.decoder in ("auto", "trained") else {}
        self.keys = torch.zeros(0, network.n_features, dtype=network.dtype, device=network.device)
        self.labels = torch.zeros(0, dtype=torch.int64, device=network.device)
        self.seen = self.labels  # shots of each class, stored or not
        self.written = torch.zeros((), dtype=torch.int64, device=network.device)  # keys ever, also those dropped

    @property
    def n_classes(self) -> int:
        return len(self.seen)

    def check_stream(self, stream: StreamSpec) -> None:
        self._check_labels(stream.n_labels)

    def learn_features(self, features: Tensor, labels: Tensor) -> None:
        n_classes = max(self.n_classes, int(labels.max()) + 1)
        self._check_labels(n_classes)
        seen = torch.bincount(labels, minlength=n_classes)
        seen[: self.n_classes] += self.seen
        keys, own, new = self.keys, self.labels, set(range(self.n_classes, n_classes))
        written = 0
        for feature, label in zip(features.to(keys), labels, strict=True):
            if int(label) in new or self._surprises(keys, own, feature[None], int(label), n_classes):
                keys = torch.cat([keys, feature[None]])[-self.settings.capacity :]
                own = torch.cat([own, label[None]])[-self.settings.capacity :]
                written += 1
                new.discard(int(label))
        self.keys, self.labels, self.seen, self.written = keys, own, seen, self.written + written

    def scores(self, features: Tensor) -> Tensor:
        return self._scores(self.keys, self.labels, features, self.n_classes)

    def diagnostics(self) -> dict[str, float]:
        """How many keys are stored, and which part of the shots so far was written."""
        return {"keys stored": float(len(self.keys)), "written": float(self.written) / max(int(self.seen.sum()), 1)}

    def stored_bytes(self) -> dict[str, int]:
        keys = n_bytes([self.keys, self.labels])
        return {"weights": super().stored_bytes()["weights"] - keys + n_bytes(self.decoder.values()), "memory": keys}

    def state(self) -> LearnerState:
        return LearnerState({name: getattr(self, name).clone() for name in NAMES}, {})

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, set(NAMES), "a memory of surprises")
        self.keys, self.labels, self.seen, self.written = copied(state, self.network.device, *NAMES)

    def _check_labels(self, n_classes: int) -> None:
        n_labels = n_labels_of(self.decoder)
        if n_labels is not None and n_classes > n_labels:
            raise MisuseError(
                f"this base's decoder was trained with n_labels = {n_labels}, and {n_classes} classes are more. Train one "
                'with a larger base.learner.n_labels or with decoder = "neighbours", or set decoder = "kernel" here.'
            )

    def _surprises(self, keys: Tensor, labels: Tensor, feature: Tensor, label: int, n_classes: int) -> bool:
        if self.settings.write == "all" or not len(keys):
            return True
        log_probability = self._scores(keys, labels, feature, n_classes)[0, label]
        return -float(log_probability) > self.settings.threshold * math.log(n_classes)

    def _scores(self, keys: Tensor, labels: Tensor, features: Tensor, n_classes: int) -> Tensor:
        """Log probabilities (n, n_classes) of features, from a memory."""
        n_labels, k = n_labels_of(self.decoder), self.settings.neighbours
        if n_labels is not None and len(keys) < self.settings.capacity:
            keys, labels = with_empty_slots(keys, labels, n_labels, k)
        nearest = distances(features, keys).topk(min(k, len(keys)), largest=False).indices
        near, their = keys[nearest], labels[nearest]
        if n_labels is not None:
            return label_scores(self.decoder, features, near, their)[:, :n_classes].log_softmax(1)
        if self.decoder:
            return class_scores(neighbour_slots(self.decoder, features, near, their), their, n_classes)
        if self.settings.decoder == "nearest":
            near, their = near[:, :1], their[:, :1]
        return kernel_scores(features, near, their, n_classes)


METHODS = (
    Method(
        "apl",
        Surprise,
        "Stores the features of surprising shots, and answers from the nearest: by a trained decoder or by their vote.",
        "Ramalho, Garnelo 2019",
    ),
)
