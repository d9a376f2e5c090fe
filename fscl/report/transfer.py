"""The two sides of a method, and what they cost.

One side is what it keeps: accuracy over everything learned, old and new. The other is whether it goes on learning well: the
probe, fresh few-shot problems learned from where the method stood at that moment (evaluation/probe.py). Changes of the probe
along the stream are paired, since every moment meets the same problems.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fscl.evaluation.metrics import (
    Interval,
    backward_transfer_curve,
    class_accuracies,
    final_accuracy,
    forward_transfer,
    mean_interval,
    old_and_new,
)
from fscl.report.figure_data import Line, Rows, accuracy_rows, with_outcomes
from fscl.report.results import Outcome, Results, typical_seconds

SIDES = {"novel": "classes never seen", "base": "classes of meta-training"}
KINDS = ("weights", "memory", "importance")  # of what a learner keeps


@dataclass(frozen=True)
class ProbePoint:
    """After so many tasks: the probe's accuracy in %, and its change since the first point in points (None there).

    `single`: the intervals are over the problems of one sequence.
    """

    after: int
    accuracy: Interval
    change: Interval | None
    single: bool = False

    @property
    def changed(self) -> bool:
        """Whether the interval of the change excludes zero, over sequences."""
        return not self.single and self.change is not None and self.change.excludes_zero


@dataclass(frozen=True)
class TwoSides:
    """One method. Accuracies in %.

    Attributes:
        final: over all classes, after the last task.
        old, new, harmonic: on earlier tasks, on the newest, and their harmonic mean; averaged over the stream.
        forward: forward transfer in points; NaN where every task brings new classes.
        probes: by side, the points of the probe.
    """

    method: str
    final: Interval
    old: Interval
    new: Interval
    harmonic: Interval
    forward: Interval
    probes: dict[str, tuple[ProbePoint, ...]]


@dataclass(frozen=True)
class Cost:
    """What a method costs; NaN and None where it was not measured.

    Attributes:
        seconds_per_class, multiply_adds_per_class: to learn a class, mean over the stream; seconds of the median sequence.
        stored: bytes kept at the end of the stream, by kind; the largest over sequences.
        probe_seconds: what probing took along a stream; what another method has probed already takes none.
    """

    method: str
    seconds_per_class: float
    multiply_adds_per_class: float
    stored: dict[str, int] | None
    probe_seconds: float

    @property
    def stored_bytes(self) -> int | None:
        """All that is kept."""
        return None if self.stored is None else sum(self.stored.values())


def on_shared_sequences(results: Results) -> Results:
    """The same run, but only the sequences that every method has finished: what may be told side by side."""
    shared = set.intersection(*(set(found) for found in results.outcomes.values())) if results.outcomes else set()
    outcomes = {m: {n: o for n, o in found.items() if n in shared} for m, found in results.outcomes.items()}
    return replace(results, outcomes=outcomes)


def two_sides(results: Results) -> list[TwoSides]:
    """One row for each method that has finished something."""
    return [_two_sides(results, method) for _, method in with_outcomes(results)]


def _two_sides(results: Results, method: str) -> TwoSides:
    outcomes = list(results.outcomes[method].values())
    stream, sizes = results.stream, results.stream.task_sizes
    groups = [1 if stream.overwrite else number // stream.interval + 1 for number in range(stream.n_tasks)]
    chances = [1 / (stream.n_way * known) for known in groups]  # just before a task whose classes are known

    def over_sequences(measure: Callable[[Outcome], float]) -> Interval:
        return mean_interval([100 * measure(outcome) for outcome in outcomes])

    return TwoSides(
        method=method,
        final=over_sequences(lambda outcome: final_accuracy(outcome.top1, sizes)),
        old=over_sequences(lambda outcome: old_and_new(outcome.top1, sizes).old),
        new=over_sequences(lambda outcome: old_and_new(outcome.top1, sizes).new),
        harmonic=over_sequences(lambda outcome: old_and_new(outcome.top1, sizes).harmonic),
        forward=over_sequences(lambda outcome: forward_transfer(outcome.before, chances[: len(outcome.before)])),
        probes={side: probe_points(results, method, side) for side in probed_sides(results)},
    )


def probed_sides(results: Results) -> list[str]:
    """The sides that every finished outcome was probed on."""
    outcomes = [outcome for _, method in with_outcomes(results) for outcome in results.outcomes[method].values()]
    return [side for side in SIDES if outcomes and all(side in outcome.probes for outcome in outcomes)]


def probe_points(results: Results, method: str, side: str) -> tuple[ProbePoint, ...]:
    """The points of a probe in order of time; intervals are over sequences.

    Of a run of one sequence they are over its problems, and say nothing of other sequences: no change is claimed from them.
    """
    outcomes = list(results.outcomes[method].values())
    moments = sorted(outcomes[0].probes[side])
    found = np.array([[outcome.probes[side][after] for after in moments] for outcome in outcomes])
    single = results.n_sequences == 1
    shares = 100 * (found[0].T if single else found.mean(2))  # (sequences or problems, moments)
    return tuple(
        ProbePoint(
            after,
            mean_interval(shares[:, place]),
            mean_interval(shares[:, place] - shares[:, 0]) if place else None,
            single,
        )
        for place, after in enumerate(moments)
    )


def shown_moments(results: Results) -> list[int]:
    """Of the moments that were probed: the first, the middle one and the last, for a table."""
    after = [point.after for side in probed_sides(results)[:1] for point in two_sides(results)[0].probes[side]]
    return sorted({after[0], after[len(after) // 2], after[-1]}) if after else []


def costs(results: Results) -> list[Cost]:
    """One row for each method that has finished something."""
    n_classes = results.stream.n_classes
    return [_cost(method, list(results.outcomes[method].values()), n_classes) for _, method in with_outcomes(results)]


def _cost(method: str, outcomes: list[Outcome], n_classes: int) -> Cost:
    counted = [outcome.multiply_adds for outcome in outcomes]
    work = [sum(tasks) / n_classes for tasks in counted if tasks is not None]
    stored = [outcome.stored_bytes for outcome in outcomes if outcome.stored_bytes]
    return Cost(
        method=method,
        seconds_per_class=sum(typical_seconds([outcome.learn_seconds for outcome in outcomes])) / n_classes,
        multiply_adds_per_class=float(np.mean(work)) if len(work) == len(outcomes) else float("nan"),
        stored=max(stored, key=lambda kinds: sum(kinds.values())) if stored else None,
        probe_seconds=float(np.mean([outcome.probe_seconds for outcome in outcomes])),
    )


def probing_share(results: Results) -> float:
    """Seconds of probing for each second of learning, over the whole run; NaN where nothing was probed."""
    outcomes = [outcome for _, method in with_outcomes(results) for outcome in results.outcomes[method].values()]
    learning = sum(sum(outcome.learn_seconds) for outcome in outcomes)
    return sum(outcome.probe_seconds for outcome in outcomes) / learning if learning else float("nan")


def probe_lines(results: Results, side: str) -> tuple[NDArray[np.float64], list[Line]]:
    """Where the points stand (numbers of tasks), and a line for each method: the probe's accuracy in %."""
    lines = []
    moments: list[int] = []
    for number, method in with_outcomes(results):
        points = probe_points(results, method, side)
        moments = [point.after for point in points]
        lines.append(_line(number, method, len(results.outcomes[method]), [point.accuracy for point in points]))
    return np.array(moments, dtype=np.float64), lines


