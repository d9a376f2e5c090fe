"""Random projection: many random non-linear features, and a ridge regression that is solved anew after every task.

McDonnell, Gong, Parvaneh, Abbasnejad and van den Hengel 2023, "RanPAC: random projections and pre-trained models for
continual learning". The Gram matrix and the class sums of the projected features are all that a ridge regression needs,
and they add up over tasks, so that nothing is forgotten and no feature is kept.

Departs from the paper: the network is not adapted to the first task. 1,000 projected features instead of 10,000. The
ridge strength is in units of the mean square of a projected feature. It is chosen on one held-out shot of each class of
the newest task, told apart from all classes, with earlier tasks in the fit (the paper splits the newest task 80:20 and
fits it alone), by accuracy and then by squared error. A task with a class of one shot keeps the strength in force.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import one_hot, relu

from fscl.continual.frozen import FrozenFeatures, add_to_classes, copied, exact, no_classes
from fscl.continual.learner import LearnerState, expect_keys
from fscl.continual.registry import Method
from fscl.device import exact_device
from fscl.nets.network import Network
from fscl.rng import generator

Strength = Annotated[float, Field(gt=0)]


class RandomProjection(FrozenFeatures):
    """Ridge regression from randomly projected features to classes."""

    class Settings(FrozenFeatures.Settings):
        """The projection, and how the ridge is chosen.

        Attributes:
            n_projected: how many random features there are.
            strengths: of the ridge, to choose from, in units of the mean square of a projected feature.
            first_strength: until a task has shots to choose by.
        """

        n_projected: int = Field(default=1000, ge=1, le=20_000)
        strengths: tuple[Strength, ...] = Field(default=tuple(10.0**power for power in range(-3, 6)), min_length=1)
        first_strength: Strength = 0.1  # one shot a class is best told by interpolation

    settings: Settings

    def __init__(self, network: Network, settings: Settings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        shape, random = (network.n_features, settings.n_projected), generator(seed, "projection")
        drawn = torch.randn(shape, generator=random, dtype=torch.float64) / network.n_features**0.5
        self.projection = drawn.to(exact_device(network.device))
        self.sums, self.counts = no_classes(settings.n_projected, torch.float64, self.projection.device)
        self.gram = self.sums.new_zeros(settings.n_projected, settings.n_projected)
        self.strength = settings.first_strength
        self.weights = self.sums

    @property
    def n_classes(self) -> int:
        return len(self.counts)

    def learn_features(self, features: Tensor, labels: Tensor) -> None:
        projected = self.project(features)
        labels = labels.to(projected.device)
        strength = self._choose_strength(projected, labels)
        gram, sums, counts = self._with_shots(projected, labels)
        weights = ridge_weights(gram, sums, counts, strength)
        self.gram, self.sums, self.counts, self.strength, self.weights = gram, sums, counts, strength, weights

    def scores(self, features: Tensor) -> Tensor:
        return (self.project(features) @ self.weights.T).to(features.dtype).to(features.device)

    def project(self, features: Tensor) -> Tensor:
        """Projected features (n, n_projected), in double precision."""
        return relu(exact(features) @ self.projection)

    def diagnostics(self) -> dict[str, float]:
        return {"strength": self.strength}

    def state(self) -> LearnerState:
        tensors = {"gram": self.gram.clone(), "sums": self.sums.clone(), "counts": self.counts.clone()}
        strength = torch.tensor(self.strength, dtype=torch.float64)
        return LearnerState({**tensors, "strength": strength}, {})

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, {"gram", "sums", "counts", "strength"}, "random projection")
        gram, sums, counts = copied(state, self.gram.device, "gram", "sums", "counts")
        strength = float(state.tensors["strength"])
        weights = ridge_weights(gram, sums, counts, strength) if len(counts) else sums
        self.gram, self.sums, self.counts, self.strength, self.weights = gram, sums, counts, strength, weights

    def _with_shots(self, projected: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gram matrix, class sums and counts with these shots added."""
        sums, counts = add_to_classes(self.sums, self.counts, projected, labels)
        return self.gram + projected.T @ projected, sums, counts

    def _choose_strength(self, projected: Tensor, labels: Tensor) -> float:
        """The strength that is best on the last shot of each class of the task, if the class has another to learn from."""
        classes, n_shots = labels.unique(return_counts=True)
        if int(n_shots.min()) < 2:
            return self.strength
        held = torch.zeros(len(labels), dtype=torch.bool, device=labels.device)
        held[[int((labels == label).nonzero()[-1]) for label in classes]] = True
        gram, sums, counts = self._with_shots(projected[~held], labels[~held])
        shots, answers = projected[held], labels[held]
        targets = one_hot(answers, len(counts)).double()

        def loss(strength: float) -> tuple[float, float]:
            scores = shots @ ridge_weights(gram, sums, counts, strength).T
            return float((scores.argmax(1) != answers).sum()), float((scores - targets).square().sum())

        return min(self.settings.strengths, key=loss)


def ridge_weights(gram: Tensor, sums: Tensor, counts: Tensor, strength: float) -> Tensor:
    """Weights (n_classes, n_projected) of the ridge regression to one-hot targets: (G + λI)⁻¹ S."""
    unit = float(gram.trace()) / (len(gram) * int(counts.sum()))  # does not grow with the number of shots
    penalised = gram.clone()
    penalised.diagonal().add_(strength * (unit or 1.0))  # without a unit every feature is zero, and so is the answer
    return torch.cholesky_solve(sums.T, torch.linalg.cholesky(penalised)).T.contiguous()


METHODS = (
    Method(
        "projection",
        RandomProjection,
        "Ridge regression on random projections of the frozen embedding (RanPAC-like).",
        "McDonnell et al. 2023",
    ),
)
