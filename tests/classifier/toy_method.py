"""A method of somebody else's, in one file: class medians on the frozen features, and the shots that they are made of."""

import torch
from pydantic import Field
from torch import Tensor

from fscl.continual.learner import ContinualLearner, LearnerState, Remembered, expect_keys
from fscl.continual.memory import ReplayMemory
from fscl.data.pool import Examples
from fscl.nets.network import Network


class Medians(ContinualLearner):
    """The nearest class median; keeps its shots, and makes the medians anew from all of them."""

    class Settings(ContinualLearner.Settings):
        """How near is near.

        Attributes:
            scale: what multiplies distances.
        """

        scale: float = Field(default=1.0, gt=0)

    settings: Settings

    def __init__(self, network: Network, settings: Settings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        self.memory = ReplayMemory()
        self.medians = torch.zeros(0, network.n_features, device=network.device)

    @property
    def n_classes(self) -> int:
        return len(self.medians)

    def learn_task(self, support: Examples) -> None:
        self.check_support(support)
        self.memory.add(Examples(support.images.to(self.network.device), support.labels.cpu()))
        self._fit()

    def scores(self, features: Tensor) -> Tensor:
        return -self.settings.scale * (features[:, None] - self.medians[None]).abs().sum(2)

    def remembered(self) -> Remembered | None:
        return self.memory.remembered()

    def state(self) -> LearnerState:
        return LearnerState({"medians": self.medians.clone()}, {}, self.memory.examples)

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, {"medians"}, "medians")
        self.memory.hold(state.examples)
        self.medians = state.tensors["medians"].to(self.network.device, copy=True)

    def _fit(self) -> None:
        assert self.memory.stored is not None
        features, labels = self.network.embed(self.memory.stored.images), self.memory.stored.labels
        self.medians = torch.stack([features[labels == i].median(0).values for i in range(int(labels.max()) + 1)])
