"""What paired differences allow one to say, once it counts how many are asked at a time.

Two questions of each: is it different from zero (paired t-test), and is it *level*, that is, within a stated margin of zero
(two one-sided t-tests, Schuirmann 1987)? A difference that is not significant is not level for that. The more differences a
table has, the more of them look like something by chance, so the p values of a question are corrected together (Holm 1979).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.special import stdtr

from fscl.evaluation.metrics import FEWEST_TO_CLAIM, Interval

LEVEL_MARGIN = 0.5  # points of accuracy within which two methods are level, unless said otherwise
ALPHA = 0.05
Word = Literal["higher", "lower", "level", "undecided", "too few"]


@dataclass(frozen=True)
class Verdict:
    """What is said of one difference.

    Attributes:
        word: "higher" or "lower" than zero, "level" with it, "undecided", or "too few" values to say anything. Where a
            difference is both significant and within the margin, it is "level": what is that small does not matter.
        p: of the difference, on its own.
        corrected: the same among all that were asked with it.
        p_level: that it is within the margin, among all that were asked with it.
    """

    word: Word
    p: float
    corrected: float
    p_level: float

    @property
    def differs(self) -> bool:
        """Whether it is significant, be it ever so small."""
        return self.corrected < ALPHA


def verdicts(differences: Sequence[Interval | None], *, margin: float = LEVEL_MARGIN) -> list[Verdict | None]:
    """Of all differences that are asked together; None where there is none."""
    told = [difference for difference in differences if difference is not None and difference.n >= FEWEST_TO_CLAIM]
    single = [p_of_difference(difference) for difference in told]
    found = zip(told, single, holm(single), holm([p_of_level(each, margin) for each in told]), strict=True)
    judged = iter([_verdict(difference, p, corrected, level) for difference, p, corrected, level in found])
    few = Verdict("too few", math.nan, math.nan, math.nan)
    return [
        None if difference is None else next(judged) if difference.n >= FEWEST_TO_CLAIM else few
        for difference in differences
    ]


def _verdict(difference: Interval, p: float, corrected: float, p_level: float) -> Verdict:
    told: Word = "higher" if difference.mean > 0 else "lower"
    word: Word = "level" if p_level < ALPHA else told if corrected < ALPHA else "undecided"
    return Verdict(word, p, corrected, p_level)


def p_of_difference(difference: Interval) -> float:
    """Two-sided p value of a paired t-test; 1 for fewer than two values."""
    return min(1.0, 2 * _tail(abs(difference.mean), difference))


def p_of_level(difference: Interval, margin: float) -> float:
    """The larger p value of two one-sided t-tests: that the difference is above -margin, and that it is below margin."""
    return _tail(margin - abs(difference.mean), difference)


def _tail(distance: float, difference: Interval) -> float:
    """The chance that the mean errs by more than `distance`, on one side."""
    if difference.n < 2:
        return 1.0
    error = difference.standard_error
    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return float(stdtr(difference.n - 1, -distance / error))


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrected for being asked together: the smallest times how many there are, the next times one fewer, and so on.

    Examples:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    corrected, largest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected
