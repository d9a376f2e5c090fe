"""Nearest neighbour: remember the feature of every shot, and answer with the class of the nearest. Nothing is trained.

The oldest rival (Fix and Hodges 1951; Cover and Hart 1967), here on a frozen embedding. Keeps features but no image, and
grows with the number of shots, where class means grow with the number of classes.
"""

import torch
from torch import Tensor

from fscl.continual.frozen import KeptFeatures, distances
from fscl.continual.registry import Method


class NearestNeighbour(KeptFeatures):
    """Scores a class by minus the distance to its nearest shot."""

    def fit(self, known: Tensor, labels: Tensor, n_classes: int) -> None:
        """Nothing is fitted."""

    def fitted_bytes(self) -> int:
        return 0

    def scores(self, features: Tensor) -> Tensor:
        nearness = -distances(features, self.known)
        # not len(features), which an exported graph would take for the number of any batch
        scores = nearness.new_full((features.shape[0], self.n_classes), -torch.inf)
        return scores.scatter_reduce(1, self.labels.expand_as(nearness), nearness, "amax")


METHODS = (Method("neighbour", NearestNeighbour, "The nearest shot on the frozen embedding.", "Cover, Hart 1967"),)
