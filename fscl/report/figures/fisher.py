"""Fisher information and loss: along meta-training, along one task, and by part of the network."""

import re
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from fscl.analysis.fisher import FisherCourse, FisherPoint, FisherReading
from fscl.report.figures.panels import SECTION, curve, legend_entry, log_ticks, panel
from fscl.report.figures.style import WIDTH, figure_style
from fscl.report.figures.svg import to_svg
from fscl.report.results import Results
from fscl.report.spec import DataRows, FigureSpec

IMAGES = {"shots": "its shots", "test": "its test images"}


def fisher_svg(results: Results) -> str:
    """Trace of the Fisher information and the loss along meta-training and one task, then by layer."""
    curves = _curves(results)
    watched = _along_training(results)
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
            legend_entry(figure, 0.6, top - 0.1 - key * number, number, name)
        top -= keys
        words = "by part of the network, on the shots:"
        figure.text(0.6 / WIDTH, (top + 0.05) / height, words, fontsize=9)
        for place, (name, points) in enumerate(layered):
            row, column = divmod(place, 3)
            _by_layer(figure, column, top - (row + 1) * low, name, points, layers)
        for number, layer in enumerate(layers):
            legend_entry(figure, 0.6 + 0.95 * (number % 7), 0.32 - 0.2 * (number // 7), number, layer)
        return to_svg(figure, "fisher", "Trace of the Fisher information of the embedding, and the loss, against steps")


def fisher_rows(results: Results) -> DataRows:
    """A row a step, kind of images and parameter tensor; "all" is the trace, with the loss beside it."""
    rows: list[tuple[object, ...]] = [("phase", "method", "step", "images", "tensor", "fisher", "loss")]
    found = [("task", method, course.points) for method, course in _courses(results).items()]
    for phase, method, points in [("meta-training", "", _along_training(results)), *found]:
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


def _courses(results: Results) -> dict[str, FisherCourse]:
    return {m: found for m, found in results.findings.get("fisher", {}).items() if isinstance(found, FisherCourse)}


def _along_training(results: Results) -> tuple[FisherPoint, ...]:
    return tuple(map(FisherPoint.model_validate, results.training.get("fisher", ())))


def _curves(results: Results) -> list[tuple[str, tuple[FisherPoint, ...]]]:
    """One curve for all methods that learn the first task in the same way, under all of their names."""
    shared: list[tuple[list[str], tuple[FisherPoint, ...]]] = []
    for method, course in _courses(results).items():
        same = next((names for names, points in shared if points == course.points), None)
        if same is not None:
            same.append(method)
        elif course.points:
            shared.append(([method], course.points))
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
        axes = panel(figure, 0.62 + 3.7 * column, top - tall + 0.42, 3.1, tall - 0.68)
        for number, (_, points, images) in enumerate(lines):
            readings = [_reading(point, images) for point in points]
            curve(
                axes,
                number,
                [point.step for point in points],
                [reading.loss if column else reading.trace for reading in readings],
                lines[number][0],
            )
            if not by_log and column == 0:
                legend_entry(figure, 5.6 + number, top - 0.18, number, lines[number][0])
        _steps_axis(axes, max(point.step for _, points, _ in lines for point in points), by_log)
        log_ticks(axes)
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
    axes = panel(figure, 0.62 + 2.42 * column, bottom + 0.5, 1.85, 1.0)
    for number, layer in enumerate(layers):
        sums = [sum(f for key, f in point.shots.layers.items() if block(key) == layer) for point in points]
        curve(axes, number, [point.step for point in points], sums, layer)
    log_ticks(axes)
    _steps_axis(axes, max(point.step for point in points), name != "meta-training")
    axes.set_title(name if len(name) < 30 else f"{name[:28]}…", fontsize=8.5, pad=4, loc="left", parse_math=False)


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


def _caption(results: Results) -> str:
    if _along_training(results):
        episodes = "fixed episodes of training classes that are answered by distance to class means"
        along = f"Along meta-training, on {episodes}; along"
    elif results.about["config"]["base"].get("use"):
        along = "The base came ready-made, so there is no meta-training to watch. Along"
    else:
        along = "Along"
    return (
        "Of the weights of the embedding: the mean over images of the squared gradient of the log-probability of the true "
        f"class, summed over weights, with the mean loss beside it; logarithmic. {along} the first task, on its shots, "
        "which are learned from, and on its test images, which are not. Methods that learn the first task alike share a "
        "line. The small panels are the shots again, by part of the network. Where the loss on the shots goes to zero, "
        "their gradients go with it."
    )


FISHER = FigureSpec(
    "fisher",
    fisher_svg,
    fisher_rows,
    _caption,
    when=lambda results: bool(_along_training(results) or _curves(results)),
    section=SECTION,
    heading="Fisher information",
)
