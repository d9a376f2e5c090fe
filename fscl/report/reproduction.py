"""What was reproduced of the paper's tables: a page made from the summaries of runs, and from nothing else.

A summary is a small JSON file: the figures of a run's table, what the run was, and no more. `fscl summary RUN FILE` writes
one; the page is made from all of them in a folder.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from fscl.errors import StorageError
from fscl.evaluation.metrics import Interval
from fscl.experiment.record import RunRecord
from fscl.report.results import read_results
from fscl.report.tables import Row, summarise
from fscl.storage import read_json, write_bytes, write_json

CLASS_MEANS = "prototypes"


class Figure(BaseModel):
    """A mean with its 95 % interval; None where there is one sequence only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mean: float
    half_width: float | None

    @property
    def excludes_zero(self) -> bool:
        return self.half_width is not None and abs(self.mean) > self.half_width

    def holds(self, value: float) -> bool:
        """Whether `value` lies within the interval."""
        return self.half_width is not None and abs(self.mean - value) <= self.half_width

    def show(self, *, signed: bool = False) -> str:
        mean = f"{self.mean:+.2f}" if signed else f"{self.mean:.2f}"
        return mean if self.half_width is None else f"{mean} ± {self.half_width:.2f}"


class MethodSummary(BaseModel):
    """One method: accuracy at each number of classes, and paired differences to joint training and to class means."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    n_sequences: int
    accuracy: dict[int, Figure]
    minus_reference: dict[int, Figure]
    minus_class_means: dict[int, Figure]
    seconds_per_task: float


class Summary(BaseModel):
    """One run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    preset: str
    base: str
    reference: str
    n_sequences: int
    versions: dict[str, str]
    methods: list[MethodSummary]


def summarise_run(folder: Path) -> Summary:
    """The figures of a run directory, finished or not."""
    results = read_results(RunRecord(folder))
    table = summarise(results)
    to_means: Mapping[str, Row] = {}
    if results.outcomes.get(CLASS_MEANS):
        to_means = {row.method: row for row in summarise(replace(results, reference=CLASS_MEANS)).rows}
    moments = [*table.at_classes, results.stream.n_labels]

    def differences(row: Row | None) -> dict[int, Figure]:
        found = [] if row is None else [*row.early_difference, row.difference]
        return {n: _figure(interval) for n, interval in zip(moments, found, strict=False) if interval is not None}

    methods = [
        MethodSummary(
            method=row.method,
            n_sequences=row.n_sequences,
            accuracy={n: _figure(interval) for n, interval in zip(moments, [*row.early, row.final], strict=True)},
            minus_reference=differences(row),
            minus_class_means=differences(to_means.get(row.method)),
            seconds_per_task=round(row.learn_seconds, 4),
        )
        for row in table.rows
        if row.n_sequences > 0
    ]
    config = results.about["config"]
    return Summary(
        name=results.name,
        preset=config["run"]["preset"],
        base=results.about["base"]["summary"],
        reference=results.reference,
        n_sequences=results.n_sequences,
        versions=results.about["versions"],
        methods=methods,
    )


def write_summary(folder: Path, path: Path) -> None:
    """Summarise a run directory into a file."""
    write_json(path, "summary", summarise_run(folder).model_dump(mode="json"))


def read_summary(path: Path) -> Summary:
    """What `write_summary` wrote."""
    try:
        return Summary.model_validate(read_json(path, "summary"))
    except ValidationError as error:
        raise StorageError(f"{path} is not a summary of a run: {error.errors()[0]['msg']}.") from error


@dataclass(frozen=True)
class PaperTable:
    """A table of the TSC paper: its figures at 30 and 50 classes, by our name of the method."""

    run: str
    title: str
    figures: Mapping[str, tuple[float, float]]


PAPER = (
    PaperTable(
        "omniglot-table2-maml",
        "Table 2: every method, MAML base",
        {
            "joint": (96.20, 94.97),
            "replay": (94.38, 92.13),
            "gr": (94.93, 93.49),
            "si": (94.97, 94.51),
            "ewc": (95.52, 93.95),
            "mas": (95.81, 94.47),
            "stc": (95.84, 95.06),
            "fsw": (96.44, 95.57),
            "tsc_paper": (96.67, 96.04),
            "tsc": (96.67, 96.04),
            "tsc_gr": (96.89, 96.63),
        },
    ),
    PaperTable("omniglot-table2-protonet", "The same methods, ProtoNet base", {}),
    PaperTable(
        "omniglot-bases-maml",
        "Table 3: MAML",
        {"joint": (96.20, 94.97), "replay": (94.38, 92.13), "tsc": (96.67, 96.04)},
    ),
    PaperTable(
        "omniglot-bases-mamlpp",
        "Table 3: MAML++",
        {"joint": (97.33, 95.67), "replay": (95.53, 93.26), "tsc": (97.78, 96.63)},
    ),
    PaperTable("omniglot-bases-protonet", "Table 3 with a ProtoNet base", {}),
    PaperTable("glyphs-to-omniglot", "A change of domain: base of invented characters, stream of Omniglot", {}),
    PaperTable("omniglot-ablation", "Table 4: β, k and the regulariser", {}),
    PaperTable("omniglot-generative", "Generative replay", {"gr": (94.93, 93.49), "tsc_gr": (96.89, 96.63)}),
)
MOMENTS = (30, 50)  # classes, at which the paper gives its figures
BEGIN, END = "<!-- tables: made by `fscl reproduction` -->", "<!-- end of tables -->"


