"""What was seen inside the learners of a run (fscl/evaluation/inspection.py), drawn: drift, Fisher information, penalties.

Each figure has a sibling that gives its data as rows, a header first. Same run directory, same bytes.
"""

import re
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from fscl.evaluation.inspected import Drift, FisherPoint, FisherReading, Penalties
from fscl.report.figures import COLOURS, INK, MARKERS, WIDTH, figure_style, look, to_svg
from fscl.report.results import Results
from fscl.report.tips import tip_points

SYMBOLS = {
    "fisher information": "F, Fisher information",
    "path integral": "Ω, path integral",
    "output sensitivity": "Ω, output sensitivity",
    "gate": "δ, gate",
}
IMAGES = {"shots": "its shots", "test": "its test images"}

Row = Sequence[str | int | float | None]


# Drift


def drift_svg(results: Results) -> str:
    """The first task's test images in the plane of the embedding: a row a method, a column a moment; empty if none."""
    shown = _drifts(results)
    if not shown:
        return ""
    with figure_style():
        columns = max(len(drift.after) for _, drift in shown)
        left, between, top, below = 0.42, 0.12, 0.56, 0.42  # inches, as all that follows
        side = min(2.3, (WIDTH - left) / columns - between)
        height = len(shown) * (top + side + below)
        figure = Figure(figsize=(WIDTH, height))
        for row, (method, drift) in enumerate(shown):
            y = height - (row + 1) * (top + side + below) + below
            for column in range(len(drift.after)):
                x = left + column * (side + between)
                axes = figure.add_axes((x / WIDTH, y / height, side / WIDTH, side / height))
                _moment(axes, drift, column)
                if column == 0:
                    axes.annotate(
                        method,
                        (0, 1),
                        (0, 20),
                        xycoords="axes fraction",
                        textcoords="offset points",
                        fontweight="bold",
                        parse_math=False,
                    )
                else:
                    axes.set_yticklabels([])
        return to_svg(figure, "drift", "Where the test images of the first task lie, a row a method, a column a moment")


def drift_rows(results: Results) -> list[Row]:
    """A row an image and moment; `moved` and `apart` are the moment's."""
    rows: list[Row] = [("method", "tasks_learned", "image", "class", "x", "y", "moved", "apart")]
    for method, drift in _drifts(results):
        for moment, after in enumerate(drift.after):
            rows += [
                (method, after, image, drift.labels[image], x, y, drift.moved[moment], drift.apart[moment])
                for image, (x, y) in enumerate(drift.points[moment])
            ]
    return rows


def _drifts(results: Results) -> list[tuple[str, Drift]]:
    return [(method, found.drift) for method, found in results.inspected.items() if found.drift is not None]


def _moment(axes: Axes, drift: Drift, moment: int) -> None:
    points, labels = np.array(drift.points), np.array(drift.labels)
    for number, label in enumerate(sorted(set(drift.labels))):
        of_class = points[:, labels == label]
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        axes.plot(*of_class[moment].T, linestyle="none", marker=marker, markersize=3.4, color=colour, alpha=0.85, mew=0)
        x, y = of_class[moment].T
        tip_points(axes, x, y, [f"class {label + 1}"] * len(x))
        trail = of_class[: moment + 1].mean(1)  # where the middle of the class came from
        axes.plot(*trail.T, color=INK, linewidth=0.8, alpha=0.7)
        axes.plot(*trail[-1:].T, marker=marker, markersize=6.5, color=colour, mec=INK, mew=0.8)
    low, high = points.min((0, 1)), points.max((0, 1))
    middle, half = (low + high) / 2, 0.54 * float((high - low).max()) or 1.0
    axes.set_xlim(middle[0] - half, middle[0] + half)
    axes.set_ylim(middle[1] - half, middle[1] + half)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.tick_params(length=2, width=0.5, labelsize=7)
    axes.spines[:].set_alpha(0.4)
    axes.patch.set_visible(False)
    axes.set_title(_after(drift.after[moment]), fontsize=8.5, pad=4)
    apart = drift.apart[moment]
    said = f"moved {drift.moved[moment]:.2f}" + ("" if apart is None else f", apart {apart:.2f}")
    axes.set_xlabel(said, fontsize=8.5, labelpad=2)


def _after(n_tasks: int) -> str:
    return "before any task" if n_tasks == 0 else f"after {n_tasks} task{'s' if n_tasks > 1 else ''}"


# Fisher information


