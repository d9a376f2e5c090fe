"""What was reproduced of the paper's tables: a page made from the summaries of runs, and from nothing else.

A summary is a small JSON file: the figures of a run's table, what the run was, and no more. `fscl summary RUN FILE` writes
one; the page is made from all of them in a folder.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from fscl.errors import StorageError
from fscl.evaluation.metrics import Interval
from fscl.experiment.record import Cell, RunRecord
from fscl.report.page import run_command
from fscl.report.results import read_results
from fscl.report.tables import Row, summarise
from fscl.storage import read_json, write_bytes, write_json

CLASS_MEANS = "prototypes"
OURS = "tsc"  # the paper's ideas, but not its method


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
    """One method: accuracy at each number of classes, paired differences to the reference and to class means, and cost.

    `embedding_steps` is for how many steps the embedding moved, mean over tasks; None where it never can.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    n_sequences: int
    accuracy: dict[int, Figure]
    minus_reference: dict[int, Figure]
    minus_class_means: dict[int, Figure]
    embedding_steps: float | None
    seconds_per_task: float
    ms_per_image: float


class Summary(BaseModel):
    """One run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    command: str
    split: str
    preset: str
    base: str
    reference: str
    n_sequences: int
    versions: dict[str, str]
    methods: list[MethodSummary]


def summarise_run(folder: Path) -> Summary:
    """The figures of a run directory, finished or not."""
    results = read_results(RunRecord(folder))
    config, cells = results.about["config"], RunRecord(folder).cells()
    command = run_command(config, None)
    if command is None:
        raise StorageError(
            f"{folder} is no run of a configuration that comes with fscl, so no command can make it again."
        )
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
            embedding_steps=_mean_steps(cells, row.method),
            seconds_per_task=round(row.learn_seconds, 4),
            ms_per_image=round(row.answer_ms, 4),
        )
        for row in table.rows
        if row.n_sequences > 0
    ]
    return Summary(
        name=results.name,
        command=command,
        split=config["run"]["split"],
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
    """A table of the TSC paper: its figures at 30 and 50 classes, by our name of the method.

    Rows are judged only where the base is the paper's, and the method too: `tsc` is ours.
    """

    run: str
    title: str
    figures: Mapping[str, tuple[float, float]]
    judged: bool = True


MAML_FIGURES = {
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
}
MAMLPP_FIGURES = {"joint": (97.33, 95.67), "replay": (95.53, 93.26), "tsc": (97.78, 96.63)}
PAPER = (
    PaperTable("omniglot-table2-maml", "Table 2: every method, MAML base", MAML_FIGURES),
    PaperTable(
        "omniglot-table2-protonet", "Table 2 with a ProtoNet base (the paper's is MAML)", MAML_FIGURES, judged=False
    ),
    PaperTable("omniglot-generative", "Table 2: generative replay, MAML base", MAML_FIGURES),
    PaperTable("omniglot-bases-maml", "Table 3: MAML base", MAML_FIGURES),
    PaperTable("omniglot-bases-mamlpp", "Table 3: MAML++ base", MAMLPP_FIGURES),
    PaperTable(
        "omniglot-bases-protonet", "Table 3 with a ProtoNet base (the paper's is MAML)", MAML_FIGURES, judged=False
    ),
    PaperTable("omniglot-ablation", "Table 4: β, k and the regulariser; then tsc, part by part", {}),
    PaperTable("omniglot-agreement-quick", "The preset quick", MAML_FIGURES, judged=False),
    PaperTable("omniglot-agreement-paper", "The same sequences with all 500 steps (preset paper)", MAML_FIGURES),
    PaperTable("glyphs-to-omniglot", "A change of domain: a base of invented characters, a stream of Omniglot", {}),
)
MOMENTS = (30, 50)  # classes, at which the paper gives its figures
BEGIN, END = "<!-- tables: made by `fscl reproduction` -->", "<!-- end of tables -->"


def verdict(method: MethodSummary, reference: MethodSummary | None, figures: Mapping[str, tuple[float, float]]) -> str:
    """What the run says of the paper's row.

    *Reproduced*: the paper's figures lie within our intervals. *In order but not in value*: our paired difference to the
    reference has the paper's sign, and its interval excludes zero, at 30 and at 50 classes.
    """
    paper = figures.get(method.method)
    if paper is None or method.method == OURS or any(n not in method.accuracy for n in MOMENTS):
        return ""
    if all(method.accuracy[n].holds(value) for n, value in zip(MOMENTS, paper, strict=True)):
        return "reproduced"
    if reference is None or method.method == reference.method or reference.method not in figures:
        return "not reproduced"
    theirs = [value - other for value, other in zip(paper, figures[reference.method], strict=True)]
    ours = [method.minus_reference[n] for n in MOMENTS if n in method.minus_reference]
    in_order = len(ours) == len(MOMENTS) and all(
        figure.excludes_zero and math.copysign(1, figure.mean) == math.copysign(1, difference)
        for figure, difference in zip(ours, theirs, strict=False)
    )
    return "in order but not in value" if in_order else "not reproduced"


def table_of(summary: Summary, paper: PaperTable) -> str:
    """One run as a section of the page."""
    figures, title = paper.figures, paper.title
    if not summary.methods:
        return f"## {title}\n\nNothing is finished yet.\n"
    known = {method.method: method for method in summary.methods}
    reference = known.get(summary.reference)
    moments = list(summary.methods[0].accuracy)
    n_done = min(method.n_sequences for method in summary.methods)
    sequences = f"{summary.n_sequences} sequences"
    if n_done < summary.n_sequences:
        sequences = f"unfinished: {n_done} of {sequences}"
    heading = ["method", *(f"A_{n}" for n in moments), *(f"A_{n} - {summary.reference}" for n in moments)]
    heading += [f"A_{n} - class means" for n in moments]
    heading += ["embedding steps", "s/task", "ms/image"]
    if figures:
        heading += ["paper", "verdict"] if paper.judged else ["paper"]
    lines = [f"## {title}", ""]
    lines.append(
        f"`{summary.command}`, {summary.split} classes, preset `{summary.preset}`, {sequences}. Base: {summary.base}."
    )
    lines += ["", "| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    for method in summary.methods:
        cells = [f"`{method.method}`", *(method.accuracy[n].show() for n in moments)]
        for differences in (method.minus_reference, method.minus_class_means):
            cells += [differences[n].show(signed=True) if n in differences else "" for n in moments]
        cells.append("" if method.embedding_steps is None else f"{method.embedding_steps:.1f}")
        cells += [f"{method.seconds_per_task:.3g}", f"{method.ms_per_image:.2g}"]
        if figures:
            theirs = figures.get(method.method)
            cells.append("" if theirs is None else " / ".join(f"{value:.2f}" for value in theirs))
            cells += [verdict(method, reference, figures)] if paper.judged else []
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def reproduction_tables(folder: Path) -> str:
    """A table for each summary in `folder`, in the order of the paper."""
    found = {summary.name: summary for summary in map(read_summary, sorted(folder.glob("*.json")))}
    unknown = sorted(found.keys() - {paper.run for paper in PAPER})
    if unknown:
        raise StorageError(f"{folder} has a summary of {unknown[0]}, for which the page has no place.")
    return "\n".join(table_of(found[paper.run], paper) for paper in PAPER if paper.run in found)


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


def _mean_steps(cells: Mapping[Cell, Mapping[str, Any]], method: str) -> float | None:
    told = [task for cell, entry in cells.items() if cell.method == method for task in entry["result"]["diagnostics"]]
    steps = [float(task["embedding_steps"]) for task in told if "embedding_steps" in task]
    return round(sum(steps) / len(steps), 2) if steps else None


def _figure(interval: Interval) -> Figure:
    half = None if math.isnan(interval.half_width) else round(interval.half_width, 4)
    return Figure(mean=round(interval.mean, 4), half_width=half)
