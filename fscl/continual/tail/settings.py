"""The settings of two-step consolidation on a tail."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field

from fscl.continual.heads import AnyHead, Blend, LinearDiscriminant, Rooted
from fscl.continual.learner import ContinualLearner
from fscl.continual.memory import AllShots, BoundedShots
from fscl.continual.parts import as_section
from fscl.continual.regularisers import Constant, Tagging, Unregularised

Rate = Annotated[float, Field(gt=0, le=1)]
ShotMemory = Annotated[Annotated[AllShots | BoundedShots, Field(discriminator="kind")], BeforeValidator(as_section)]
# what measures importance after a task (ewc, si, mas) would need a trained head, and there is none here
TailRegulariser = Annotated[
    Annotated[Unregularised | Constant | Tagging, Field(discriminator="kind")], BeforeValidator(as_section)
]
PICTURES_PER_BUDGET = 25  # new pictures that the default time of a lesson is meant for
LARGEST_LESSON = 4  # times that a lesson of many pictures may take


class TailSettings(ContinualLearner.Settings):
    """The settings of `tsc_tail`; the paper's symbol stands behind some.

    Attributes:
        depth: how many of the network's first stages stand still; "auto" moves about the last four tenths.
        seconds_per_lesson: what moving the tail may take on one core, by a count of multiply-adds, so that results do not
            depend on the clock. "auto" is 15 seconds for 25 pictures since the last
            time, and at most 60: the tails learn once enough pictures have come.
        steps: steps of each tail a lesson at most; as many as there is time for.
        learning_rate, betas: of Adam, fresh for each lesson.
        slow_rates: β, how far the slow weights may follow, from the base's towards what was learned: one of these, or not
            at all.
        confidence: the gain on left-out shots that a move must show, in standard errors.
        views: crops of a picture that are kept to learn from.
        mirror: whether they are mirrored at random; not for letters.
        classes_per_step, shots_per_step: what a step compares.
        temperature: of the leave-one-out loss, as a share of the mean squared distance to the class mean.
        regulariser: what holds each tail to where it was: tags.
        heads: what may answer: the first, unless left-out shots show that another is better by more than chance.
        memory: the shots that are kept.
    """

    depth: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    seconds_per_lesson: Annotated[float, Field(ge=0)] | Literal["auto"] = "auto"
    steps: int = Field(default=40, ge=0)
    learning_rate: float = Field(default=2e-4, gt=0)
    betas: tuple[float, float] = (0.9, 0.999)
    slow_rates: tuple[Rate, ...] = (0.25, 0.5, 1.0)
    confidence: float = Field(default=0.5, ge=0)
    views: int = Field(default=4, ge=1, le=16)
    mirror: bool = False
    classes_per_step: int = Field(default=10, ge=2)
    shots_per_step: int = Field(default=5, ge=2)
    temperature: float = Field(default=0.25, gt=0)
    regulariser: TailRegulariser = Unregularised()
    heads: tuple[AnyHead, ...] = (
        Rooted(),
        Rooted(head=LinearDiscriminant()),
        Blend(),
    )
    memory: ShotMemory = AllShots()

    def seconds_for(self, n_new: int) -> float:
        """How long a lesson may take when so many pictures have come since the tails last learned."""
        if self.seconds_per_lesson != "auto":
            return self.seconds_per_lesson
        return 15.0 * min(n_new / PICTURES_PER_BUDGET, LARGEST_LESSON)

    def for_classifier(self, *, n_new: int, memory_bytes: int | None) -> Self:
        """Within a bound on the stored pictures."""
        if memory_bytes is None:
            return self
        return self.model_copy(update={"memory": self.memory.within(memory_bytes)})
