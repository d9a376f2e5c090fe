"""Heads on frozen features: the features of every shot are kept, and a head is fitted to all of them after each task.

What people do with a pretrained network: ridge regression (Hoerl, Kennard 1970), multinomial logistic regression (Cox
1958), linear discriminant analysis (Fisher 1936) or its probabilistic form (Ioffe 2006). Nothing is forgotten, because
every fit sees all shots. Features are kept, but no image.

Departs from the papers: features are centred, and divided by one number. The strength of ridge regression and the shrinkage
of the discriminants are chosen by leaving out shots. The covariances are those of base classes where the base carries them.
"""

import torch
from torch import Tensor

from fscl.continual.frozen import KeptFeatures
from fscl.continual.heads import AnyHead, Ridge
from fscl.continual.held_out import HeldOut, with_company
from fscl.continual.learner import n_bytes
from fscl.continual.registry import Method
from fscl.nets.network import Network
from fscl.nets.params import Params, placed


class FrozenHead(KeptFeatures):
    """A head that is fitted anew to the features of all shots after each task."""

    class Settings(KeptFeatures.Settings):
        """Which head.

        Attributes:
            head: its kind, with its own settings (`fscl.continual.heads`).
        """

        head: AnyHead = Ridge()

    settings: Settings

    def __init__(self, network: Network, settings: Settings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        self.fitted: Params = {}

    def fit(self, known: Tensor, labels: Tensor, n_classes: int) -> None:
        fitted: Params = {}
        if n_classes:
            fitted = self.settings.head.fit(known.cpu(), labels.cpu(), n_classes, self._extras())
        self.fitted = placed(fitted, self.network.device)

    def without_class(self, label: int) -> bool:
        return False  # the scores of all classes depend on the examples of each

    def fitted_bytes(self) -> int:
        return n_bytes(self.fitted.values())

    def scores(self, features: Tensor) -> Tensor:
        return self.settings.head.scores(self.fitted, features)

    def held_out_scores(self, features: Tensor, base_features: Tensor, labels: Tensor) -> HeldOut | None:
        """Fitted again without one example of every class at a time; None where a class has no example to fit it from.

        Not without one example alone: its class would have fewer than the others, and the estimate would be too low.
        """
        if set(labels.tolist()) != set(range(self.n_classes)):
            return None
        own = labels.cpu()
        scores = self.settings.head.in_folds(features.cpu(), own, self.n_classes, self._extras())
        several = torch.where(with_company(own, self.n_classes))[0]
        return HeldOut(scores[several], own[several], several)

    def _extras(self) -> Params:
        return placed(self.network.extras, torch.device("cpu"))


METHODS = (
    Method(
        "ridge",
        FrozenHead,
        "Ridge regression on the frozen embedding, its strength chosen by leaving one out.",
        "Hoerl, Kennard 1970; Allen 1974",
        {"head": {"kind": "ridge"}},
    ),
    Method(
        "logistic",
        FrozenHead,
        "Multinomial logistic regression on the frozen embedding.",
        "Cox 1958",
        {"head": {"kind": "logistic"}},
    ),
    Method(
        "lda",
        FrozenHead,
        "Linear discriminant on the frozen embedding, its shrinkage chosen by leaving one out.",
        "Fisher 1936; Chen et al. 2010",
        {"head": {"kind": "discriminant"}},
    ),
    Method(
        "plda",
        FrozenHead,
        "Probabilistic linear discriminant on the frozen embedding, the means of classes integrated out.",
        "Ioffe 2006",
        {"head": {"kind": "plda"}},
    ),
)
