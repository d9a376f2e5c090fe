"""Learners on frozen features: the base network turns images into features once, and only those are learned from.

What such a learner is, apart from its arithmetic. Two methods remain to be written, both on features alone, so that the
arithmetic can be tested on numbers chosen by hand.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from fscl.continual.held_out import HeldOut, by_folds
from fscl.continual.learner import ContinualLearner, LearnerSettings, LearnerState, expect_keys, n_bytes, renumbered
from fscl.data.pool import Examples
from fscl.device import exact_device
from fscl.nets.network import Network
from fscl.nets.params import class_sums

ROUNDING = 1e-12  # of a sum of squares: what the rounding of float32 features leaves when there is no spread at all


class FrozenFeatures(ContinualLearner):
    """Embeds images with the base network, and leaves the rest to `learn_features` and `scores`."""

    @final
    def learn_task(self, support: Examples) -> None:
        self.check_support(support)
        features = self.network.embed(support.images)
        self.learn_features(features, support.labels.to(features.device))

    @abstractmethod
    def learn_features(self, features: Tensor, labels: Tensor) -> None:
        """Learn features (n, n_features) with labels (n,) that were checked; changes all that it changes, or nothing."""

    def stored_bytes(self) -> dict[str, int]:
        own = super().stored_bytes()
        base = [*self.network.params.values(), *self.network.fixed.values()]
        return {**own, "weights": own["weights"] + n_bytes(base)}

    def held_out_scores(self, features: Tensor, base_features: Tensor, labels: Tensor) -> HeldOut | None:
        """Fitted again without one example of every class at a time; None where a class has no example to fit it from."""
        if set(labels.tolist()) != set(range(self.n_classes)):
            return None

        def fit(others: Tensor, their_labels: Tensor) -> Callable[[Tensor], Tensor]:
            learner = self.fresh()
            learner.learn_features(others, their_labels)
            return learner.scores

        return by_folds(fit, features, labels)


class KeptFeatures(FrozenFeatures):
    """Keeps the features of all shots, and is fitted to them anew after each task."""

    def __init__(self, network: Network, settings: LearnerSettings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        self.known = torch.zeros(0, network.n_features, dtype=network.dtype, device=network.device)
        self.labels = torch.zeros(0, dtype=torch.int64, device=network.device)
        self._n_classes = 0

    @property
    def n_classes(self) -> int:
        return self._n_classes

    @abstractmethod
    def fit(self, known: Tensor, labels: Tensor, n_classes: int) -> None:
        """Fit what answers to features (n, n_features), maybe none; changes all that it changes, or nothing."""

    @abstractmethod
    def fitted_bytes(self) -> int:
        """The size of what was fitted."""

    @final
    def learn_features(self, features: Tensor, labels: Tensor) -> None:
        self._hold(torch.cat([self.known, features.to(self.known)]), torch.cat([self.labels, labels]))

    def without_class(self, label: int) -> bool:
        stay = self.labels != label
        self._hold(self.known[stay], renumbered(self.labels[stay], label))
        return True

    def stored_bytes(self) -> dict[str, int]:
        base = [*self.network.params.values(), *self.network.fixed.values()]
        return {"weights": n_bytes(base) + self.fitted_bytes(), "memory": n_bytes([self.known, self.labels])}

    def state(self) -> LearnerState:
        return LearnerState({"features": self.known.clone(), "labels": self.labels.clone()}, {})

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, {"features", "labels"}, "kept features")
        self._hold(*copied(state, self.network.device, "features", "labels"))

    def _hold(self, known: Tensor, labels: Tensor) -> None:
        n_classes = int(labels.max()) + 1 if len(labels) else 0
        self.fit(known, labels, n_classes)
        self.known, self.labels, self._n_classes = known, labels, n_classes


def distances(features: Tensor, points: Tensor) -> Tensor:
    """Euclidean distances (n, n_points), each row the same whatever the others are."""
    if (
        torch.compiler.is_compiling()
    ):  # an exported graph knows no cdist, and differences of all pairs would fill memory
        centre = points.mean(0)
        x, y = (features - centre).double(), (points - centre).double()
        squared = x.square().sum(1, keepdim=True) - 2 * x @ y.T + y.square().sum(1)
        return squared.clamp(min=0).sqrt().to(features.dtype)
    # the other modes of cdist take another route for large batches, and so give other last bits
    return torch.cdist(features, points, compute_mode="donot_use_mm_for_euclid_dist")


def add_to_classes(sums: Tensor, counts: Tensor, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """New class sums and counts with the features of one more task in them, longer if it brings new classes."""
    n_known, labels = len(counts), labels.to(features.device)
    new_sums, new_counts = class_sums(features, labels, max(n_known, int(labels.max()) + 1))
    new_sums[:n_known] += sums
    new_counts[:n_known] += counts
    return new_sums, new_counts


def no_classes(n_features: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """The sums and counts to start from."""
    return torch.zeros(0, n_features, dtype=dtype, device=device), torch.zeros(0, dtype=torch.int64, device=device)


def exact(features: Tensor) -> Tensor:
    """In double precision, on their device or, where that has none, on the CPU."""
    return features.to(exact_device(features.device)).double()


def copied(state: LearnerState, device: torch.device, *names: str) -> tuple[Tensor, ...]:
    """Tensors of a state by name, as copies on a device."""
    return tuple(state.tensors[name].to(device, copy=True) for name in names)
