"""Metrics as pure functions of the accuracy matrix.

`R[i, j]` is the accuracy on the queries of task j after learning task i, as a fraction; entries above the diagonal are not
measured (NaN). All tasks have equally many queries, so means over tasks, classes and images agree.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Matrix = NDArray[np.float64]


def accuracy_curve(R: Matrix) -> NDArray[np.float64]:
    """A_t for each t: mean accuracy over the tasks learned so far, right after task t."""
    return np.array([R[t, : t + 1].mean() for t in range(len(R))])


def final_accuracy(R: Matrix) -> float:
    """A_T: accuracy over all tasks after the last one."""
    return float(R[-1].mean())


def average_accuracy(R: Matrix) -> float:
    """Mean of A_t over the stream."""
    return float(accuracy_curve(R).mean())


def backward_transfer(R: Matrix) -> float:
    """How much later tasks changed earlier ones: mean over j < T of R[T, j] - R[j, j] (Lopez-Paz and Ranzato 2017).

    Divided by T - 1 as in that paper. In single-head evaluation this falls merely because there are more classes to confuse;
    the same function of a task-restricted matrix is free of that. NaN for a single task.
    """
    if len(R) < 2:
        return float("nan")
    return float((R[-1, :-1] - np.diag(R)[:-1]).mean())


def forgetting(R: Matrix) -> float:
    """Mean over j < T of the best accuracy task j ever had before the end, minus its last (Chaudhry et al. 2018)."""
    if len(R) < 2:
        return float("nan")
    best = np.array([R[j:-1, j].max() for j in range(len(R) - 1)])
    return float((best - R[-1, :-1]).mean())


@dataclass(frozen=True)
class Interval:
    """A mean and the half-width of its 95 % confidence interval; NaN half-width where there is one value only."""

    mean: float
    half_width: float
    n: int


def mean_interval(values: NDArray[np.float64] | list[float]) -> Interval:
    """Mean and 95 % Student-t interval over sequences."""
    array = np.asarray(values, dtype=np.float64)
    n = len(array)
    if n < 2:
        return Interval(float(array.mean()) if n else float("nan"), float("nan"), n)
    quantile = float(stdtrit(n - 1, 0.975))
    return Interval(float(array.mean()), quantile * float(array.std(ddof=1)) / n**0.5, n)


def paired_difference(values: list[float], reference: list[float]) -> Interval:
    """Mean and interval of value - reference, sequence by sequence: both must come from the same sequences."""
    return mean_interval([a - b for a, b in zip(values, reference, strict=True)])