def backward_lines(results: Results) -> tuple[NDArray[np.float64], list[Line]]:
    """Numbers of tasks from the second on, and a line for each method: backward transfer among a task's own classes."""
    lines = []
    for number, method in with_outcomes(results):
        outcomes = list(results.outcomes[method].values())
        curves = np.array([100 * backward_transfer_curve(outcome.restricted)[1:] for outcome in outcomes])
        lines.append(_line(number, method, len(outcomes), [mean_interval(column) for column in curves.T]))
    return np.arange(2.0, results.stream.n_tasks + 1), lines


def _line(number: int, method: str, n_sequences: int, points: list[Interval]) -> Line:
    mean = np.array([point.mean for point in points])
    half = np.array([point.half_width for point in points])
    return Line(number, method, n_sequences, mean, mean - half, mean + half, half)


def two_sides_rows(results: Results) -> Rows:
    """The numbers of the figure of both sides: a row a point, with what it measures."""
    heading, *points = accuracy_rows(results)
    at = heading[1]
    rows = [["measure", "method", "at", "value", "half_width", "n_sequences"]]
    rows += [[f"accuracy_percent_by_{at}", *point] for point in points]
    return rows + _probe_rows(results, ["novel"])


def transfer_rows(results: Results) -> Rows:
    """The numbers of the figure of transfer: a row a point, with what it measures."""
    rows = [["measure", "method", "at", "value", "half_width", "n_sequences"]]
    moments, lines = backward_lines(results)
    rows += _point_rows("backward_transfer_points_by_n_tasks", moments, lines)
    return rows + _probe_rows(results, probed_sides(results))


