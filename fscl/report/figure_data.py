"""What the figures show, as numbers: the lines that are drawn, and the same as rows for a file.

Classes and tasks count from 1.
"""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fscl.evaluation.metrics import accuracy_curve, mean_interval
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


def accuracy_lines(results: Results) -> list[Line]:
    """A_t in %, with 95 % intervals over sequences; the ends of the interval of a single sequence are NaN."""
    lines, stream_sizes = [], results.stream.task_sizes
    for number, method in with_outcomes(results):
        curves = np.array(
            [100 * accuracy_curve(outcome.top1, stream_sizes) for outcome in results.outcomes[method].values()]
        )
        points = [mean_interval(column) for column in curves.T]
        mean = np.array([point.mean for point in points])
        half = np.array([point.half_width for point in points])
        lines.append(Line(number, method, len(curves), mean, mean - half, mean + half, half))
    return lines


def seconds_lines(results: Results) -> list[Line]:
    """Seconds to learn each task: mean, fastest and slowest sequence; NaN where the clock was too coarse to tell."""
    lines = []
    for number, method in with_outcomes(results):
        seconds = np.array([outcome.learn_seconds for outcome in results.outcomes[method].values()])
        seconds = np.where(seconds > 0, seconds, np.nan)
        mean, no_interval = seconds.mean(0), np.full(seconds.shape[1], np.nan)
        lines.append(Line(number, method, len(seconds), mean, seconds.min(0), seconds.max(0), no_interval))
    return lines


def confusion_counts(results: Results, method: str) -> NDArray[np.int64]:
    """How many images of each class (rows) were called what (columns) after the last task, over all sequences."""
    counts = np.sum([outcome.confusion for outcome in results.outcomes[method].values()], axis=0)
    return np.asarray(counts, dtype=np.int64)


def accuracy_rows(results: Results) -> Rows:
    """One row for each point of the figure."""
    places, meaning = steps(results)
    x = "n_classes" if "classes" in meaning else "n_tasks"
    rows = [["method", x, "accuracy_percent", "half_width", "n_sequences"]]
    for line in accuracy_lines(results):
        for place, mean, half in zip(places, line.mean, line.half_width, strict=True):
            rows.append([line.method, f"{place:.0f}", _number(mean), _number(half), str(line.n_sequences)])
    return rows


def seconds_rows(results: Results) -> Rows:
    """One row for each point of the figure."""
    rows = [["method", "task", "mean_seconds", "fastest", "slowest", "n_sequences"]]
    for line in seconds_lines(results):
        for task, values in enumerate(zip(line.mean, line.low, line.high, strict=True), start=1):
            rows.append([line.method, str(task), *map(_number, values), str(line.n_sequences)])
    return rows


def confusion_rows(results: Results) -> Rows:
    """One row for each pair of classes that occurred, with the number of images of the true class (`of`)."""
    rows = [["method", "true_class", "answered_class", "count", "of"]]
    for _, method in with_outcomes(results):
        counts = confusion_counts(results, method)
        for true, answered in np.argwhere(counts):
            found = [true + 1, answered + 1, counts[true, answered], counts[true].sum()]
            rows.append([method, *map(str, found)])
    return rows


def to_csv(rows: Iterable[Sequence[object]]) -> str:
    """The text of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6f}"
