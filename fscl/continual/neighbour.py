"""Nearest neighbour: remember the feature of every shot, and answer with the class of the nearest. Nothing is trained.

The oldest rival (Fix and Hodges 1951; Cover and Hart 1967), here on a frozen embedding. Keeps features but no image, and
grows with the number of shots, where class means grow with the number of classes.
"""

import torch
from torch import Tensor

from fscl.continual.frozen import FrozenFeatures, copied
from fscl.continual.learner import LearnerState, expect_keys, n_bytes
from fscl.nets.network import Network


class NearestNeighbour(FrozenFeatures):
    """Scores a class by minus the distance to its nearest shot."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.features = torch.zeros(0, network.n_features, device=network.device)
        self.labels = torch.zeros(0, dtype=torch.int64, device=network.device)

    @property
    def n_classes(self) -> int:
        return int(self.labels.max()) + 1 if len(self.labels) else 0

    def stored_bytes(self) -> dict[str, int]:
        examples = n_bytes([self.features, self.labels])
        return {"weights": super().stored_bytes()["weights"] - examples, "memory": examples}

    def learn_features(self, features: Tensor, labels: Tensor) -> None:
        self.features, self.labels = torch.cat([self.features, features]), torch.cat([self.labels, labels])

    def score_features(self, features: Tensor) -> Tensor:
        # the other modes of cdist take another route for large batches, and so give other last bits
        nearness = -torch.cdist(features, self.features, compute_mode="donot_use_mm_for_euclid_dist")
        scores = nearness.new_full((len(features), self.n_classes), -torch.inf)
        return scores.scatter_reduce(1, self.labels.expand(len(features), -1), nearness, "amax")

    def state(self) -> LearnerState:
        return LearnerState({"features": self.features.clone(), "labels": self.labels.clone()}, {"method": "neighbour"})

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, {"features", "labels"}, "nearest neighbour")
        self.features, self.labels = copied(state, self.network.device, "features", "labels")
