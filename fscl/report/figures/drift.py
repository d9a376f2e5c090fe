"""Drift: where the test images of the first task lie in the plane of the embedding, a row a method, a column a moment."""

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fscl.analysis.drift import Drift
from fscl.report.figures.panels import SECTION, after_tasks
from fscl.report.figures.style import COLOURS, MARKERS, WIDTH, figure_style
from fscl.report.figures.svg import INK, to_svg
from fscl.report.figures.tips import tip_points
from fscl.report.results import Results
from fscl.report.spec import DataRows, FigureSpec


def drift_svg(results: Results) -> str:
    """The first task's test images in the plane of the embedding: a row a method, a column a moment."""
    shown = _drifts(results)
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


def drift_rows(results: Results) -> DataRows:
    """A row an image and moment; `moved` and `apart` are the moment's."""
    rows: list[tuple[object, ...]] = [("method", "tasks_learned", "image", "class", "x", "y", "moved", "apart")]
    for method, drift in _drifts(results):
        for moment, after in enumerate(drift.after):
            rows += [
                (method, after, image, drift.labels[image], x, y, drift.moved[moment], drift.apart[moment])
                for image, (x, y) in enumerate(drift.points[moment])
            ]
    return rows


def _drifts(results: Results) -> list[tuple[str, Drift]]:
    return [(method, found) for method, found in results.findings.get("drift", {}).items() if isinstance(found, Drift)]


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
    axes.set_title(after_tasks(drift.after[moment]), fontsize=8.5, pad=4)
    apart = drift.apart[moment]
    said = f"moved {drift.moved[moment]:.2f}" + ("" if apart is None else f", apart {apart:.2f}")
    axes.set_xlabel(said, fontsize=8.5, labelpad=2)


def _caption(results: Results) -> str:
    return Markup(
        "The test images of the first task as the method sees them, a colour and a mark a class; large marks are class "
        "means, and lines are the way they came. The two axes are the principal components of all moments of a method "
        "together, in units of the first moment's spread (root mean square distance from the middle). <b>Moved</b>: mean "
        "distance of an image from where it was at the first moment, in all dimensions and the same unit. <b>Apart</b>: "
        "scatter between classes over scatter within them."
    )


DRIFT = FigureSpec(
    "drift",
    drift_svg,
    drift_rows,
    _caption,
    when=lambda results: bool(_drifts(results)),
    section=SECTION,
    heading="Drift",
)