def verdict(method: MethodSummary, reference: MethodSummary | None, figures: Mapping[str, tuple[float, float]]) -> str:
    """What the run says of the paper's row.

    *Reproduced*: the paper's figures lie within our intervals. *In order but not in value*: our paired difference to the
    reference has the paper's sign, and its interval excludes zero, at 30 and at 50 classes.
    """
    paper = figures.get(method.method)
    if paper is None:
        return ""
    if all(method.accuracy[n].holds(value) for n, value in zip(MOMENTS, paper, strict=True)):
        return "reproduced"
    if reference is None or method.method == reference.method or reference.method not in figures:
        return "not reproduced"
    theirs = [value - other for value, other in zip(paper, figures[reference.method], strict=True)]
    ours = [method.minus_reference[n] for n in MOMENTS]
    in_order = all(
        figure.excludes_zero and math.copysign(1, figure.mean) == math.copysign(1, difference)
        for figure, difference in zip(ours, theirs, strict=True)
    )
    return "in order but not in value" if in_order else "not reproduced"


def table_of(summary: Summary, figures: Mapping[str, tuple[float, float]], title: str) -> str:
    """One run as a section of the page."""
    known = {method.method: method for method in summary.methods}
    reference = known.get(summary.reference)
    moments = list(summary.methods[0].accuracy)
    n_done = min(method.n_sequences for method in summary.methods)
    sequences = f"{summary.n_sequences} sequences"
    if n_done < summary.n_sequences:
        sequences = f"unfinished: {n_done} of {sequences}"
    heading = ["method", *(f"A_{n}" for n in moments), *(f"A_{n} - {summary.reference}" for n in moments)]
    heading += [f"A_{n} - class means" for n in moments]
    heading.append("s/task")
    if figures:
        heading += ["paper", "verdict"]
    lines = [f"## {title}", ""]
    lines.append(f"`fscl run {_command(summary.name)}`, preset `{summary.preset}`, {sequences}. Base: {summary.base}.")
    lines += ["", "| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    for method in summary.methods:
        cells = [f"`{method.method}`", *(method.accuracy[n].show() for n in moments)]
        for differences in (method.minus_reference, method.minus_class_means):
            cells += [differences[n].show(signed=True) if n in differences else "" for n in moments]
        cells.append(f"{method.seconds_per_task:.3g}")
        if figures:
            paper = figures.get(method.method)
            cells += ["" if paper is None else " / ".join(f"{value:.2f}" for value in paper)]
            cells.append(verdict(method, reference, figures))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def reproduction_tables(folder: Path) -> str:
    """Every table for which `folder` has a summary, in the order of the paper."""
    found = {path.stem: read_summary(path) for path in sorted(folder.glob("*.json"))}
    parts = [table_of(found[paper.run], paper.figures, paper.title) for paper in PAPER if paper.run in found]
    return "\n".join(parts)


def replace_tables(text: str, tables: str) -> str:
    """The page with its tables replaced: all that stands between the two marks."""
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise StorageError(f"the page needs a line {BEGIN!r} and a line {END!r}, between which the tables go.")
    return f"{before}{BEGIN}\n\n{tables}\n{END}{after}"


def update_page(page: Path, results: Path) -> None:
    """Make the tables of the page again, from the summaries in `results`."""
    try:
        text = page.read_text("utf-8")
    except OSError as error:
        raise StorageError(f"cannot read the page {page}: {error.strerror}.") from error
    write_bytes(page, replace_tables(text, reproduction_tables(results)).encode())


def _command(name: str) -> str:
    for plan in ("omniglot-table2", "omniglot-bases"):
        if name.startswith(f"{plan}-"):
            return f"{plan} --part {name}"
    return name


def _figure(interval: Interval) -> Figure:
    half = None if math.isnan(interval.half_width) else round(interval.half_width, 4)
    return Figure(mean=round(interval.mean, 4), half_width=half)
