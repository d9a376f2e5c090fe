"""GeMCL: each class has its own mean and, in each dimension, its own variance, about which a prior knows something.

M. Banayeeanzade, R. Mirzaiezadeh, H. Hasani, M. Soleymani Baghshah, "Generative vs. Discriminative: Rethinking The
Meta-Continual Learning", 2021.

Shots only change the numbers of their own class, in whatever order they come, so nothing is forgotten. The score is the log
density of a Student t in each dimension (variance integrated out), or of a Gaussian with the most likely precision ("map").
The arithmetic is in `fscl/nets/student.py`; the base learner of the same name trains an embedding for it.

The prior (α, β) is that of the base: what the base learner `gemcl` has fitted (`extras` named "prior/alpha" and
"prior/beta"), or else the one with the mean and spread of the variances inside base classes, dimension by dimension (the
diagonal of `within`). A base that carries neither leaves it to the shots learned so far: to their variances inside classes;
where these show no spread, to the variances of all shots; and for a single shot α = 3, β = 2.

Departs from the paper: any base may be used, with the prior as above. That is fitted by moments, because a few dead
dimensions would decide about the most likely one. A class that returns goes on with its numbers.
"""

from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fscl.continual.frozen import ROUNDING, FrozenFeatures, add_to_classes, copied, exact, no_classes
from fscl.continual.learner import LearnerState, expect_keys, without_row
from fscl.continual.registry import Method
from fscl.device import exact_device
from fscl.errors import MisuseError
from fscl.nets.network import Network
from fscl.nets.student import ClassDensities, Prior, Score, class_densities, prior_by_moments

NAMES = ("sums", "counts", "squares")
Known = Literal["base"] | Annotated[float, Field(gt=0)]


class StudentClasses(FrozenFeatures):
    """A mean and a variance in each dimension for every class, with equal class priors."""

    class Settings(FrozenFeatures.Settings):
        """How variances enter, and what is known about them before the first shot.

        Attributes:
            score: "predictive" integrates the variance out; "map" takes the one of the most likely precision.
            alpha: of the inverse-gamma prior; "base" takes that of the base, as the module says.
            beta: likewise; numbers are given for both or for neither.
        """

        score: Score = "predictive"
        alpha: Known = "base"
        beta: Known = "base"

        @model_validator(mode="after")
        def _both_or_neither(self) -> Self:
            if (self.alpha == "base") != (self.beta == "base"):
                raise ValueError(
                    f"alpha and beta are numbers together or 'base' together, but they are {self.alpha!r} and {self.beta!r}"
                )
            return self

    settings: Settings

    def __init__(self, network: Network, settings: Settings, *, seed: int) -> None:
        super().__init__(network, settings, seed=seed)
        self.sums, self.counts = no_classes(network.n_features, torch.float64, exact_device(network.device))
        self.squares = self.sums
        self.known_prior = known_prior(network, settings)
        if self.known_prior is not None and settings.score == "map" and self.known_prior.alpha <= 0.5:
            raise MisuseError(
                f"score = 'map' needs a prior with alpha above 0.5, for a class of one shot, but alpha is "
                f"{self.known_prior.alpha:.3g}. Take score = 'predictive', or set alpha and beta."
            )
        self.densities: ClassDensities | None = None

    @property
    def n_classes(self) -> int:
        return len(self.counts)

    def learn_features(self, features: Tensor, labels: Tensor) -> None:
        doubles = exact(features)
        sums, counts = add_to_classes(self.sums, self.counts, doubles, labels)
        squares, _ = add_to_classes(self.squares, self.counts, doubles.square(), labels)
        self._hold(sums, counts, squares)

    def scores(self, features: Tensor) -> Tensor:
        assert self.densities is not None  # something was learned
        return self.densities.scores(exact(features)).to(features.dtype).to(features.device)

    def without_class(self, label: int) -> bool:
        self._hold(*(without_row(tensor, label) for tensor in (self.sums, self.counts, self.squares)))
        return True

    def diagnostics(self) -> dict[str, float]:
        prior = self._prior(self.sums, self.counts, self.squares)
        return {"prior_alpha": prior.alpha, "prior_beta": prior.beta}

    def state(self) -> LearnerState:
        return LearnerState({name: getattr(self, name).clone() for name in NAMES}, {})

    def restore(self, state: LearnerState) -> None:
        expect_keys(state.tensors, set(NAMES), "gemcl")
        self._hold(*copied(state, self.sums.device, *NAMES))

    def _hold(self, sums: Tensor, counts: Tensor, squares: Tensor) -> None:
        densities = None
        if len(counts):
            alpha, beta = (
                torch.tensor(value, dtype=sums.dtype).to(sums.device) for value in self._prior(sums, counts, squares)
            )
            scatter = class_scatter(sums, counts, squares)
            densities = class_densities(sums / counts[:, None], scatter, counts, alpha, beta, self.settings.score)
        self.sums, self.counts, self.squares, self.densities = sums, counts, squares, densities

    def _prior(self, sums: Tensor, counts: Tensor, squares: Tensor) -> Prior:
        return self.known_prior or prior_of_shots(sums, counts, squares)


def known_prior(network: Network, settings: StudentClasses.Settings) -> Prior | None:
    """The prior that is known before the first shot; None where the base tells nothing."""
    if settings.alpha != "base" and settings.beta != "base":
        return Prior(settings.alpha, settings.beta)
    extras = network.extras
    if "prior/alpha" in extras and "prior/beta" in extras:
        return Prior(float(extras["prior/alpha"]), float(extras["prior/beta"]))
    return prior_by_moments(extras["within"].diagonal()) if "within" in extras else None


def class_scatter(sums: Tensor, counts: Tensor, squares: Tensor) -> Tensor:
    """Σ (x − class mean)² of each class and dimension; exactly zero where rounding is all there is."""
    scatter = squares - sums.square() / counts[:, None]
    return torch.where(scatter > ROUNDING * squares, scatter, 0.0)


def prior_of_shots(sums: Tensor, counts: Tensor, squares: Tensor) -> Prior:
    """The prior by the variances inside classes; by those of all shots, where shots of a class do not differ."""
    n, inside = int(counts.sum()), class_scatter(sums, counts, squares).sum(0)
    if bool(inside.sum() > 0):
        return prior_by_moments(inside / (n - len(counts)))
    return prior_by_moments(class_scatter(sums.sum(0, keepdim=True), counts.sum()[None], squares.sum(0, keepdim=True)))


METHODS = (
    Method(
        "gemcl",
        StudentClasses,
        "A mean and a variance in each dimension for every class on the frozen embedding, with a prior from the base.",
        "Banayeeanzade et al. 2021",
    ),
)
