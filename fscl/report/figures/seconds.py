"""Seconds to learn each task, on a logarithmic axis."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from fscl.report.figures.lines import Line, Rows, number_text, with_outcomes
from fscl.report.figures.style import (
    WIDTH,
    bands_shown,
    draw_line,
    figure_style,
    line_axes,
    name_lines,
    step_ticks,
    stretch,
)
from fscl.report.figures.svg import to_svg
from fscl.report.results import Results
from fscl.report.spec import FigureSpec


def seconds_svg(results: Results) -> str:
    """Seconds to learn each task on a logarithmic axis: the mean, and the range from fastest to slowest sequence."""
    with figure_style():
        figure = Figure(figsize=(WIDTH, 3.6 * stretch(results)))
        axes = line_axes(figure, results)
        axes.set_yscale("log")
        steps = np.arange(1.0, results.stream.n_tasks + 1)
        shortest, longest = np.inf, 0.0
        for line in seconds_lines(results):
            texts = [
                f"{line.method}, task {step:.0f}: {_seconds(mean, fastest, slowest, line.n_sequences)}"
                for step, mean, fastest, slowest in zip(steps, line.mean, line.low, line.high, strict=True)
            ]
            low, high = (line.low, line.high) if bands_shown(results) else (line.mean, line.mean)
            draw_line(axes, line.number, steps, line.mean, low, high, texts)
            shortest = np.fmin(shortest, np.fmin.reduce(line.low, None))
            longest = np.fmax(longest, np.fmax.reduce(line.high, None))
        if shortest <= longest:
            axes.set_ylim(shortest / 1.4, longest * 1.4)
        few_decades = longest < 300 * shortest
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few_decades else (1,)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("task")
        axes.set_ylabel("seconds to learn the task")
        step_ticks(axes, steps)
        name_lines(axes, results)
        return to_svg(figure, "seconds", "Seconds to learn each task, one line for each method")


def seconds_lines(results: Results) -> list[Line]:
    """Seconds to learn each task: mean, fastest and slowest sequence; NaN where the clock was too coarse to tell."""
    lines = []
    for number, method in with_outcomes(results):
        seconds = np.array([outcome.learn_seconds for outcome in results.outcomes[method].values()])
        seconds = np.where(seconds > 0, seconds, np.nan)
        mean, no_interval = seconds.mean(0), np.full(seconds.shape[1], np.nan)
        lines.append(Line(number, method, len(seconds), mean, seconds.min(0), seconds.max(0), no_interval))
    return lines


def seconds_rows(results: Results) -> Rows:
    """One row for each point of the figure."""
    rows = [["method", "task", "mean_seconds", "fastest", "slowest", "n_sequences"]]
    for line in seconds_lines(results):
        for task, values in enumerate(zip(line.mean, line.low, line.high, strict=True), start=1):
            rows.append([line.method, str(task), *map(number_text, values), str(line.n_sequences)])
    return rows


def _seconds(mean: float, low: float, high: float, n_sequences: int) -> str:
    return f"{mean:.3g} s" if n_sequences == 1 else f"{mean:.3g} s ({low:.3g} to {high:.3g})"


def _caption(results: Results) -> str:
    band = "; the band spans the fastest and the slowest sequence" if bands_shown(results) else ""
    return (
        f"Mean over sequences on one processor thread, logarithmic axis{band}. "
        "A process's first task includes its start-up."
    )


SECONDS = FigureSpec("seconds", seconds_svg, seconds_rows, _caption, section="Time to learn a task")
