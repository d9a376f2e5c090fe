"""Accuracy along the stream: one line for each method, with its 95 % band over sequences."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fscl.evaluation.metrics import accuracy_curve, mean_interval
from fscl.report.figures.lines import Line, Rows, interval_line, number_text, steps, with_outcomes
from fscl.report.figures.style import (
    WIDTH,
    bands_shown,
    draw_line,
    figure_style,
    line_axes,
    name_lines,
    plus_minus,
    step_ticks,
    stretch,
)
from fscl.report.figures.svg import to_svg
from fscl.report.results import Results
from fscl.report.spec import FigureSpec


def accuracy_svg(results: Results) -> str:
    """Accuracy over all classes learned so far, after each task: mean and 95 % band over sequences."""
    with figure_style():
        figure = Figure(figsize=(WIDTH, 4.2 * stretch(results)))
        axes = line_axes(figure, results)
        places, meaning = steps(results)
        lowest, highest = 100.0, 0.0
        noun = "class" if "classes" in meaning else "task"
        for line in accuracy_lines(results):
            mean = line.mean
            half = np.nan_to_num(line.half_width)
            texts = [
                f"{line.method}, {_count(place, noun)}: {plus_minus(value, width)} %"
                for place, value, width in zip(places, mean, line.half_width, strict=True)
            ]
            half = half if bands_shown(results) else np.zeros_like(half)
            draw_line(axes, line.number, places, mean, mean - half, mean + half, texts)
            lowest, highest = min(lowest, *(mean - half)), max(highest, *(mean + half))
        margin = 0.04 * max(highest - lowest, 10)
        axes.set_ylim(max(lowest, 0) - margin, min(highest, 100) + margin)  # bands end where accuracy does
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.set_xlabel(meaning)
        axes.set_ylabel("single-head accuracy (%)")
        step_ticks(axes, places)
        name_lines(axes, results)
        return to_svg(figure, "accuracy", f"Accuracy against {meaning}, one line for each method")


def accuracy_lines(results: Results) -> list[Line]:
    """A_t in %, with 95 % intervals over sequences; the ends of the interval of a single sequence are NaN."""
    lines, sizes = [], results.stream.task_sizes
    for number, method in with_outcomes(results):
        outcomes = results.outcomes[method].values()
        curves = np.array([100 * accuracy_curve(outcome.top1, sizes) for outcome in outcomes])
        lines.append(interval_line(number, method, len(curves), [mean_interval(column) for column in curves.T]))
    return lines


def accuracy_rows(results: Results) -> Rows:
    """One row for each point of the figure."""
    places, meaning = steps(results)
    x = "n_classes" if "classes" in meaning else "n_tasks"
    rows = [["method", x, "accuracy_percent", "half_width", "n_sequences"]]
    for line in accuracy_lines(results):
        for place, mean, half in zip(places, line.mean, line.half_width, strict=True):
            rows.append([line.method, f"{place:.0f}", number_text(mean), number_text(half), str(line.n_sequences)])
    return rows


def _count(n: float, noun: str) -> str:
    return f"1 {noun}" if n == 1 else f"{n:.0f} {'classes' if noun == 'class' else noun + 's'}"


def _caption(results: Results) -> str:
    bands = f"Bands are 95 % intervals over sequences{'; one sequence has none' if results.n_sequences == 1 else ''}."
    return (
        "Right after each task: accuracy over everything learned so far. "
        f"{bands if bands_shown(results) else 'The intervals are in the table.'} "
        "The vertical axis spans the values shown and need not begin at 0."
    )


ACCURACY = FigureSpec("accuracy", accuracy_svg, accuracy_rows, _caption, section="Accuracy along the stream")
