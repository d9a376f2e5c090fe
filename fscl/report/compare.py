"""Paired differences that the table of a run does not have: to another of its methods, or to another run on the same
sequences, such as one of another preset or base. What they allow one to say is judged for all of them together."""

from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from fscl.errors import MisuseError, RunError, suggestion
from fscl.evaluation.metrics import Interval, paired_difference
from fscl.evaluation.verdicts import LEVEL_MARGIN, Verdict, verdicts
from fscl.experiment.record import RunRecord
from fscl.report.results import PRELIMINARY_BELOW, Results, read_results
from fscl.report.summary import Summary, read_summary
from fscl.report.table import show
from fscl.report.values import accuracies_by_sequence

Accuracies = dict[int, dict[int, float]]
"""In %, by the number of classes learned, and then by sequence."""


@dataclass(frozen=True)
class Compared:
    """What is compared of a run, from its directory or from a summary of it.

    Attributes:
        streams: what tells its sequences from those of another run, one after another; empty where that is not known.
    """

    name: str
    methods: dict[str, Accuracies]
    streams: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """Of one method after so many classes, in points; the interval is None where nothing is shared."""

    method: str
    n_classes: int
    interval: Interval | None
    verdict: Verdict | None


@dataclass(frozen=True)
class Comparison:
    """What is subtracted from what, and what is left of each method."""

    title: str
    margin: float
    differences: tuple[Difference, ...]


def compare(source: Path, other: str, *, margin: float = LEVEL_MARGIN) -> Comparison:
    """A run directory or the summary of a run, against one of its own methods by name, or against another of either.

    Args:
        margin: points of accuracy within which two methods are called level.
    """
    found = read_compared(source)
    if other in found.methods:
        return against_method(found, other, margin)
    if not Path(other).exists():
        near = suggestion(other, found.methods)
        raise MisuseError(
            f"{other!r} is neither a method of {source} nor a run directory or summary.{near} Its methods: "
            f"{', '.join(found.methods)}."
        )
    return against_run(found, read_compared(Path(other)), margin)


def read_compared(source: Path) -> Compared:
    """From a run directory, or from a file that `fscl summary` wrote."""
    return _of_summary(source, read_summary(source)) if source.is_file() else of_run(read_results(RunRecord(source)))


def of_run(results: Results) -> Compared:
    """What is compared of a run directory."""
    moments = (*results.at_classes, results.stream.n_labels)
    methods = {
        method: {n: accuracies_by_sequence(results, method, n if n in results.at_classes else None) for n in moments}
        for method in results.methods
    }
    return Compared(results.name, methods, tuple(results.about["streams"]))


def _of_summary(source: Path, summary: Summary) -> Compared:
    if any(not method.sequences for method in summary.methods):
        raise MisuseError(
            f"{source} has no accuracy for each sequence, so nothing can be paired; write it anew: `fscl summary RUN FILE`."
        )
    methods = {
        method.method: {
            n: dict(zip(method.sequences, values, strict=True)) for n, values in method.accuracy_by_sequence.items()
        }
        for method in summary.methods
    }
    return Compared(summary.name, methods, tuple(summary.streams))


def against_method(found: Compared, reference: str, margin: float = LEVEL_MARGIN) -> Comparison:
    """Every other method minus `reference`, on the sequences that both have."""
    pairs = {m: (of, found.methods[reference]) for m, of in found.methods.items() if m != reference}
    return _comparison(f"{found.name}: each method minus {reference}", pairs, margin)


def against_run(found: Compared, other: Compared, margin: float = LEVEL_MARGIN) -> Comparison:
    """Every method that two runs share, here minus there, on the sequences that both have finished."""
    same = {number for number, (one, two) in enumerate(zip(found.streams, other.streams, strict=False)) if one == two}
    methods = [method for method in found.methods if method in other.methods]
    if not same or not methods:
        raise RunError(
            f"{found.name} and {other.name} share no {'method' if same else 'sequence of tasks'}, so nothing can be "
            "paired; compare runs of the same data, stream and seed."
        )
    pairs = {method: (found.methods[method], _only(other.methods[method], same)) for method in methods}
    return _comparison(f"{found.name} minus {other.name}", pairs, margin)


def _only(accuracies: Accuracies, sequences: set[int]) -> Accuracies:
    return {n: {number: a for number, a in found.items() if number in sequences} for n, found in accuracies.items()}


def _comparison(title: str, pairs: dict[str, tuple[Accuracies, Accuracies]], margin: float) -> Comparison:
    asked = [
        (method, n, _difference(ours[n], theirs.get(n, {}))) for method, (ours, theirs) in pairs.items() for n in ours
    ]
    told = verdicts([interval for _, _, interval in asked], margin=margin)
    return Comparison(
        title, margin, tuple(Difference(*each, verdict) for each, verdict in zip(asked, told, strict=True))
    )


def _difference(ours: dict[int, float], theirs: dict[int, float]) -> Interval | None:
    shared = sorted(ours.keys() & theirs.keys())
    return paired_difference([ours[n] for n in shared], [theirs[n] for n in shared]) if shared else None


def print_comparison(comparison: Comparison, console: Console) -> None:
    """A line for each difference, in points."""
    body = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    body.add_column("method", overflow="fold")
    for heading in ("classes", "difference", "p", "verdict", "n"):
        body.add_column(Text(heading), justify="right", no_wrap=True)
    for each in comparison.differences:
        n_shared = 0 if each.interval is None else each.interval.n
        words = "" if each.verdict is None else each.verdict.word
        p = "-" if each.verdict is None else p_text(each.verdict.corrected)
        shown = show(each.interval, signed=True, digits=2)
        body.add_row(Text(each.method), str(each.n_classes), shown, p, words, str(n_shared))
    shared = [each.interval.n for each in comparison.differences if each.interval is not None]
    console.print(Text(f"{comparison.title}, sequence by sequence, in points."), soft_wrap=True)
    console.print(body, crop=False, no_wrap=True, overflow="ignore")
    notes = [
        "Mean ± 95 % interval over the n sequences that both have finished. p: of a paired t-test, corrected for the "
        f"{len(shared)} differences asked (Holm). higher, lower: p < 0.05. level: within ± {comparison.margin:g} points "
        "by two one-sided tests, corrected likewise (--margin sets it). undecided: neither."
    ]
    if shared and min(shared) < PRELIMINARY_BELOW:
        notes.append(f"Preliminary: fewer than {PRELIMINARY_BELOW} sequences.")
    console.print(Text(" ".join(notes)), soft_wrap=True)


def p_text(value: float) -> str:
    """For people."""
    return "-" if value != value else "< 0.001" if value < 0.001 else f"{value:.3f}"
