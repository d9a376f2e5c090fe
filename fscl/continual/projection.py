"""Random projection: many random non-linear features, and a ridge regression that is solved anew after every task.

McDonnell, Gong, Parvaneh, Abbasnejad and van den Hengel 2023, "RanPAC: random projections and pre-trained models for
continual learning". The Gram matrix and the class sums of the projected features are all that a ridge regression needs,
and they add up over tasks, so that nothing is forgotten and no feature is kept.

Departs from the paper: the network is not adapted to the first task. 1,000 projected features instead of 10,000. The
ridge strength is in units of the mean square of a projected feature. It is chosen on one held-out shot of each class of
the newest task, told apart from all classes, with earlier tasks in the fit (the paper splits the newest task 80:20 and
fits it alone), by accuracy and then by squared error. A task with a class of one shot keeps the strength in force.
"""

import torch
from torch import Tensor
from torch.nn.functional import one_hot, relu

from fscl.continual.frozen import FrozenFeatures, add_to_classes, copied, exact, no_classes
from fscl.continual.learner import LearnerState, expect_keys
from fscl.device import exact_device
from fscl.nets.network import Network
from fscl.rng import generator

STRENGTHS = tuple(10.0**power for power in range(-3, 6))
FIRST_STRENGTH = 0.1  # until a task has shots to choose by: one shot a class is best told by interpolation


class RandomProjection(FrozenFeatures):
    """Ridge regression from randomly projected features to classes."""

    def __init__(self, network: Network, seed: int, *, n_projected: int = 1000) -> None:
        super().__init__(network)
        shape, random = (network.n_features, n_projected), generator(seed, "projection")
        drawn = torch.randn(shape, generator=random, dtype=torch.float64) / network.n_features**0.5
        self.projection = drawn.to(exact_device(network.device))
        self.sums, self.counts = no_classes(n_projected, torch.float64, self.projection.device)
        self.gram = self.sums.new_zeros(n_projected, n_projected)
        self.strength = FIRST_STRENGTH
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

    def score_features(self, features: Tensor) -> Tensor:
        return (self.project(features) @ self.weights.T).to(features.dtype).to(features.device)

    def project(self, features: Tensor) -> Tensor:
        """Projected features (n, n_projected), in double precision."""
        return relu(exact(features) @ self.projection)

    def diagnostics(self) -> dict[str, float]:
        return {"strength": self.strength}

    def state(self) -> LearnerState:
        tensors = {"gram": self.gram.clone(), "sums": self.sums.clone(), "counts": self.counts.clone()}
        strength = torch.tensor(self.strength, dtype=torch.float64)
        return LearnerState({**tensors, "strength": strength}, {"method": "projection"})

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

        return min(STRENGTHS, key=loss)


def ridge_weights(gram: Tensor, sums: Tensor, counts: Tensor, strength: float) -> Tensor:
    """Weights (n_classes, n_projected) of the ridge regression to one-hot targets: (G + λI)⁻¹ S."""
    unit = float(gram.trace()) / (len(gram) * int(counts.sum()))  # does not grow with the number of shots
    penalised = gram.clone()
    penalised.diagonal().add_(strength * (unit or 1.0))  # without a unit every feature is zero, and so is the answer
    return torch.cholesky_solve(sums.T, torch.linalg.cholesky(penalised)).T.contiguous()
