"""The numbers of a run: one row a method, from the accuracy matrices in the run directory and nothing else.

An unfinished run has a table too: each method is summarised over the sequences it has, and differences are taken on the
sequences that both methods have.
"""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from fscl.data.stream import StreamSpec
from fscl.evaluation.metrics import (
    FEWEST_TO_CLAIM,
    Interval,
    Matrix,
    average_accuracy,
    backward_transfer,
    final_accuracy,
    forgetting,
    mean_interval,
    paired_difference,
    performance_drop,
)
from fscl.experiment.record import RunRecord
from fscl.report.results import Outcome, Results, read_results, typical_seconds
from fscl.storage import write_bytes

MOST_MOMENTS = 2  # of a text table, besides the end
ANSWERING = "ms/image"
WIDTH = 80  # columns that the text table needs at most
ACCURACY = "single-head top-1 accuracy over all classes learned, inductive prediction"


@dataclass(frozen=True)
class Row:
    """One method. Accuracies in %, the rest of the intervals in points of accuracy; NaN where nothing was measured.

    Attributes:
        final, final_top5, average: A_T, the same for top-5, and the mean of A_t over the stream.
        bwt, bwt_own: backward transfer, single-head and among the task's own classes.
        difference: final minus the reference's on shared sequences; None for the reference and where it is missing.
        drop: from the base session to the end, where there is one.
        early, early_difference, early_top5: as final, difference and final_top5, at each of the table's `at_classes`.
        learn_seconds: mean over tasks of the median over sequences; NaN where nothing is finished.
        answer_ms: milliseconds to answer for one image, likewise.
        peak_memory: bytes, the highest over sequences; None where it was not measured.
    """

    method: str
    n_sequences: int
    final: Interval
    final_top5: Interval
    average: Interval
    forgetting: Interval
    bwt: Interval
    bwt_own: Interval
    difference: Interval | None
    learn_seconds: float
    answer_ms: float
    peak_memory: int | None
    early: tuple[Interval, ...] = ()
    early_difference: tuple[Interval | None, ...] = ()
    early_top5: tuple[Interval, ...] = ()
    drop: Interval | None = None

    @property
    def differs(self) -> bool:
        """Whether the interval of the difference excludes zero."""
        return self.difference is not None and self.difference.excludes_zero


@dataclass(frozen=True)
class SummaryTable:
    """The rows of a run, in the order of its methods."""

    name: str
    stream: StreamSpec
    reference: str
    has_reference: bool
    n_sequences: int
    n_done: int
    n_cells: int
    rows: tuple[Row, ...]
    at_classes: tuple[int, ...] = ()

    @property
    def unfinished(self) -> bool:
        """Whether cells are missing."""
        return self.n_done < self.n_cells


def summary_table(record: RunRecord) -> SummaryTable:
    """The table of a run."""
    return summarise(read_results(record))


def summarise(results: Results) -> SummaryTable:
    """One row for each method."""
    has_reference = bool(results.outcomes.get(results.reference))
    return SummaryTable(
        name=results.name,
        stream=results.stream,
        reference=results.reference,
        has_reference=has_reference,
        n_sequences=results.n_sequences,
        n_done=results.n_done,
        n_cells=results.n_cells,
        rows=tuple(_row(results, method, has_reference) for method in results.methods),
        at_classes=_early(results),
    )


def show(interval: Interval | None, *, signed: bool = False, digits: int = 1) -> str:
    """ "91.2 ± 1.1"; a dash for what was not measured, and for the interval of a single sequence."""
    if interval is None or math.isnan(interval.mean):
        return "-"
    mean = f"{interval.mean:+z.{digits}f}" if signed else f"{interval.mean:z.{digits}f}"
    return f"{mean} ± -" if math.isnan(interval.half_width) else f"{mean} ± {interval.half_width:.{digits}f}"


def show_seconds(seconds: float) -> str:
    """Seconds with as many digits as they deserve."""
    if math.isnan(seconds):
        return "-"
    digits = 0 if seconds >= 100 else 1 if seconds >= 1 else 2 if seconds >= 0.1 else 3
    return f"{seconds:.{digits}f}"


def shape(stream: StreamSpec) -> str:
    """The sizes of a stream's tasks, in the words of the field."""
    base = f"a base session of {stream.base_way} classes, then " if stream.base_way else ""
    return f"{base}{stream.n_way}-way {stream.n_shot}-shot"


def what_intervals(table: SummaryTable) -> str:
    """What stands on both sides of ±."""
    if table.n_sequences == 1:
        return "One sequence, so there are no intervals"
    finished = "the n finished of " if table.unfinished else ""
    return f"Mean ± 95 % interval over {finished}{table.n_sequences} sequences"


