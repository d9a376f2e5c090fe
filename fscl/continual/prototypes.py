"""Class means: remember the mean feature of each class, and answer with the nearest. Nothing is trained, nothing forgotten.

The plainest rival of every continual learner on a frozen embedding (nearest class mean: Mensink et al. 2013; with a
meta-trained embedding: Snell et al. 2017). Costs one pass over the shots, and keeps no image.
"""

import torch
from torch import Tensor

from fscl.continual.base import ContinualLearner, LearnerState, expect_keys
from fscl.data.pool import Examples
from fscl.nets.fast import class_sums
from fscl.nets.network import Network


class Prototypes(ContinualLearner):
    """Nearest class mean on the features of the base network."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.sums = torch.zeros(0, network.n_features)
        self.counts = torch.zeros(0, dtype=torch.int64)

    @property
    def n_classes(self) -> int:
        return len(self.counts)

    def learn_task(self, support: Examples) -> None:
        self._check_support(support)
        n_classes = max(self.n_classes, int(support.labels.max()) + 1)
        sums, counts = class_sums(self.network.embed(support.images), support.labels, n_classes)
        sums[: self.n_classes] += self.sums
        counts[: self.n_classes] += self.counts
        self.sums, self.counts = sums, counts

    def predict(self, images: Tensor) -> Tensor:
        self._check_can_predict()
        means = self.sums / self.counts[:, None]
        # the other modes of cdist take another route for large batches, and so give other last bits
        return -torch.cdist(self.network.embed(images), means, compute_mode="donot_use_mm_for_euclid_dist")

    def state(self) -> LearnerState:
        return LearnerState({"sums": self.sums.clone(), "counts": self.counts.clone()}, {"method": "prototypes"})

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, {"sums", "counts"}, "prototypes")
        self.sums, self.counts = state.tensors["sums"].clone(), state.tensors["counts"].clone()
