"""What the embedding learns by: a loss over the replayed shots, and the head that goes with it.

*Cross-entropy* of the head's scores is the paper's. It is fitted within a few dozen steps, five shots a class being so few,
and then teaches nothing. *Leave one out* asks each shot for its class by distance to the class means, its own mean taken
without it: a shot can never help itself, so the loss goes on measuring what a new image of the class would meet
(Snell, Swersky, Zemel 2017 for distances to means; the left-out form is that of cross-validation).
"""

from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.continual.parts import Part, as_section
from fscl.nets.params import Params, class_sums, linear


class CrossEntropy(Part):
    """The head is trained with the embedding, and after it.

    Attributes:
        head_start: new rows are "random", or every row starts from its class's "means".
        temperature: what divides squared distances where the head starts from means.
    """

    kind: Literal["cross_entropy"] = "cross_entropy"
    head_start: Literal["random", "means"] = "random"
    temperature: float = Field(default=1.0, gt=0)

    compares_images: ClassVar[bool] = False
    trains_head: ClassVar[bool] = True
    lone_shots: ClassVar[str] = "skip"  # every shot teaches

    def loss(self, features: Tensor, labels: Tensor, head: Params) -> Tensor:
        """Mean cross-entropy of the head's scores."""
        return cross_entropy(linear(head, features), labels)

    def starting_head(self, head: Params, features: Callable[[], Tensor], labels: Tensor) -> Params:
        """The head that a task starts with."""
        if self.head_start == "random":
            return head
        return head_of_means(head, features(), labels, self.temperature)


class LeaveOneOut(Part):
    """The embedding is trained by distances to class means, and the head is made of the means.

    Attributes:
        temperature: what divides squared distances.
        lone_shots: what a shot teaches that is the only one of its class: nothing ("skip"); or ("view") a second variation
            of it takes the place of its company, where shots are jittered or mirrored.
    """

    kind: Literal["leave_one_out"] = "leave_one_out"
    temperature: float = Field(default=1.0, gt=0)
    lone_shots: Literal["skip", "view"] = "skip"

    compares_images: ClassVar[bool] = True
    trains_head: ClassVar[bool] = False

    def loss(self, features: Tensor, labels: Tensor, head: Params) -> Tensor | None:
        """Mean cross-entropy over the shots that have company; None if there is no such shot."""
        return leave_one_out(features, labels, self.temperature)

    def starting_head(self, head: Params, features: Callable[[], Tensor], labels: Tensor) -> Params:
        """The head that a task starts with."""
        return head


AnyObjective = Annotated[
    Annotated[CrossEntropy | LeaveOneOut, Field(discriminator="kind")], BeforeValidator(as_section)
]


def leave_one_out(features: Tensor, labels: Tensor, temperature: float) -> Tensor | None:
    """Mean cross-entropy over the shots whose class has another one here; None if there is no such shot."""
    own = torch.unique(labels, return_inverse=True)[1]
    sums, counts = class_sums(features, own, int(own.max()) + 1)
    others = counts[own] - 1
    asked = others > 0
    if not bool(asked.any()):
        return None
    means = sums / counts[:, None]
    without = (sums[own] - features) / others.clamp_min(1)[:, None]
    scores = 2 * features @ means.T - means.square().sum(1)  # the shot's own square is the same for every class
    own_score = 2 * (features * without).sum(1) - without.square().sum(1)
    scores = scores.scatter(1, own[:, None], own_score[:, None])
    return cross_entropy(scores[asked] / temperature, own[asked])


def spread(features: Tensor, labels: Tensor) -> float:
    """The mean squared distance of features to their class's mean; 1 where there is none."""
    own = torch.unique(labels, return_inverse=True)[1]
    sums, counts = class_sums(features, own, int(own.max()) + 1)
    found = float((features - (sums / counts[:, None])[own]).square().sum(1).mean())
    return found if found > 0 else 1.0


def head_of_means(
    head: Mapping[str, Tensor],
    features: Tensor,
    labels: Tensor,
    temperature: float,
    evicted: Mapping[str, Tensor] | None = None,
) -> Params:
    """A linear head that scores by squared distance to the class means; classes without a shot keep their rows.

    Args:
        head: with a row for each class.
        features: of the shots at hand, with their `labels`.
        temperature: what divides squared distances.
        evicted: "sums" and "counts" of features, by class, of shots that are not here any more; they count as others.
    """
    sums, counts = class_sums(features.detach(), labels, len(head["bias"]))
    if evicted:
        sums, counts = sums + evicted["sums"], counts + evicted["counts"]
    known = counts > 0
    means = sums / counts.clamp_min(1)[:, None]
    return {
        "weight": torch.where(known[:, None], 2 * means / temperature, head["weight"].detach()),
        "bias": torch.where(known, -means.square().sum(1) / temperature, head["bias"].detach()),
    }
