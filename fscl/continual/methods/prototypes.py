"""Class means: remember the mean feature of each class, and answer with the nearest. Nothing is trained, nothing forgotten.

The plainest rival of every continual learner on a frozen embedding (nearest class mean: Mensink et al. 2013; with a
meta-trained embedding: Snell et al. 2017). Costs one pass over the shots, and keeps no image.
"""

import torch
from torch import Tensor

from fscl.continual.frozen import FrozenFeatures, add_to_classes, copied, distances, no_classes
from fscl.continual.held_out import HeldOut, by_means, with_company
from fscl.continual.learner import LearnerSettings, LearnerState, expect_keys, without_row
from fscl.continual.registry import Method
from fscl.nets.network import Network


class Prototypes(FrozenFeatures):
    """Nearest class mean on the features of the base network."""

    def __init__(self, network: Network, settings: LearnerSettings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        self.sums, self.counts = no_classes(network.n_features, torch.float32, network.device)

    @property
    def n_classes(self) -> int:
        return len(self.counts)

    def learn_features(self, features: Tensor, labels: Tensor) -> None:
        self.sums, self.counts = add_to_classes(self.sums, self.counts, features, labels)

    def scores(self, features: Tensor) -> Tensor:
        return -distances(features, self.sums / self.counts[:, None])

    def without_class(self, label: int) -> bool:
        self.sums, self.counts = without_row(self.sums, label), without_row(self.counts, label)
        return True

    def held_out_scores(self, features: Tensor, base_features: Tensor, labels: Tensor) -> HeldOut:
        """Exactly: the mean of an example's class is taken without it."""
        squared, own = by_means(features, labels, self.n_classes)
        return HeldOut(-squared.sqrt(), own, torch.where(with_company(labels, self.n_classes))[0])

    def state(self) -> LearnerState:
        return LearnerState({"sums": self.sums.clone(), "counts": self.counts.clone()}, {})

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, {"sums", "counts"}, "prototypes")
        self.sums, self.counts = copied(state, self.network.device, "sums", "counts")


METHODS = (
    Method(
        "prototypes",
        Prototypes,
        "Class means on the frozen embedding; nothing is trained.",
        "Mensink et al. 2013; Snell et al. 2017",
    ),
)
