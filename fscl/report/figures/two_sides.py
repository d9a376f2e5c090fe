"""Both sides of a method: what it keeps beside how well it goes on learning, and transfer along the stream.

Panels stand side by side over one list of names; the lines look as in the other figures.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fscl.evaluation.metrics import backward_transfer_curve, mean_interval
from fscl.report.figures.accuracy import accuracy_lines, accuracy_rows
from fscl.report.figures.lines import Line, Rows, Values, interval_line, number_text, steps, with_outcomes
from fscl.report.figures.style import (
    WIDTH,
    bands_shown,
    draw_line,
    dress_axes,
    figure_style,
    name_lines,
    plus_minus,
    right_end,
    step_ticks,
    stretch,
)
from fscl.report.figures.svg import to_svg
from fscl.report.probes import probe_points, probed_sides, side_in_words
from fscl.report.results import Results
from fscl.report.spec import FigureSpec

SECTION = "Both sides"


def two_sides_svg(results: Results) -> str:
    """Left: accuracy over all classes learned so far. Right: the probe on classes never seen."""
    with figure_style():
        figure, (left, right) = _panels(results, 2)
        places, meaning = steps(results)
        _draw(left, results, places, accuracy_lines(results), "%", meaning.removeprefix("number of "))
        left.set_title("what it keeps", fontsize=10, loc="left")
        left.set_ylabel("single-head accuracy (%)")
        _probe_panel(right, results, "novel")
        right.set_title("how well it learns what is new", fontsize=10, loc="left")
        name_lines(right, results)
        return to_svg(figure, "two_sides", "Accuracy over everything learned, and the probe on classes never seen")


def transfer_svg(results: Results) -> str:
    """Backward transfer among a task's own classes, and the probe on each side, against the number of tasks."""
    with figure_style():
        sides = _shown_sides(results)
        has_earlier = results.stream.n_tasks > 1
        figure, panels = _panels(results, has_earlier + len(sides))
        if has_earlier:
            first = panels[0]
            _draw(first, results, *backward_lines(results), "points", "tasks learned")
            first.set_ylabel("backward transfer (points)")
            first.axhline(0, color="gray", linewidth=0.6)
            first.set_title("earlier tasks", fontsize=9, loc="left")
        for axes, side in zip(panels[has_earlier:], sides, strict=True):
            _probe_panel(axes, results, side)
            axes.set_title(side_in_words(side), fontsize=9, loc="left")
        name_lines(panels[-1], results)
        return to_svg(figure, "transfer", "Backward transfer and probes, one line for each method")


def _panels(results: Results, n: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDTH, 3.9 * stretch(results)))
    begin, gap = 0.075, 0.08
    width = (right_end(results) - begin - (n - 1) * gap) / n
    return figure, [dress_axes(figure.add_axes((begin + i * (width + gap), 0.15, width, 0.75))) for i in range(n)]


def _probe_panel(axes: Axes, results: Results, side: str) -> None:
    moments, lines = probe_lines(results, side)
    probe = results.about["config"]["probe"]
    _draw(axes, results, moments, lines, "%", "tasks learned")
    axes.set_ylabel(f"{probe['n_way']}-way {probe['n_shot']}-shot probe (%)")


def _draw(axes: Axes, results: Results, places: Values, lines: Sequence[Line], unit: str, meaning: str) -> None:
    ends = []
    for line in lines:
        half = np.nan_to_num(line.half_width) if bands_shown(results) else np.zeros_like(line.mean)
        texts = [
            f"{line.method}, {place:.0f} {meaning}: {plus_minus(value, width)} {unit}"
            for place, value, width in zip(places, line.mean, line.half_width, strict=True)
        ]
        draw_line(axes, line.number, places, line.mean, line.mean - half, line.mean + half, texts)
        ends += [*(line.mean - half), *(line.mean + half)]
    low, high = np.nanmin(ends), np.nanmax(ends)
    margin = 0.05 * max(high - low, 1.0)
    if unit == "%":
        low, high = max(low, 0.0), min(high, 100.0)  # bands end where accuracy does
    axes.set_ylim(low - margin, high + margin)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.set_xlabel(meaning)
    step_ticks(axes, places)


def probe_lines(results: Results, side: str) -> tuple[Values, list[Line]]:
    """Where the points stand (numbers of tasks), and a line for each method: the probe's accuracy in %."""
    lines = []
    moments: list[int] = []
    for number, method in with_outcomes(results):
        points = probe_points(results, method, side)
        moments = [point.after for point in points]
        lines.append(interval_line(number, method, len(results.outcomes[method]), [point.accuracy for point in points]))
    return np.array(moments, dtype=np.float64), lines


def backward_lines(results: Results) -> tuple[Values, list[Line]]:
    """Numbers of tasks from the second on, and a line for each method: backward transfer among a task's own classes."""
    lines = []
    for number, method in with_outcomes(results):
        outcomes = list(results.outcomes[method].values())
        curves = np.array([100 * backward_transfer_curve(outcome.restricted)[1:] for outcome in outcomes])
        lines.append(interval_line(number, method, len(outcomes), [mean_interval(column) for column in curves.T]))
    return np.arange(2.0, results.stream.n_tasks + 1), lines


def two_sides_rows(results: Results) -> Rows:
    """The numbers of the figure of both sides: a row a point, with what it measures."""
    heading, *points = accuracy_rows(results)
    at = heading[1]
    rows = [["measure", "method", "at", "value", "half_width", "n_sequences"]]
    rows += [[f"accuracy_percent_by_{at}", *point] for point in points]
    return rows + _probe_rows(results, ["novel"])


def transfer_rows(results: Results) -> Rows:
    """The numbers of the figure of transfer: a row a point, with what it measures."""
    rows = [["measure", "method", "at", "value", "half_width", "n_sequences"]]
    moments, lines = backward_lines(results)
    rows += _point_rows("backward_transfer_points_by_n_tasks", moments, lines)
    return rows + _probe_rows(results, _shown_sides(results))


def _probe_rows(results: Results, sides: list[str]) -> Rows:
    return [
        row for side in sides for row in _point_rows(f"probe_{side}_percent_by_n_tasks", *probe_lines(results, side))
    ]


def _point_rows(measure: str, moments: Values, lines: list[Line]) -> Rows:
    return [
        [measure, line.method, f"{at:.0f}", number_text(mean), number_text(half), str(line.n_sequences)]
        for line in lines
        for at, mean, half in zip(moments, line.mean, line.half_width, strict=True)
    ]


def _probed(results: Results) -> bool:
    return "novel" in probed_sides(results)


def _shown_sides(results: Results) -> list[str]:
    """Those of the section `[probe]`: a figure has no room for more, which the table and its CSV file have."""
    return [side for side in probed_sides(results) if " " not in side]


TWO_SIDES = FigureSpec(
    "two_sides",
    two_sides_svg,
    two_sides_rows,
    lambda results: (
        "Left: accuracy over everything learned so far. Right: what the same method makes, at that moment, of problems it "
        "has never met."
    ),
    when=_probed,
    section=SECTION,
)


TRANSFER = FigureSpec(
    "transfer",
    transfer_svg,
    transfer_rows,
    lambda results: (
        "Left: how much earlier tasks gained or lost among their own classes since they were learned. Then the probes."
    ),
    when=_probed,
    section=SECTION,
)