def _probe_rows(results: Results, sides: list[str]) -> Rows:
    return [
        row for side in sides for row in _point_rows(f"probe_{side}_percent_by_n_tasks", *probe_lines(results, side))
    ]


def _point_rows(measure: str, moments: NDArray[np.float64], lines: list[Line]) -> Rows:
    return [
        [measure, line.method, f"{at:.0f}", _number(mean), _number(half), str(line.n_sequences)]
        for line in lines
        for at, mean, half in zip(moments, line.mean, line.half_width, strict=True)
    ]


def two_sides_table(results: Results) -> Rows:
    """Every number of the table of both sides, for a file."""
    moments = [point.after for side in probed_sides(results)[:1] for point in two_sides(results)[0].probes[side]]
    heading = ["method"]
    for name in ("final", "old", "new", "harmonic"):
        heading += [f"{name}_percent", f"{name}_half_width"]
    heading += ["forward_transfer_points", "forward_transfer_half_width"]
    for side in probed_sides(results):
        for after in moments:
            heading += [f"probe_{side}_after_{after}_percent", f"probe_{side}_after_{after}_half_width"]
            if after != moments[0]:
                heading += [f"probe_{side}_change_{after}_points", f"probe_{side}_change_{after}_half_width"]
    rows = [heading]
    for row in two_sides(results):
        found = [row.final, row.old, row.new, row.harmonic, row.forward]
        for points in row.probes.values():
            for point in points:
                found += [point.accuracy] if point.change is None else [point.accuracy, point.change]
        rows.append([row.method, *(text for each in found for text in (_number(each.mean), _number(each.half_width)))])
    return rows


def cost_table(results: Results) -> Rows:
    """Every number of the table of costs, for a file."""
    rows = [["method", "seconds_per_class", "multiply_adds_per_class", *(f"{kind}_bytes" for kind in KINDS)]]
    rows[0].append("probe_seconds_per_sequence")
    for row in costs(results):
        stored = ["" if row.stored is None else str(row.stored.get(kind, 0)) for kind in KINDS]
        numbers = [_number(row.seconds_per_class), _number(row.multiply_adds_per_class)]
        rows.append([row.method, *numbers, *stored, _number(row.probe_seconds)])
    return rows


def class_rows(results: Results) -> Rows:
    """Accuracy of each class after the last task, in order of arrival: a row for each method and class."""
    rows = [["method", "class", "accuracy_percent", "half_width", "n_sequences"]]
    for _, method in with_outcomes(results):
        outcomes = results.outcomes[method].values()
        shares = np.array([100 * class_accuracies(outcome.confusion) for outcome in outcomes])
        for place, interval in enumerate((mean_interval(column) for column in shares.T), start=1):
            found = [_number(interval.mean), _number(interval.half_width), str(interval.n)]
            rows.append([method, str(place), *found])
    return rows


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.6g}"
