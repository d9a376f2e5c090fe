"""TEEN: the mean of a class of few shots is moved towards the means of base classes that it resembles.

Q.-W. Wang, D.-W. Zhou, Y.-K. Zhang, D.-C. Zhan, H.-J. Ye, "Few-Shot Class-Incremental Learning via Training-Free Prototype
Calibration", 2023.

With μ̂ for unit length, a class c gets (1 − a) μ̂_c + a Σ_b softmax_b(τ cos(μ_c, μ_b)) μ̂_b, over base classes b; the score is
the cosine to that. Nothing is trained. The base classes are those of the base (the extra `class_means`).

A first task that is a base session, as in few-shot class-incremental learning, has classes of many images, whose means need
no help: they stay as they are. Where the base carries no class means, those of the base session take their place. A learner
is not told what its stream is, so a first task with at least 30 examples a class is taken for a base session, unless
`base_session` says otherwise.

Departs from the paper: base classes need not be among the classes to tell apart. Where they are not, calibration draws new
classes together, and costs accuracy: it is meant for a base session and new classes together.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from fscl.continual.frozen import FrozenFeatures, add_to_classes, copied, exact, no_classes
from fscl.continual.learner import LearnerState, expect_keys, without_row
from fscl.continual.registry import Method
from fscl.data.stream import StreamSpec
from fscl.device import exact_device
from fscl.nets.network import Network

MANY_SHOTS = 30  # a class on average: what nobody calls few, and every published base session has
NAMES = ("sums", "counts", "n_base")


class CalibratedMeans(FrozenFeatures):
    """Class means by cosine, those of new classes calibrated."""

    class Settings(FrozenFeatures.Settings):
        """How far, and by which base classes, a mean is moved.

        Attributes:
            share: of the base classes in a calibrated mean (a).
            temperature: how much the most similar base classes count above the others (τ).
            base_session: whether the first task is a base session; "auto" if it has 30 examples a class.
        """

        share: float = Field(default=0.5, ge=0, le=1)
        temperature: float = Field(default=16.0, ge=0)
        base_session: Literal["auto", "yes", "no"] = "auto"

    settings: Settings

    def __init__(self, network: Network, settings: Settings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        if settings.base_session == "no":
            self._carried_means()
        self.sums, self.counts = no_classes(network.n_features, torch.float64, exact_device(network.device))
        self.n_base = self.counts.new_zeros(())
        self.directions = self.sums

    @property
    def n_classes(self) -> int:
        return len(self.counts)

    def check_stream(self, stream: StreamSpec) -> None:
        if stream.base_way == 0 and self.settings.base_session != "yes":
            self._carried_means()

    def learn_features(self, features: Tensor, labels: Tensor) -> None:
        sums, counts = add_to_classes(self.sums, self.counts, exact(features), labels)
        n_base = self.n_base
        if self.n_classes == 0 and self._is_base_session(counts):
            n_base = counts.new_tensor(len(counts))
        self._hold(sums, counts, n_base)

    def scores(self, features: Tensor) -> Tensor:
        return (normalize(exact(features)) @ self.directions.T).to(features.dtype).to(features.device)

    def without_class(self, label: int) -> bool:
        if "class_means" not in self.network.extras:
            return False  # a class of the base session is part of what others became
        n_base = self.n_base - (label < self.n_base).long()
        self._hold(without_row(self.sums, label), without_row(self.counts, label), n_base)
        return True

    def state(self) -> LearnerState:
        return LearnerState({name: getattr(self, name).clone() for name in NAMES}, {})

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, set(NAMES), "teen")
        self._hold(*copied(state, self.sums.device, *NAMES))

    def _is_base_session(self, counts: Tensor) -> bool:
        if self.settings.base_session == "auto":
            return float(counts.double().mean()) >= MANY_SHOTS
        return self.settings.base_session == "yes"

    def _carried_means(self) -> Tensor:
        why = "teen, unless the first task is a base session (base_session = 'yes'),"
        return exact(self.network.extra("class_means", why))

    def _hold(self, sums: Tensor, counts: Tensor, n_base: Tensor) -> None:
        means, n = sums / counts[:, None], int(n_base)
        if len(counts):
            has_own = n > 0 and "class_means" not in self.network.extras
            base_means = means[:n] if has_own else self._carried_means()
            new = calibrated(means[n:], base_means, self.settings.share, self.settings.temperature)
            directions = normalize(torch.cat([means[:n], new]))
        else:
            directions = sums
        self.sums, self.counts, self.n_base, self.directions = sums, counts, n_base, directions


def calibrated(means: Tensor, base_means: Tensor, share: float, temperature: float) -> Tensor:
    """Means (n, n_features) of unit length, each moved towards the base means that it resembles."""
    own, base = normalize(means), normalize(base_means)
    alike = (temperature * own @ base.T).softmax(1)
    return (1 - share) * own + share * alike @ base


METHODS = (
    Method(
        "teen",
        CalibratedMeans,
        "Class means by cosine on the frozen embedding, moved towards those of similar base classes (base statistics).",
        "Wang et al. 2023",
    ),
)
