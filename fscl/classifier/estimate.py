"""How good a classifier is by its own stored examples, as people read it."""

from dataclasses import dataclass

from fscl.classifier.knowledge import Knowledge
from fscl.classifier.labels import Label


@dataclass(frozen=True)
class DoubtfulLabel:
    """A stored example whose label is probably wrong.

    Attributes:
        number: of the example, from 1, as `examples_` has it.
        label: the class that it was taught as.
        likelier: the class that it looks like.
        probability: that the label is wrong.
        source: where the example came from.
    """

    number: int
    label: Label
    likelier: Label
    probability: float
    source: str


@dataclass(frozen=True)
class Estimate:
    """What the stored examples say, each left out in turn.

    Attributes:
        accuracy: share of right answers; None where no class has two examples.
        interval: of the accuracy, at 95 %.
        n_left_out: how many examples were asked for.
        n_repeats: stored examples that show what another one shows; these count once.
        doubtful: examples whose label is probably wrong, the surest first.
    """

    accuracy: float | None
    interval: tuple[float, float] | None
    n_left_out: int
    n_repeats: int
    doubtful: tuple[DoubtfulLabel, ...]


def estimate_of(knowledge: Knowledge) -> Estimate:
    """The estimate that a state carries."""
    found, examples = knowledge.calibration, knowledge.examples
    own = [] if examples is None else examples.labels.tolist()
    doubtful = tuple(
        DoubtfulLabel(
            position + 1,
            knowledge.classes[own[position]],
            knowledge.classes[likelier],
            probability,
            knowledge.sources[position],
        )
        for position, likelier, probability in found.doubts
    )
    return Estimate(found.accuracy, found.interval, found.n_left_out, found.n_repeats, doubtful)
