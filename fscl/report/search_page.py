"""The page of a search: what mattered, every trial, and the winner. Made from the search directory and nothing else."""

import math
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from fscl.evaluation.metrics import Interval, mean_interval, paired_difference
from fscl.experiment.search.record import SearchRecord, Trial, Trials
from fscl.experiment.search.spec import Dimension, SearchSpec
from fscl.report.commands import shown_path, toml_listing
from fscl.report.figures.style import COLOURS, WIDTH, dress_axes, figure_style
from fscl.report.figures.svg import to_svg
from fscl.report.figures.tips import tip_points
from fscl.report.shell import render_in_shell
from fscl.report.table import show
from fscl.storage import write_bytes

PANELS_IN_A_ROW = 3
HEIGHT = 2.3  # inches of a row


def write_search_page(record: SearchRecord) -> Path:
    """Write the page into the search directory, and return its path."""
    about, trials = record.about(), record.trials()
    search = SearchSpec.model_validate(about["search"])
    page = record.folder / "search.html"
    config, name = about["config"], str(about["config"]["name"])
    drawn = None
    if _compared(trials, search.first):
        drawn = Markup(slices_svg(search, trials))  # made by matplotlib, which escapes what it writes  # nosec B704
    text = render_in_shell(
        "search.html.j2",
        title=f"{name}: a search",
        name=name,
        method=search.method,
        config=config,
        base=shown_path(str(config["base"].get("use"))),
        search=search,
        versions=about["versions"],
        optuna=about["optuna"],
        n_trials=search.trials,
        keep=search.keep,
        winner=trials.winner,
        sentence=search_sentence(search, trials),
        importance=[
            {"path": path, "tried": _tried(search.space[path]), "share": f"{share:.2f}"}
            for path, share in sorted(trials.importance.items(), key=lambda item: -item[1])
        ],
        shared=_sequences(search.first),
        n_compared=len(_compared(trials, search.first)),
        figure=drawn,
        paths=list(search.space),
        rows=[_row(trial, search) for trial in trials.trials],
        listing=toml_listing(tomllib.loads(record.winner_path.read_text("utf-8")))
        if trials.winner is not None
        else None,
        command=shlex.join(["fscl", "search", name, "--out", shown_path(str(record.folder))]),
    )
    write_bytes(page, text.encode())
    return page


def search_sentence(search: SearchSpec, trials: Trials) -> str:
    """What came out, in a sentence or two."""
    best = trials.best()
    if trials.winner is None or best is None:
        return f"{len(trials.trials)} of {search.trials} trials have begun; the same command goes on."
    values = ", ".join(f"{path} = {_text(value)}" for path, value in best.values.items())
    reached = show(mean_interval(best.accuracy), digits=2)
    n = len(best.accuracy)
    found = (
        f"Of {len(trials.trials)} trials, trial {best.number} is the best: {values}; {reached} % on {_sequences(n)}."
    )
    first = trials.trials[0]
    if first.number != best.number and len(first.accuracy) == n:
        difference = show(paired_difference(best.accuracy, first.accuracy), signed=True, digits=2)
        found += f" Minus trial 0: {difference} points, paired by sequence."
    return found


def slices_svg(search: SearchSpec, trials: Trials) -> str:
    """Accuracy on the sequences that all trials have, against each setting: a panel each."""
    compared = _compared(trials, search.first)
    n_rows = -(-len(search.space) // PANELS_IN_A_ROW)
    with figure_style():
        figure = Figure(figsize=(WIDTH, HEIGHT * n_rows + 0.2))
        means = [mean for _, mean in compared]
        room = 0.06 * max(max(means) - min(means), 1)
        for place, (path, dimension) in enumerate(search.space.items()):
            axes = figure.add_subplot(n_rows, PANELS_IN_A_ROW, place + 1)
            dress_axes(axes)
            _slice(axes, path, dimension, compared)
            axes.set_ylim(min(means) - room, max(means) + room)
            axes.set_xlabel(path)
            if place % PANELS_IN_A_ROW == 0:
                axes.set_ylabel("accuracy (%)")
        figure.subplots_adjust(
            left=0.09, right=0.985, top=0.96, bottom=0.52 / (HEIGHT * n_rows), wspace=0.28, hspace=0.42
        )
        return to_svg(figure, "slices", "Accuracy against each setting that was searched, a point a trial")


def _slice(axes: Axes, path: str, dimension: Dimension, compared: Sequence[tuple[Trial, float]]) -> None:
    values = [trial.values[path] for trial, _ in compared]
    if dimension.values is None:
        x = np.array([float(value) for value in values])
        if dimension.log:
            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_locator(LogLocator(numticks=4) if x.max() > 20 * x.min() else MaxNLocator(3))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        x = np.array([float(_index(dimension.values, value)) for value in values])
        axes.set_xticks(range(len(dimension.values)), [_text(value) for value in dimension.values])
        axes.set_xlim(-0.5, len(dimension.values) - 0.5)
    y = np.array([mean for _, mean in compared])
    went_on = np.array([trial.state == "complete" for trial, _ in compared])
    colour = COLOURS[0]
    axes.scatter(x[went_on], y[went_on], s=26, color=colour, zorder=3)
    axes.scatter(x[~went_on], y[~went_on], s=26, facecolors="none", edgecolors=colour, linewidths=1.2, zorder=3)
    texts = [
        f"trial {trial.number}, {path} = {_text(trial.values[path])}: {mean:.2f} %, {trial.state}"
        for trial, mean in compared
    ]
    tip_points(axes, x, y, texts)


def _index(values: Sequence[object], value: object) -> int:
    return next(place for place, known in enumerate(values) if known == value and type(known) is type(value))


def _compared(trials: Trials, first: int) -> list[tuple[Trial, float]]:
    """Trials that have the first sequences, with their accuracy on those alone."""
    found = [trial for trial in trials.trials if len(trial.accuracy) >= first]
    return [(trial, sum(trial.accuracy[:first]) / first) for trial in found]


def _row(trial: Trial, search: SearchSpec) -> dict[str, Any]:
    interval = mean_interval(trial.accuracy) if trial.accuracy else Interval(math.nan, math.nan, 0)
    return {
        "number": trial.number,
        "cells": [_text(trial.values[path]) for path in search.space],
        "state": trial.state,
        "n": len(trial.accuracy),
        "mean": "" if math.isnan(interval.mean) else repr(interval.mean),
        "accuracy": show(interval, digits=2),
    }


def _tried(dimension: Dimension) -> str:
    if dimension.values is not None:
        return ", ".join(map(_text, dimension.values))
    scale = ", logarithmic" if dimension.log else f", in steps of {_text(dimension.step)}" if dimension.step else ""
    return f"{_text(dimension.low)} to {_text(dimension.high)}{scale}"


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _sequences(n: int) -> str:
    return "one sequence" if n == 1 else f"{n} sequences"
