"""A lesson learned on trial: who gains and who suffers, before it counts. Nothing is kept."""

from dataclasses import dataclass

from fscl.classifier.knowledge import Lesson
from fscl.classifier.labels import Label
from fscl.classifier.teacher import Snapshot, Teacher

NO_CHANGE = 1e-9


@dataclass(frozen=True)
class ClassChange:
    """One class and its estimated accuracy before and after; None where there is no estimate, or was no class."""

    label: Label
    before: float | None
    after: float | None
    new: bool

    @property
    def change(self) -> float:
        """After minus before; 0 where one of them is missing."""
        return 0.0 if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True)
class Trial:
    """What a lesson would do.

    Attributes:
        before, after: the estimated accuracy of all; None where there is no estimate.
        classes: each class afterwards, in the order of arrival.
    """

    before: float | None
    after: float | None
    classes: tuple[ClassChange, ...]

    @property
    def gains(self) -> tuple[ClassChange, ...]:
        """The known classes whose estimate rises, the most first."""
        return tuple(sorted((c for c in self.classes if c.change > NO_CHANGE), key=lambda c: -c.change))

    @property
    def suffers(self) -> tuple[ClassChange, ...]:
        """The known classes whose estimate falls, the most first."""
        return tuple(sorted((c for c in self.classes if c.change < -NO_CHANGE), key=lambda c: c.change))


def on_trial(teacher: Teacher, before: Snapshot, lesson: Lesson) -> Trial:
    """Learn a lesson on a copy, and compare."""
    was, now = before.knowledge, teacher.learned(before, lesson).knowledge
    earlier = was.class_accuracy
    return Trial(
        was.calibration.accuracy,
        now.calibration.accuracy,
        tuple(
            ClassChange(label, earlier.get(label), accuracy, label not in earlier)
            for label, accuracy in now.class_accuracy.items()
        ),
    )
