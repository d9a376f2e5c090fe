"""Paired differences that the table of a run does not have: to another of its methods, or to another run on the same
sequences, such as one of another preset or base."""

from dataclasses import dataclass, replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from fscl.errors import MisuseError, RunError, suggestion
from fscl.evaluation.metrics import Interval
from fscl.experiment.record import RunRecord
from fscl.report.results import Results, read_results
from fscl.report.table import show
from fscl.report.values import difference_at

Differences = tuple[Interval | None, ...]
"""At each moment; None where nothing is shared."""


@dataclass(frozen=True)
class Comparison:
    """What is subtracted from what, after how many classes, and what is left of each method, in points of accuracy."""

    title: str
    moments: tuple[int, ...]
    rows: dict[str, Differences]


def compare(record: RunRecord, other: str) -> Comparison:
    """A run against one of its own methods, by name, or against another run directory."""
    results = read_results(record)
    if other in results.methods:
        return against_method(results, other)
    if not Path(other).is_dir():
        near = suggestion(other, results.methods)
        raise MisuseError(
            f"{other!r} is neither a method of {record.folder} nor a run directory.{near} Its methods: "
            f"{', '.join(results.methods)}."
        )
    return against_run(results, read_results(RunRecord(Path(other))))


def against_method(results: Results, reference: str) -> Comparison:
    """Every other method minus `reference`, on the sequences that both have."""
    paired = replace(results, reference=reference)
    rows = {method: _differences(paired, method) for method in results.methods if method != reference}
    return Comparison(f"{results.name}: each method minus {reference}", _moments(results), rows)


def against_run(results: Results, other: Results) -> Comparison:
    """Every method that two runs share, here minus there, on the sequences that both have finished."""
    ours, theirs = (dict(enumerate(of.about["streams"])) for of in (results, other))
    same = {number for number, stream in ours.items() if theirs.get(number) == stream}
    methods = [method for method in results.methods if method in other.methods]
    if not same or not methods:
        raise RunError(
            f"{results.name} and {other.name} share no {'method' if same else 'sequence of tasks'}, so nothing can be "
            "paired; compare runs of the same data, stream and seed."
        )
    rows: dict[str, Differences] = {}
    for method in methods:
        there = {number: found for number, found in other.outcomes[method].items() if number in same}
        both = {"here": results.outcomes[method], "there": there}
        rows[method] = _differences(replace(results, methods=tuple(both), outcomes=both, reference="there"), "here")
    return Comparison(f"{results.name} minus {other.name}", _moments(results), rows)


def print_comparison(comparison: Comparison, console: Console) -> None:
    """A line for each method, in points."""
    body = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    body.add_column("method", overflow="fold")
    for heading in (*(f"A_{n}" for n in comparison.moments), "sequences"):
        body.add_column(Text(heading), justify="right", no_wrap=True)
    for method, found in comparison.rows.items():
        n_shared = max((interval.n for interval in found if interval is not None), default=0)
        body.add_row(Text(method), *(show(interval, signed=True, digits=2) for interval in found), str(n_shared))
    console.print(Text(f"{comparison.title}, sequence by sequence, in points."), soft_wrap=True)
    console.print(body, crop=False, no_wrap=True, overflow="ignore")
    console.print(Text("Mean ± 95 % interval over the sequences that both have finished."), soft_wrap=True)


def _moments(results: Results) -> tuple[int, ...]:
    return (*results.at_classes, results.stream.n_labels)


def _differences(results: Results, method: str) -> Differences:
    return tuple(difference_at(n_classes)(results, method) for n_classes in (*results.at_classes, None))
