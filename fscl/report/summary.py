"""The figures of a run in one small JSON file: those of its table, what the run was, and no more."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from fscl.errors import StorageError
from fscl.evaluation.metrics import Interval, Matrix, accuracy_curve, backward_transfer, mean_interval
from fscl.experiment.plan import Cell
from fscl.experiment.record import RunRecord
from fscl.report.commands import run_command
from fscl.report.probes import probe_points, probed_sides, probes_in_words
from fscl.report.results import Outcome, Results, read_results
from fscl.report.values import (
    accuracies_by_sequence,
    accuracy_at,
    average,
    difference_at,
    drop,
    gap_to_own_side,
    milliseconds_per_image,
    old_or_new,
    percent,
    seconds_per_task,
)
from fscl.storage import read_json, write_json

CLASS_MEANS = "prototypes"  # `minus_class_means` is for docs/tools, whose page compares every method with class means


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
        mean = f"{self.mean:+z.2f}" if signed else f"{self.mean:z.2f}"
        return mean if self.half_width is None else f"{mean} ± {self.half_width:.2f}"


class MethodSummary(BaseModel):
    """One method: accuracy at each number of classes, paired differences to the reference and to class means, and cost.

    `sequences` are the numbers of those it has finished, and `accuracy_by_sequence` its accuracy on each, so that any paired
    difference can be checked; `probes_by_sequence` likewise. `bwt` is backward transfer, single-head and among a task's own
    classes. `moved` is how far the embedding that answers is from the base after the last task, in % of the base's size.
    `embedding_steps` is for how many steps the embedding moved, mean over tasks; None where it never can. `along` is the
    accuracy after each task, where tasks do not bring new classes each time. `probes` and `probe_changes` are by side and
    number of tasks. `top5` counts the five best answers. `average` (over sessions), `drop`, accuracy on `old` and `new`
    classes and `side_gap` (what candidates of other tasks cost) are of streams with a base session.
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
    sequences: list[int] = []
    accuracy_by_sequence: dict[int, list[float]] = {}
    probes_by_sequence: dict[str, dict[int, list[float]]] = {}
    bwt: Figure | None = None
    bwt_own_classes: Figure | None = None
    moved: float | None = None
    top5: dict[int, Figure] = {}
    average: Figure | None = None
    drop: Figure | None = None
    old: Figure | None = None
    new: Figure | None = None
    side_gap: Figure | None = None
    along: dict[int, Figure] = {}
    probes: dict[str, dict[int, Figure]] = {}
    probe_changes: dict[str, dict[int, Figure]] = {}


class Summary(BaseModel):
    """One run. `unfinished` are the methods of which not one sequence is. `streams` tell its sequences from others."""

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
    unfinished: list[str] = []
    streams: list[str] = []
    probe: str = ""


