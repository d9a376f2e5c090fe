"""Every figure that the committed summaries hold, so that a test can say whether a figure in prose is one of them."""

from collections.abc import Iterator
from functools import cache
from itertools import permutations
from typing import Any

from docs.tools.reproduction import PAPER
from docs.tools.runs import summaries
from docs.tools.site import ROOT
from fscl.evaluation.metrics import mean_interval
from fscl.report.summary import Figure, MethodSummary
from fscl.storage import read_json

PHOTOGRAPHS = ROOT / "benchmarks" / "results"


@cache
def known_figures(run: str) -> frozenset[tuple[float, float | None]]:
    """Mean and half width of everything that the summary of a run has or that follows from it sequence by sequence."""
    summary = summaries()[run]
    found = [figure for method in summary.methods for figure in _of_method(method)]
    found += [figure for one, other in permutations(summary.methods, 2) for figure in _difference(one, other)]
    figures = {(figure.mean, figure.half_width) for figure in found}
    figures |= {(method.seconds_per_task, None) for method in summary.methods}
    theirs = [paper.figures for paper in PAPER if paper.run == run]
    return frozenset(figures | {(value, None) for rows in theirs for pair in rows.values() for value in pair})


def _of_method(method: MethodSummary) -> Iterator[Figure]:
    for by_number in (method.accuracy, method.minus_reference, method.minus_class_means, method.top5, method.along):
        yield from by_number.values()
    for by_side in (method.probes, method.probe_changes):
        for points in by_side.values():
            yield from points.values()
    yield from (figure for figure in (method.bwt, method.bwt_own_classes, method.average, method.drop) if figure)


def _difference(one: MethodSummary, other: MethodSummary) -> Iterator[Figure]:
    for n_classes in one.accuracy_by_sequence.keys() & other.accuracy_by_sequence.keys():
        if len(set(one.sequences) & set(other.sequences)) > 1:
            yield difference(one, other, n_classes)


def difference(one: MethodSummary, other: MethodSummary, n_classes: int) -> Figure:
    """The accuracy of one method minus that of another after so many classes, paired by sequence."""
    ours, theirs = (
        dict(zip(side.sequences, side.accuracy_by_sequence[n_classes], strict=True)) for side in (one, other)
    )
    return _figure([ours[number] - theirs[number] for number in ours if number in theirs])


def photograph_records() -> list[dict[str, Any]]:
    """What benchmarks/photographs.py measured, a record for each draw of a set."""
    paths = sorted(PHOTOGRAPHS.glob("photographs-*.json"))
    return [record for path in paths for record in read_json(path, "photographs benchmark")["records"]]


@cache
def photograph_figures() -> frozenset[tuple[float, float | None]]:
    """Of benchmarks/photographs.py: accuracy of each side over draws, and ours minus each of the others."""
    records, found = photograph_records(), set()
    for key in {(record["set"], record["shots"]) for record in records}:
        rows = [record["accuracy"] for record in records if (record["set"], record["shots"]) == key]
        for name in rows[0]:
            sides = [[100 * row[name] for row in rows], [100 * (row["ours"] - row[name]) for row in rows]]
            found |= {(figure.mean, figure.half_width) for figure in map(_figure, sides) if len(rows) > 1}
    return frozenset(found)


def _figure(values: list[float]) -> Figure:
    interval = mean_interval(values)
    return Figure(mean=interval.mean, half_width=interval.half_width)


def is_known(mean: str, half_width: str, known: frozenset[tuple[float, float | None]]) -> bool:
    """Whether a figure, as it is printed, is one of those known, rounded as it is."""
    digits = len(mean.partition(".")[2])
    value = abs(float(mean.replace("−", "-")))
    for found, half in known:
        # a figure that lies half-way between two roundings may be printed as either
        if abs(abs(found) - value) <= 0.5 * 10**-digits + 1e-9 and (
            not half_width or (half is not None and abs(half - float(half_width)) <= 0.5 * 10**-digits + 1e-9)
        ):
            return True
    return False
