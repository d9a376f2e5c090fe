"""How the values of measures are computed: `of(results, method)`, from accuracy matrices and costs of a run."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from fscl.data.stream import StreamSpec
from fscl.evaluation.metrics import (
    Interval,
    Matrix,
    average_accuracy,
    final_accuracy,
    forward_transfer,
    mean_interval,
    old_and_new,
    paired_difference,
    performance_drop,
    side_gap,
)
from fscl.report.probes import ProbePoint, probe_points
from fscl.report.results import Outcome, Results, typical_seconds

Percent = Callable[[Results, str], Interval]


def percent(metric: Callable[[Outcome, StreamSpec], float]) -> Percent:
    """100 × `metric` of each finished sequence: its mean and 95 % interval over sequences."""

    def of(results: Results, method: str) -> Interval:
        outcomes = results.outcomes[method].values()
        return mean_interval([100 * metric(outcome, results.stream) for outcome in outcomes])

    return of


def accuracy_after(R: Matrix, stream: StreamSpec, n_classes: int | None = None) -> float:
    """A_t after the last task, or as soon as all of the first `n_classes` classes were learned for the last time."""
    t = stream.n_tasks if n_classes is None else stream.n_tasks - stream.classes_after[::-1].index(n_classes)
    return final_accuracy(R[:t, :t], stream.task_sizes)


def accuracy_at(n_classes: int | None = None, *, top5: bool = False) -> Percent:
    """Accuracy over all classes after so many of them, or at the end."""
    return percent(lambda outcome, stream: accuracy_after(outcome.top5 if top5 else outcome.top1, stream, n_classes))


def accuracies_by_sequence(results: Results, method: str, n_classes: int | None = None) -> dict[int, float]:
    """The same in %, of each finished sequence by its number."""
    outcomes = results.outcomes[method]
    return {n: 100 * accuracy_after(outcomes[n].top1, results.stream, n_classes) for n in sorted(outcomes)}


average = percent(lambda outcome, stream: average_accuracy(outcome.top1, stream.task_sizes))
"""The mean of A_t over the stream."""

drop = percent(lambda outcome, stream: performance_drop(outcome.top1, stream.task_sizes))
"""What is lost from the base session to the end."""


def difference_at(n_classes: int | None = None) -> Callable[[Results, str], Interval | None]:
    """Accuracy minus the reference's on the sequences that both have; None where they share none."""

    def of(results: Results, method: str) -> Interval | None:
        if method == results.reference or results.reference not in results.outcomes:
            return None
        ours, theirs = (accuracies_by_sequence(results, name, n_classes) for name in (method, results.reference))
        shared = sorted(ours.keys() & theirs.keys())
        return paired_difference([ours[n] for n in shared], [theirs[n] for n in shared]) if shared else None

    return of


def seconds_per_task(results: Results, method: str) -> float:
    """Mean over tasks of the median over sequences; NaN where nothing is finished."""
    seconds = typical_seconds([outcome.learn_seconds for outcome in results.outcomes[method].values()])
    return float(np.mean(seconds)) if seconds else float("nan")


def milliseconds_per_image(results: Results, method: str) -> float:
    """To answer for one image: after each task, the queries of all classes so far are asked, once each."""
    n_asked = sum(results.stream.classes_after) * results.stream.n_query
    seconds = typical_seconds([outcome.predict_seconds for outcome in results.outcomes[method].values()])
    return 1000 * sum(seconds) / n_asked if seconds else float("nan")


def peak_memory(results: Results, method: str) -> int | None:
    """Bytes, the highest over sequences."""
    peaks = [outcome.peak_memory_bytes for outcome in results.outcomes[method].values()]
    return max(peaks, default=0) or None  # 0: not measured


def seconds_per_class(results: Results, method: str) -> float:
    """To learn a class, mean over the stream, of the median sequence."""
    seconds = typical_seconds([outcome.learn_seconds for outcome in results.outcomes[method].values()])
    return sum(seconds) / results.stream.n_classes


def multiply_adds(results: Results, method: str) -> float:
    """To learn a class, mean over the stream; NaN where they were not counted in all of the sequences."""
    counted = [outcome.multiply_adds for outcome in results.outcomes[method].values()]
    work = [sum(tasks) / results.stream.n_classes for tasks in counted if tasks is not None]
    return float(np.mean(work)) if len(work) == len(counted) else float("nan")


def _stored(results: Results, method: str) -> dict[str, int] | None:
    """Bytes kept at the end of the stream, by kind; of the sequence that keeps most."""
    stored = [outcome.stored_bytes for outcome in results.outcomes[method].values() if outcome.stored_bytes]
    return max(stored, key=lambda kinds: sum(kinds.values())) if stored else None


def stored_bytes_of(kind: str | None) -> Callable[[Results, str], int | None]:
    """What is kept at the end of the stream: of one kind, or in all."""

    def of(results: Results, method: str) -> int | None:
        stored = _stored(results, method)
        return None if stored is None else sum(stored.values()) if kind is None else stored.get(kind, 0)

    return of


def forward_transfer_of(outcome: Outcome, stream: StreamSpec) -> float:
    """Of one sequence; chance is guessing among the labels known so far."""
    groups = [1 if stream.overwrite else number // stream.interval + 1 for number in range(stream.n_tasks)]
    chances = [1 / (stream.n_way * known) for known in groups]  # just before a task whose classes are known
    return forward_transfer(outcome.before, chances[: len(outcome.before)])


def old_or_new(which: Literal["old", "new", "harmonic"]) -> Percent:
    """Accuracy on earlier tasks, on the newest, or their harmonic mean; averaged over the stream."""
    return percent(lambda outcome, stream: float(getattr(old_and_new(outcome.top1, stream.task_sizes), which)))


def gap_to_own_side(results: Results, method: str) -> Interval:
    """How much accuracy falls because the classes of other tasks are candidates, too."""
    return percent(lambda outcome, stream: side_gap(outcome.top1, outcome.restricted))(results, method)


def probed(
    side: str, after: int, value: Callable[[ProbePoint], Interval | None]
) -> Callable[[Results, str], Interval | None]:
    """A value of the probe on one side, after so many tasks."""

    def of(results: Results, method: str) -> Interval | None:
        return next(value(point) for point in probe_points(results, method, side) if point.after == after)

    return of


def probe_seconds(results: Results, method: str) -> float:
    """What probing took along a stream; what another method has probed already takes none."""
    return float(np.mean([outcome.probe_seconds for outcome in results.outcomes[method].values()]))