def fisher_svg(results: Results) -> str:
    """Trace of the Fisher information and the loss along meta-training and one task, then by layer; empty if none."""
    curves = _curves(results)
    watched = results.watched
    if not curves and not watched:
        return ""
    with figure_style():
        layered = [("meta-training", watched)] if watched else []
        layered += curves
        layer_rows = -(-len(layered) // 3)
        n_rows = bool(watched) + 2 * bool(curves)
        tall, low, key = 1.95, 1.75, 0.24  # inches, as all that follows
        layers = sorted({block(name) for _, points in layered for name in points[0].shots.layers}, key=_depth)
        keys = key * len(curves) + 0.4
        height = n_rows * tall + keys + layer_rows * low + 0.5
        figure = Figure(figsize=(WIDTH, height))
        top = height
        if watched:
            lines = [("shots", watched, "shots"), ("queries", watched, "test")]
            top = _pair(figure, top, tall, "meta-training", lines, by_log=False)
        for images, words in IMAGES.items() if curves else ():
            top = _pair(
                figure,
                top,
                tall,
                f"one task: {words}",
                [(name, points, images) for name, points in curves],
                by_log=True,
            )
        for number, (name, _) in enumerate(curves):
            _key(figure, 0.6, top - 0.1 - key * number, number, name)
        top -= keys
        words = "by part of the network, on the shots:"
        figure.text(0.6 / WIDTH, (top + 0.05) / height, words, fontsize=9)
        for place, (name, points) in enumerate(layered):
            row, column = divmod(place, 3)
            _by_layer(figure, column, top - (row + 1) * low, name, points, layers)
        for number, layer in enumerate(layers):
            _key(figure, 0.6 + 0.95 * (number % 7), 0.32 - 0.2 * (number // 7), number, layer)
        return to_svg(figure, "fisher", "Trace of the Fisher information of the embedding, and the loss, against steps")


def fisher_rows(results: Results) -> list[Row]:
    """A row a step, kind of images and parameter tensor; "all" is the trace, with the loss beside it."""
    rows: list[Row] = [("phase", "method", "step", "images", "tensor", "fisher", "loss")]
    found = [("task", method, inspection.fisher) for method, inspection in results.inspected.items()]
    for phase, method, points in [("meta-training", "", results.watched), *found]:
        for point in points:
            for images, reading in (("shots", point.shots), ("test", point.test)):
                rows.append((phase, method, point.step, images, "all", reading.trace, reading.loss))
                rows += [(phase, method, point.step, images, name, f, None) for name, f in reading.layers.items()]
    return rows


def block(name: str) -> str:
    """The part of the network that a parameter tensor belongs to: by the first number in its name, or before all of them."""
    number = re.search(r"\d+", name)
    return "stem" if number is None else f"block {int(number[0]) + 1}"


def _depth(part: str) -> int:
    return 0 if part == "stem" else int(part.removeprefix("block "))


def _curves(results: Results) -> list[tuple[str, tuple[FisherPoint, ...]]]:
    """One curve for all methods that learn the first task in the same way, under all of their names."""
    shared: list[tuple[list[str], tuple[FisherPoint, ...]]] = []
    for method, found in results.inspected.items():
        same = next((names for names, points in shared if points == found.fisher), None)
        if same is not None:
            same.append(method)
        elif found.fisher:
            shared.append(([method], found.fisher))
    return [(", ".join(names), points) for names, points in shared]


def _reading(point: FisherPoint, images: str) -> FisherReading:
    return point.shots if images == "shots" else point.test


def _pair(
    figure: Figure,
    top: float,
    tall: float,
    title: str,
    lines: Sequence[tuple[str, Sequence[FisherPoint], str]],
    *,
    by_log: bool,
) -> float:
    """Two panels side by side, Fisher information and loss, below `top`; returns where they end."""
    for column, what in enumerate(("trace of Fisher", "loss")):
        axes = _panel(figure, 0.62 + 3.7 * column, top - tall + 0.42, 3.1, tall - 0.68)
        for number, (_, points, images) in enumerate(lines):
            readings = [_reading(point, images) for point in points]
            _curve(
                axes,
                number,
                [point.step for point in points],
                [reading.loss if column else reading.trace for reading in readings],
                lines[number][0],
            )
            if not by_log and column == 0:
                _key(figure, 5.6 + number, top - 0.18, number, lines[number][0])
        _steps_axis(axes, max(point.step for _, points, _ in lines for point in points), by_log)
        _log_ticks(axes)
        axes.set_title(f"{title}: {what}" if not column else what, fontsize=9, pad=4, loc="left")
    return top - tall


def _by_layer(
    figure: Figure,
    column: int,
    bottom: float,
    name: str,
    points: Sequence[FisherPoint],
    layers: Sequence[str],
) -> None:
    axes = _panel(figure, 0.62 + 2.42 * column, bottom + 0.5, 1.85, 1.0)
    for number, layer in enumerate(layers):
        sums = [sum(f for key, f in point.shots.layers.items() if block(key) == layer) for point in points]
        _curve(axes, number, [point.step for point in points], sums, layer)
    _log_ticks(axes)
    _steps_axis(axes, max(point.step for point in points), name != "meta-training")
    axes.set_title(name if len(name) < 30 else f"{name[:28]}…", fontsize=8.5, pad=4, loc="left", parse_math=False)


def _panel(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Axes at a place in inches."""
    whole_width, whole_height = figure.get_size_inches()
    axes = figure.add_axes((x / whole_width, y / whole_height, width / whole_width, height / whole_height))
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_alpha(0.5)
    axes.grid(axis="y", color=INK, alpha=0.13, linewidth=0.7)
    axes.tick_params(color=INK, length=3, width=0.6, labelsize=8)
    axes.patch.set_visible(False)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    return axes


def _log_ticks(axes: Axes) -> None:
    low, high = axes.get_ylim()
    if not any(np.isfinite(line.get_ydata(orig=True)).any() for line in axes.lines) and not axes.patches:
        axes.text(0.5, 0.5, "0 at every step", transform=axes.transAxes, ha="center", fontsize=8.5)
        axes.set_yticks([])
        return
    if high < 8 * low:
        axes.yaxis.set_major_locator(MaxNLocator(4))
    else:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,), numticks=6))


def _curve(axes: Axes, number: int, steps: Sequence[int], values: Sequence[float], name: str) -> None:
    colour, marker, dashes = look(number)
    shown = [value if value > 0 else np.nan for value in values]  # nothing has no place on a logarithmic axis
    axes.plot(steps, shown, color=colour, marker=marker, linestyle=dashes, linewidth=1.4, markersize=3.5)
    texts = [f"{name}, step {step}: {value:.4g}" for step, value in zip(steps, values, strict=True)]
    tip_points(axes, np.array(steps, dtype=np.float64), np.array(shown), texts)


def _steps_axis(axes: Axes, last: int, by_log: bool) -> None:
    if by_log:
        axes.set_xscale("symlog", linthresh=1, linscale=0.3)
        axes.set_xticks([tick for tick in (0, 1, 10, 100, 1000, 10_000) if tick <= last])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlim(-0.3, max(last, 1) * 1.4)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_xlabel("steps", fontsize=8, labelpad=1)


def _key(figure: Figure, x: float, y: float, number: int, name: str) -> None:
    """One entry of a legend, at a place in inches."""
    width, height = figure.get_size_inches()
    colour, marker, dashes = look(number)
    line = Line2D([x / width, (x + 0.26) / width], [y / height] * 2, color=colour, linewidth=1.4)
    line.set(linestyle=dashes)
    mark = Line2D([(x + 0.13) / width], [y / height], color=colour, marker=marker, markersize=3.5)
    for part in (line, mark):
        part.set_transform(figure.transFigure)
        figure.add_artist(part)
    figure.text((x + 0.33) / width, y / height, name, fontsize=8.5, va="center_baseline", parse_math=False)


# Penalties


def penalties_svg(results: Results) -> str:
    """How many weights are held how firmly: a histogram a method, each on a scale of its own; empty if there are none."""
    shown = _penalties(results)
    if not shown:
        return ""
    with figure_style():
        columns, wide, tall = 3, 2.42, 2.15  # inches
        rows = -(-len(shown) // columns)
        figure = Figure(figsize=(WIDTH, rows * tall))
        for place, (method, penalties) in enumerate(shown):
            row, column = divmod(place, columns)
            axes = _panel(figure, 0.62 + wide * column, (rows - row - 1) * tall + 0.52, 1.85, tall - 0.98)
            axes.stairs(penalties.counts, penalties.edges(), baseline=0.7, fill=True, color=COLOURS[0], alpha=0.75)
            axes.set_ylim(0.7, 2.5 * max(penalties.counts))
            edges, counts = np.array(penalties.edges()), np.array(penalties.counts, dtype=np.float64)
            bins = zip(edges[:-1], edges[1:], counts, strict=True)
            texts = [f"{low:.4g} to {high:.4g}: {n:,.0f} weights" for low, high, n in bins]
            tip_points(axes, (edges[1:] + edges[:-1]) / 2, np.where(counts > 0, counts, np.nan), texts)
            _log_ticks(axes)
            axes.xaxis.set_major_locator(MaxNLocator(3))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
            axes.axvline(penalties.mean, color=COLOURS[1], linewidth=1.3, linestyle=(0, (4, 1.5)))
            axes.set_title(method, fontsize=9.5, pad=15, loc="left", parse_math=False)
            said = f"mean {penalties.mean:.3g}, λ = {penalties.strength:g}"
            axes.annotate(said, (0, 1), (0, 4), xycoords="axes fraction", textcoords="offset points", fontsize=8)
            axes.set_xlabel(f"{SYMBOLS[penalties.measure]}, {_after(penalties.after)}", fontsize=8, labelpad=2)
            axes.set_ylabel("weights" if column == 0 else "", fontsize=8.5)
        return to_svg(figure, "penalties", "How many weights are held how firmly, one histogram for each method")


def penalties_rows(results: Results) -> list[Row]:
    """A row a bin."""
    rows: list[Row] = [("method", "measure", "tasks_learned", "strength", "from", "to", "weights")]
    for method, found in _penalties(results):
        edges = found.edges()
        rows += [
            (method, found.measure, found.after, found.strength, low, high, count)
            for low, high, count in zip(edges, edges[1:], found.counts, strict=False)
        ]
    return rows


def _penalties(results: Results) -> list[tuple[str, Penalties]]:
    return [(method, found.penalties) for method, found in results.inspected.items() if found.penalties is not None]
