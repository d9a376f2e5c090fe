"""Metrics as pure functions of the accuracy matrix.

`R[i, j]` is the accuracy on the queries of task j after learning task i, as a fraction; entries above the diagonal are not
measured (NaN). All classes have equally many queries. Where all tasks have equally many classes too, means over tasks,
classes and images agree; where a base session has more, `sizes` (the classes of each task) makes A_t the mean over classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Matrix = NDArray[np.float64]
FEWEST_TO_CLAIM = 3  # sequences


def accuracy_curve(R: Matrix, sizes: Sequence[int] | None = None) -> NDArray[np.float64]:
    """A_t for each t: mean accuracy over the classes learned so far, right after task t.

    Examples:
        >>> accuracy_curve(np.array([[0.9, np.nan], [0.6, 0.8]])).tolist()
        [0.9, 0.7]

    Args:
        R: accuracy on task j (column) after task i (row), as fractions.
        sizes: classes of each task, if tasks differ in that.
    """
    return np.array([_mean(R[t, : t + 1], sizes) for t in range(len(R))])


def final_accuracy(R: Matrix, sizes: Sequence[int] | None = None) -> float:
    """A_T: accuracy over all classes after the last task.

    Examples:
        >>> final_accuracy(np.array([[0.9, np.nan], [0.6, 0.8]]))
        0.7

    Args:
        R: accuracy on task j (column) after task i (row), as fractions.
        sizes: classes of each task, if tasks differ in that.
    """
    return _mean(R[-1], sizes)


def average_accuracy(R: Matrix, sizes: Sequence[int] | None = None) -> float:
    """Mean of A_t over the stream."""
    return float(accuracy_curve(R, sizes).mean())


def performance_drop(R: Matrix, sizes: Sequence[int] | None = None) -> float:
    """A_1 - A_T: what is lost from the first task (the base session) to the last (Zhang et al. 2021)."""
    curve = accuracy_curve(R, sizes)
    return float(curve[0] - curve[-1])


def _mean(accuracies: NDArray[np.float64], sizes: Sequence[int] | None) -> float:
    weights = () if sizes is None else sizes[: len(accuracies)]
    return float(np.average(accuracies, weights=weights) if len(set(weights)) > 1 else accuracies.mean())


def backward_transfer(R: Matrix) -> float:
    """How much later tasks changed earlier ones: mean over j < T of R[T, j] - R[j, j] (Lopez-Paz and Ranzato 2017).

    Divided by T - 1 as in that paper. In single-head evaluation this falls merely because there are more classes to confuse;
    the same function of a task-restricted matrix is free of that. NaN for a single task.

    Examples:
        >>> round(backward_transfer(np.array([[0.9, np.nan], [0.6, 0.8]])), 3)
        -0.3

    Args:
        R: accuracy on task j (column) after task i (row), as fractions.
    """
    if len(R) < 2:
        return float("nan")
    return float((R[-1, :-1] - np.diag(R)[:-1]).mean())


def forgetting(R: Matrix) -> float:
    """Mean over j < T of the best accuracy task j ever had before the end, minus its last (Chaudhry et al. 2018).

    Examples:
        >>> round(forgetting(np.array([[0.9, np.nan], [0.6, 0.8]])), 3)
        0.3

    Args:
        R: accuracy on task j (column) after task i (row), as fractions.
    """
    if len(R) < 2:
        return float("nan")
    best = np.array([R[j:-1, j].max() for j in range(len(R) - 1)])
    return float((best - R[-1, :-1]).mean())


def backward_transfer_curve(R: Matrix) -> NDArray[np.float64]:
    """Backward transfer after each task: of the first t tasks alone. NaN for the first."""
    return np.array([backward_transfer(R[:t, :t]) for t in range(1, len(R) + 1)])


def forward_transfer(before: Sequence[float | None], chances: Sequence[float]) -> float:
    """How much better than chance a task is answered just before it is learned (Lopez-Paz and Ranzato 2017).

    `before[j]` is R[j - 1, j] and `chances[j]` what guessing among the labels known then would give. `before[j]` is None
    where the task brings classes that could not be answered yet. Where all do, as in a stream of new classes, there is
    nothing to measure (NaN), and a probe tells what earlier tasks are worth to later ones.
    """
    gains = [accuracy - chance for accuracy, chance in zip(before, chances, strict=True) if accuracy is not None]
    return float(np.mean(gains)) if gains else float("nan")


@dataclass(frozen=True)
class OldAndNew:
    """Accuracy on earlier tasks and on the newest one, and the harmonic mean of the two, which both must be good for."""

    old: float
    new: float
    harmonic: float


def old_and_new(R: Matrix, sizes: Sequence[int] | None = None) -> OldAndNew:
    """Right after each task from the second on, averaged over those moments; NaN for a single task."""
    if len(R) < 2:
        return OldAndNew(float("nan"), float("nan"), float("nan"))
    old = np.array([_mean(R[t, :t], sizes) for t in range(1, len(R))])
    new = np.diag(R)[1:]
    both = np.divide(2 * old * new, old + new, out=np.zeros_like(old), where=old + new > 0)
    return OldAndNew(float(old.mean()), float(new.mean()), float(both.mean()))


def side_gap(R: Matrix, restricted: Matrix) -> float:
    """After the last task, how much a task's accuracy falls because all classes are candidates and not its own alone.

    The mean over tasks of R - restricted, so that a base session and the new classes after it weigh the same, however many
    classes they have; zero or less. With two tasks it is the Δ of Ren et al. 2019.
    """
    return float((R[-1] - restricted[-1]).mean())


def class_accuracies(confusion: Matrix) -> NDArray[np.float64]:
    """The share of each class's images that is answered right, in order of arrival."""
    return np.asarray(np.diag(confusion) / np.maximum(confusion.sum(1), 1))


@dataclass(frozen=True)
class Interval:
    """A mean and the half-width of its 95 % confidence interval; NaN half-width where there is one value only."""

    mean: float
    half_width: float
    n: int

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference may be claimed: not from fewer than three values, two of which are easily equal by chance."""
        return self.n >= FEWEST_TO_CLAIM and abs(self.mean) > self.half_width

    @property
    def standard_error(self) -> float:
        """Of the mean; NaN where there is one value only."""
        return self.half_width / _quantile(self.n) if self.n > 1 else float("nan")


def mean_interval(values: NDArray[np.float64] | list[float]) -> Interval:
    """Mean and 95 % Student-t interval over sequences."""
    array = np.asarray(values, dtype=np.float64)
    n = len(array)
    if n < 2:
        return Interval(float(array.mean()) if n else float("nan"), float("nan"), n)
    return Interval(float(array.mean()), _quantile(n) * float(array.std(ddof=1)) / n**0.5, n)


def _quantile(n: int) -> float:
    """How many standard errors a 95 % interval over `n` values reaches to each side."""
    return float(stdtrit(n - 1, 0.975))


def paired_difference(values: list[float], reference: list[float]) -> Interval:
    """Mean and interval of value - reference, sequence by sequence: both must come from the same sequences."""
    return mean_interval([a - b for a, b in zip(values, reference, strict=True)])