def print_table(table: SummaryTable, console: Console) -> None:
    """The essential columns, for a terminal of 80 columns or a file. Cells are never shortened."""
    stream = table.stream
    tasks = "1 task" if stream.n_tasks == 1 else f"{stream.n_tasks} tasks"
    head = [f"{table.name}: {tasks}, {shape(stream)}"]
    if table.unfinished:
        head.append(f"Unfinished: {table.n_done} of {table.n_cells} cells finished.")
    head.append(f"A is {ACCURACY},")
    head.append(f"in %. {what_intervals(table)}.")
    columns = _columns(table)
    body = _body(table, columns)
    if Measurement.get(console, console.options.update(max_width=10 * WIDTH), body).maximum > WIDTH:
        body = _body(table, [column for column in columns if column[0] != ANSWERING])  # rather than a broken name
    if any(row.differs for row in table.rows):
        foot = f"* the 95 % interval of the paired difference to {table.reference} excludes zero."
    elif len(table.rows) == 1:
        foot = "One method: nothing to compare it with."
    elif table.has_reference and max((r.difference.n for r in table.rows if r.difference), default=0) < FEWEST_TO_CLAIM:
        foot = f"Fewer than {FEWEST_TO_CLAIM} sequences: no difference to {table.reference} is claimed."
    elif table.has_reference:
        foot = f"No 95 % interval of the paired difference to {table.reference} excludes zero."
    else:
        foot = f"No differences: the reference {table.reference} has no finished sequence here."
    body.width = Measurement.get(console, console.options.update(max_width=WIDTH), body).maximum
    console.print(Text("\n".join(head)), soft_wrap=True)
    console.print(body, crop=False, no_wrap=True, overflow="ignore")
    console.print(Text(foot), soft_wrap=True)


def _body(table: SummaryTable, columns: Sequence[tuple[str, Callable[[Row], str]]]) -> RichTable:
    body = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    body.add_column("method", overflow="fold")
    for heading, _ in columns:
        body.add_column(Text(heading), justify="right", no_wrap=True)
    for row in table.rows:
        body.add_row(Text(row.method), *(Text(cell(row)) for _, cell in columns))
    return body


def _columns(table: SummaryTable) -> list[tuple[str, Callable[[Row], str]]]:
    """What there is room for; the CSV file and the page have everything."""
    moments = table.at_classes if len(table.at_classes) <= MOST_MOMENTS else table.at_classes[:1]
    columns: list[tuple[str, Callable[[Row], str]]] = [
        (f"A_{n_classes}", partial(_show_early, place=place)) for place, n_classes in enumerate(moments)
    ]
    columns.append(("final A", lambda row: show(row.final)))
    if table.stream.base_way:
        columns += [("average A", lambda row: show(row.average)), ("drop", lambda row: show(row.drop))]
    elif table.has_reference:
        columns.append((f"minus {table.reference}", lambda row: _difference(table, row)))
    if not table.stream.base_way and not table.at_classes:  # there is no room for both
        columns.append(("forgetting", lambda row: show(row.forgetting)))
    columns.append(("s/task", lambda row: show_seconds(row.learn_seconds)))
    columns.append((ANSWERING, lambda row: show_seconds(row.answer_ms)))
    if table.unfinished:
        columns.append(("n", lambda row: str(row.n_sequences)))
    return columns


def write_csv(table: SummaryTable, path: Path) -> None:
    """Every number of the table as a file."""
    write_bytes(path, csv_text(table).encode())


