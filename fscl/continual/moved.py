"""Learners that move weights of the embedding from task to task, without slow weights: what such a learner is, apart from
how it learns.

BatchNorm learns and answers with the base's statistics: a few shots of one task would give others, and everything that was
kept of earlier tasks lies in the old coordinates.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fscl.continual.learner import ContinualLearner, LearnerSettings, LearnerState, n_bytes
from fscl.errors import Divergence
from fscl.nets.network import Network, grouped
from fscl.nets.params import Params, frozen_copy, in_layout


class MovedWeights(ContinualLearner):
    """Answers with the base's network, some or all of whose weights are its own."""

    def __init__(self, network: Network, settings: LearnerSettings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        self.weights: Params = frozen_copy(self.movable_weights())
        self.n_tasks = 0
        self._diagnostics: dict[str, float] = {}

    def movable_weights(self) -> Params:
        """The base's weights that are moved; none where the base is frozen."""
        return self.network.params

    def features(self, images: Tensor) -> Tensor:
        return self.network.embed(images, self.all_weights())

    def features_together(self, images: Tensor) -> Tensor:
        weights = self.all_weights()
        statistics = self.network.freeze_statistics(self.network.to_input(images), weights)
        return self.network.embed(images, weights, statistics=statistics)

    def starting_point(self) -> Network:
        return self.network.with_weights(frozen_copy(self.all_weights()), self.network.statistics)

    def all_weights(self) -> Params:
        """Those that were moved, and those of the base."""
        return {**self.network.params, **self.weights}

    @property
    def moves_embedding(self) -> bool:
        return bool(self.weights)

    def diagnostics(self) -> dict[str, float]:
        """The last loss, and how far the embedding is from the base as a share of the base's size (moved)."""
        return dict(self._diagnostics)

    def stored_bytes(self) -> dict[str, int]:
        own = super().stored_bytes()
        standing = [tensor for name, tensor in self.network.params.items() if name not in self.weights]
        return {**own, "weights": own["weights"] + n_bytes([*standing, *self.network.fixed.values()])}

    # help for subclasses

    def weights_of(self, state: LearnerState) -> Params:
        """The moved weights of a state, as copies in the layout in which they are fast."""
        (tensors,) = grouped(state.tensors, "weights")
        return in_layout({name: tensors[name].to(self.network.device, copy=True) for name in self.weights})

    def refuse_divergence(self, step: int, loss: float, rate: float, *weights: Mapping[str, Tensor]) -> None:
        """An error if the loss or a weight is no longer a number."""
        sound = all(bool(torch.isfinite(tensor).all()) for params in weights for tensor in params.values())
        if not (sound and abs(loss) < torch.inf):
            what = f"the loss is {loss} at step {step}" if sound else "the weights are no longer finite"
            raise Divergence(
                f"{self.name} diverged in task {self.n_tasks + 1}: {what}, with learning_rate {rate:g}. Lower it; the "
                "learner is as it was before the task."
            )