def summarise_run(folder: Path) -> Summary:
    """The figures of a run directory, finished or not."""
    results = read_results(RunRecord(folder))
    config, cells = results.about["config"], RunRecord(folder).cells()
    command = run_command(config, None)
    if command is None:
        raise StorageError(
            f"{folder} is no run of a configuration that comes with fscl, so no command can make it again."
        )
    moments = {n: None if n == results.stream.n_labels else n for n in (*results.at_classes, results.stream.n_labels)}
    has_means = bool(results.outcomes.get(CLASS_MEANS))

    def differences(to: Results, method: str) -> dict[int, Figure]:
        found = {n: difference_at(moment)(to, method) for n, moment in moments.items()}
        return {n: _figure(interval) for n, interval in found.items() if interval is not None}

    methods = [
        MethodSummary(
            method=method,
            n_sequences=len(results.outcomes[method]),
            accuracy={n: _figure(accuracy_at(moment)(results, method)) for n, moment in moments.items()},
            minus_reference=differences(results, method),
            minus_class_means=differences(replace(results, reference=CLASS_MEANS), method) if has_means else {},
            embedding_steps=_mean_steps(cells, method),
            seconds_per_task=round(seconds_per_task(results, method), 4),
            ms_per_image=round(milliseconds_per_image(results, method), 4),
            sequences=sorted(results.outcomes[method]),
            accuracy_by_sequence={
                n: [round(a, 4) for a in accuracies_by_sequence(results, method, moment).values()]
                for n, moment in moments.items()
            },
            bwt=_transfer(results, method, lambda outcome: outcome.top1),
            bwt_own_classes=_transfer(results, method, lambda outcome: outcome.restricted),
            moved=_last(cells, method, "moved"),
            top5={n: _figure(accuracy_at(moment, top5=True)(results, method)) for n, moment in moments.items()},
            average=_figure(average(results, method)) if results.stream.base_way else None,
            drop=_figure(drop(results, method)) if results.stream.base_way else None,
            old=_figure(old_or_new("old")(results, method)) if results.stream.base_way else None,
            new=_figure(old_or_new("new")(results, method)) if results.stream.base_way else None,
            side_gap=_figure(gap_to_own_side(results, method)) if results.stream.base_way else None,
            along=_along(results, method),
            **_probes(results, method),
        )
        for method in results.finished_methods
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
        unfinished=[method for method in results.methods if method not in results.finished_methods],
        streams=list(results.about["streams"]),
        probe=probes_in_words(config),
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


def _mean_steps(cells: Mapping[Cell, Mapping[str, Any]], method: str) -> float | None:
    told = [task for cell, entry in cells.items() if cell.method == method for task in entry["result"]["diagnostics"]]
    steps = [float(task["embedding_steps"]) for task in told if "embedding_steps" in task]
    return round(sum(steps) / len(steps), 2) if steps else None


def _last(cells: Mapping[Cell, Mapping[str, Any]], method: str, key: str) -> float | None:
    """What a method says after the last task, mean over sequences, in %."""
    told = [entry["result"]["diagnostics"][-1].get(key) for cell, entry in cells.items() if cell.method == method]
    found = [100 * float(value) for value in told if value is not None]
    return round(sum(found) / len(found), 3) if found else None


def _transfer(results: Results, method: str, matrix: Callable[[Outcome], Matrix]) -> Figure | None:
    if results.stream.n_tasks < 2:
        return None
    return _figure(percent(lambda outcome, stream: backward_transfer(matrix(outcome)))(results, method))


def _along(results: Results, method: str) -> dict[int, Figure]:
    if results.stream.setting == "new_class":
        return {}
    curves = np.array(
        [100 * accuracy_curve(outcome.top1, results.stream.task_sizes) for outcome in results.outcomes[method].values()]
    )
    return {number: _figure(mean_interval(column)) for number, column in enumerate(curves.T, start=1)}


def _probes(results: Results, method: str) -> dict[str, Any]:
    points = {side: probe_points(results, method, side) for side in probed_sides(results)}

    def figures(found: dict[int, Interval]) -> dict[int, Figure]:
        alone = results.n_sequences == 1  # its interval is over problems
        return {n: _figure(replace(i, half_width=math.nan) if alone else i) for n, i in found.items()}

    outcomes = [results.outcomes[method][n] for n in sorted(results.outcomes[method])]
    return {
        "probes_by_sequence": {
            side: {p.after: [round(100 * float(np.mean(o.probes[side][p.after])), 4) for o in outcomes] for p in found}
            for side, found in points.items()
        },
        "probes": {side: figures({p.after: p.accuracy for p in found}) for side, found in points.items()},
        "probe_changes": {
            side: figures({p.after: p.change for p in found if p.change is not None}) for side, found in points.items()
        },
    }


def _figure(interval: Interval) -> Figure:
    half = None if math.isnan(interval.half_width) else round(interval.half_width, 4)
    return Figure(mean=round(interval.mean, 4), half_width=half)