def csv_text(table: SummaryTable) -> str:
    """Every number of the table; empty where nothing was measured."""
    intervals = [field.name for field in fields(Row) if field.name in _UNITS]
    header = ["method", "n_sequences"]
    for name in intervals:
        header += [f"{name}_{_UNITS[name]}", f"{name}_half_width"]
    header += [
        "difference_to",
        "difference_excludes_zero",
        "learn_seconds_per_task",
        "answer_ms_per_image",
        "peak_memory_bytes",
    ]
    if table.stream.base_way:
        header += ["drop_points", "drop_half_width"]
    for n_classes in table.at_classes:
        header += [f"A_{n_classes}_top1_percent", f"A_{n_classes}_half_width"]
        header += [f"A_{n_classes}_difference_points", f"A_{n_classes}_difference_half_width"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in table.rows:
        line: list[object] = [row.method, row.n_sequences]
        for name in intervals:
            interval: Interval | None = getattr(row, name)
            line += ["", ""] if interval is None else [_number(interval.mean), _number(interval.half_width)]
        compared = row.difference is not None and not math.isnan(row.difference.half_width)
        line += [
            "" if row.difference is None else table.reference,
            ("yes" if row.differs else "no") if compared else "",
        ]
        line += [_number(row.learn_seconds), _number(row.answer_ms), "" if row.peak_memory is None else row.peak_memory]
        if row.drop is not None:
            line += [_number(row.drop.mean), _number(row.drop.half_width)]
        for early, difference in zip(row.early, row.early_difference, strict=True):
            for found in (early, difference):
                line += ["", ""] if found is None else [_number(found.mean), _number(found.half_width)]
        writer.writerow(line)
    return text.getvalue()


_UNITS = {
    "final": "top1_percent",
    "final_top5": "percent",
    "average": "top1_percent",
    "forgetting": "points",
    "bwt": "points",
    "bwt_own": "classes_points",
    "difference": "points",
}


def _row(results: Results, method: str, has_reference: bool) -> Row:
    finished = results.outcomes[method]
    outcomes = list(finished.values())

    def over_sequences(metric: Callable[[Matrix], float], of: Callable[[Outcome], Matrix]) -> Interval:
        return mean_interval([100 * metric(of(outcome)) for outcome in outcomes])

    seconds = typical_seconds([outcome.learn_seconds for outcome in outcomes])
    compared = has_reference and method != results.reference
    reference = results.outcomes.get(results.reference, {})
    stream, sizes = results.stream, results.stream.task_sizes
    moments = [stream.n_tasks - stream.classes_after[::-1].index(n_classes) for n_classes in _early(results)]
    final, average = partial(final_accuracy, sizes=sizes), partial(average_accuracy, sizes=sizes)

    def at_moments(of: Callable[[Outcome], Matrix]) -> tuple[Interval, ...]:
        return tuple(over_sequences(partial(_after, sizes=sizes, n_tasks=t), of) for t in moments)

    return Row(
        method=method,
        n_sequences=len(outcomes),
        final=over_sequences(final, lambda outcome: outcome.top1),
        final_top5=over_sequences(final, lambda outcome: outcome.top5),
        average=over_sequences(average, lambda outcome: outcome.top1),
        forgetting=over_sequences(forgetting, lambda outcome: outcome.top1),
        bwt=over_sequences(backward_transfer, lambda outcome: outcome.top1),
        bwt_own=over_sequences(backward_transfer, lambda outcome: outcome.restricted),
        difference=_paired(finished, reference, sizes) if compared else None,
        learn_seconds=float(np.mean(seconds)) if seconds else float("nan"),
        answer_ms=_answer_ms(results.stream, outcomes),
        peak_memory=max((outcome.peak_memory_bytes for outcome in outcomes), default=0) or None,  # 0: not measured
        early=at_moments(lambda outcome: outcome.top1),
        early_difference=tuple(_paired(finished, reference, sizes, t) if compared else None for t in moments),
        early_top5=at_moments(lambda outcome: outcome.top5),
        drop=over_sequences(partial(performance_drop, sizes=sizes), lambda outcome: outcome.top1)
        if stream.base_way
        else None,
    )


def _answer_ms(stream: StreamSpec, outcomes: list[Outcome]) -> float:
    """After each task, the queries of all classes so far are asked, once each."""
    n_asked = sum(stream.classes_after) * stream.n_query
    seconds = typical_seconds([outcome.predict_seconds for outcome in outcomes])
    return 1000 * sum(seconds) / n_asked if outcomes else float("nan")


def _show_early(row: Row, place: int) -> str:
    return show(row.early[place])


def _early(results: Results) -> tuple[int, ...]:
    """The numbers of classes to show besides the end: those that the stream has at some time."""
    asked, stream = map(int, results.about["config"]["run"]["at_classes"]), results.stream
    return tuple(n for n in asked if n < stream.n_labels and n in stream.classes_after)


def _after(R: Matrix, sizes: Sequence[int], n_tasks: int) -> float:
    """A_t: the mean over the classes of the first tasks, right after the last of them."""
    return final_accuracy(R[:n_tasks, :n_tasks], sizes)


def _paired(
    finished: dict[int, Outcome], reference: dict[int, Outcome], sizes: Sequence[int], n_tasks: int | None = None
) -> Interval | None:
    """The difference at the end (or earlier) on the sequences that both have; None where they share none."""
    shared = sorted(finished.keys() & reference.keys())
    if not shared:
        return None
    values, others = (
        [100 * _after(of[number].top1, sizes, n_tasks or len(sizes)) for number in shared]
        for of in (finished, reference)
    )
    return paired_difference(values, others)


def _difference(table: SummaryTable, row: Row) -> str:
    if row.method == table.reference:
        return "reference  "
    return f"{show(row.difference, signed=True)} {'*' if row.differs else ' '}"


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"
