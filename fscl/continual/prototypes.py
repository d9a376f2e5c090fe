"""Class means: remember the mean feature of each class, and answer with the nearest. Nothing is trained, nothing forgotten.

The plainest rival of every continual learner on a frozen embedding (nearest class mean: Mensink et al. 2013; with a
meta-trained embedding: Snell et al. 2017). Costs one pass over the shots, and keeps no image.
"""

import torch
from torch import Tensor

from fscl.continual.frozen import FrozenFeatures, add_to_classes, copied, no_classes
from fscl.continual.learner import LearnerState, expect_keys
from fscl.nets.network import Network


class Prototypes(FrozenFeatures):
    """Nearest class mean on the features of the base network."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.sums, self.counts = no_classes(network.n_features, torch.float32, network.device)

    @property
    def n_classes(self) -> int:
        return len(self.counts)

    def learn_features(self, features: Tensor, labels: Tensor) -> None:
        self.sums, self.counts = add_to_classes(self.sums, self.counts, features, labels)

    def score_features(self, features: Tensor) -> Tensor:
        means = self.sums / self.counts[:, None]
        # the other modes of cdist take another route for large batches, and so give other last bits
        return -torch.cdist(features, means, compute_mode="donot_use_mm_for_euclid_dist")

    def state(self) -> LearnerState:
        return LearnerState({"sums": self.sums.clone(), "counts": self.counts.clone()}, {"method": "prototypes"})

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, {"sums", "counts"}, "prototypes")
        self.sums, self.counts = copied(state, self.network.device, "sums", "counts")
