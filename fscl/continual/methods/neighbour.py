"""Nearest neighbour: remember the feature of every shot, and answer with the class of the nearest. Nothing is trained.

The oldest rival (Fix and Hodges 1951; Cover and Hart 1967), here on a frozen embedding. Keeps features but no image, and
grows with the number of shots, where class means grow with the number of classes.
"""

import torch
from torch import Tensor

from fscl.continual.frozen import FrozenFeatures, copied, distances
from fscl.continual.learner import LearnerSettings, LearnerState, expect_keys, n_bytes, renumbered
from fscl.continual.registry import Method
from fscl.nets.network import Network


class NearestNeighbour(FrozenFeatures):
    """Scores a class by minus the distance to its nearest shot."""

    def __init__(self, network: Network, settings: LearnerSettings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        self.known = torch.zeros(0, network.n_features, device=network.device)
        self.labels = torch.zeros(0, dtype=torch.int64, device=network.device)
        self._n_classes = 0

    @property
    def n_classes(self) -> int:
        return self._n_classes

    def stored_bytes(self) -> dict[str, int]:
        examples = n_bytes([self.known, self.labels])
        return {"weights": super().stored_bytes()["weights"] - examples, "memory": examples}

    def learn_features(self, features: Tensor, labels: Tensor) -> None:
        self._hold(torch.cat([self.known, features]), torch.cat([self.labels, labels]))

    def scores(self, features: Tensor) -> Tensor:
        nearness = -distances(features, self.known)
        # not len(features), which an exported graph would take for the number of any batch
        scores = nearness.new_full((features.shape[0], self.n_classes), -torch.inf)
        return scores.scatter_reduce(1, self.labels.expand_as(nearness), nearness, "amax")

    def without_class(self, label: int) -> bool:
        stay = self.labels != label
        self._hold(self.known[stay], renumbered(self.labels[stay], label))
        return True

    def state(self) -> LearnerState:
        return LearnerState({"features": self.known.clone(), "labels": self.labels.clone()}, {})

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, {"features", "labels"}, "nearest neighbour")
        self._hold(*copied(state, self.network.device, "features", "labels"))

    def _hold(self, features: Tensor, labels: Tensor) -> None:
        self.known, self.labels = features, labels
        self._n_classes = int(labels.max()) + 1 if len(labels) else 0


METHODS = (Method("neighbour", NearestNeighbour, "The nearest shot on the frozen embedding.", "Cover, Hart 1967"),)
