"""Lines along the stream: what most figures draw, and the same as rows for a file. Classes and tasks count from 1."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fscl.evaluation.metrics import Interval
from fscl.report.results import Results

Values = NDArray[np.float64]
Rows = list[list[str]]  # the first one is the heading


@dataclass(frozen=True)
class Line:
    """One method along the stream.

    Attributes:
        number: its place among the methods of the run.
        low, high: the ends of its band.
        half_width: of the 95 % interval, where the band is one; NaN elsewhere, and for a single sequence.
    """

    number: int
    method: str
    n_sequences: int
    mean: Values
    low: Values
    high: Values
    half_width: Values


def with_outcomes(results: Results) -> list[tuple[int, str]]:
    """The methods that have finished something, with their places among all."""
    return [(number, method) for number, method in enumerate(results.methods) if results.outcomes[method]]


def steps(results: Results) -> tuple[Values, str]:
    """Where the points stand: at the number of classes where each task brings new ones, else at the task."""
    stream = results.stream
    tasks = np.arange(1.0, stream.n_tasks + 1)
    if stream.interval == 1 and not stream.overwrite:
        return np.array(stream.classes_after, dtype=np.float64), "number of classes learned"
    return tasks, "number of tasks learned"


def interval_line(number: int, method: str, n_sequences: int, points: Sequence[Interval]) -> Line:
    """A line whose band is the 95 % interval at each point."""
    mean = np.array([point.mean for point in points])
    half = np.array([point.half_width for point in points])
    return Line(number, method, n_sequences, mean, mean - half, mean + half, half)


def to_csv(rows: Iterable[Sequence[object]]) -> str:
    """The text of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def number_text(value: float) -> str:
    """For a file; empty where nothing was measured."""
    return "" if math.isnan(value) else f"{value:.6f}"
