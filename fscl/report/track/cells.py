"""What a tracker gets of each finished cell: curves along the stream, figures at its end, and its settings."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fscl.evaluation.metrics import accuracy_curve, average_accuracy, final_accuracy, forgetting
from fscl.report.results import Outcome, Results
from fscl.storage import digest, leaves

Curves = dict[str, dict[int, float]]
"""Values by the number of tasks learned, by name. Accuracies in %."""


@dataclass(frozen=True)
class TrackedCell:
    """One method on one sequence.

    Attributes:
        key: the same every time, and of no other cell of any run.
        curves: along the stream.
        figures: at its end.
        settings: of the method, by path.
    """

    key: str
    method: str
    sequence: int
    curves: Curves
    figures: dict[str, float]
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.method}, sequence {self.sequence}"


@dataclass(frozen=True)
class TrackedRun:
    """A run with its finished cells. `means` are curves of each method over the sequences that it has finished."""

    key: str
    name: str
    config: dict[str, Any]
    about: dict[str, str]
    cells: tuple[TrackedCell, ...]
    means: dict[str, Curves]


def tracked_run(results: Results) -> TrackedRun:
    """What a run directory has to show."""
    about = results.about
    key = digest([about[part] for part in ("config", "data", "base", "streams")])
    cells = tuple(
        _cell(results, key, method, sequence, outcome)
        for method in results.methods
        for sequence, outcome in sorted(results.outcomes[method].items())
    )
    described = {
        "data": f"{about['data']['pool']} ({about['data']['hash']})",
        "base": f"{about['base']['summary']} ({about['base']['hash']})",
        **{f"version.{package}": version for package, version in about["versions"].items()},
    }
    config = {path: value for path, value in leaves(about["config"]).items() if not path.startswith("settings.")}
    means = {method: _mean([cell for cell in cells if cell.method == method]) for method in results.finished_methods}
    return TrackedRun(key, results.name, config, described, cells, means)


def _cell(results: Results, run: str, method: str, sequence: int, outcome: Outcome) -> TrackedCell:
    sizes = results.stream.task_sizes
    curves = {
        "accuracy": _along(100 * accuracy_curve(outcome.top1, sizes)),
        "accuracy_top5": _along(100 * accuracy_curve(outcome.top5, sizes)),
        "accuracy_own_classes": _along(100 * accuracy_curve(outcome.restricted, sizes)),
        "learn_seconds": _along(outcome.learn_seconds),
        "predict_seconds": _along(outcome.predict_seconds),
    }
    for side, points in outcome.probes.items():
        curves[f"probe_{side.replace(' ', '_')}"] = {after: 100 * float(np.mean(v)) for after, v in points.items()}
    figures = {
        "final_accuracy": 100 * final_accuracy(outcome.top1, sizes),
        "average_accuracy": 100 * average_accuracy(outcome.top1, sizes),
        "peak_memory_bytes": float(outcome.peak_memory_bytes),
    }
    if results.stream.n_tasks > 1:
        figures["forgetting"] = 100 * forgetting(outcome.top1)
    settings = leaves(results.about["config"]["settings"].get(method, {}))
    known = {name: value for name, value in figures.items() if math.isfinite(value)}
    return TrackedCell(digest([run, method, sequence]), method, sequence, curves, known, settings)


def _along(values: Any) -> dict[int, float]:
    return {number: float(value) for number, value in enumerate(values, start=1) if math.isfinite(value)}


def _mean(cells: list[TrackedCell]) -> Curves:
    names = dict.fromkeys(name for cell in cells for name in cell.curves)
    found: Curves = {}
    for name in names:
        steps = sorted({step for cell in cells for step in cell.curves.get(name, {})})
        values = {
            step: [cell.curves[name][step] for cell in cells if step in cell.curves.get(name, {})] for step in steps
        }
        found[name] = {step: float(np.mean(each)) for step, each in values.items()}
    return found
