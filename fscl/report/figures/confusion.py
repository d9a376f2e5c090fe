"""What is taken for what after the last task: a matrix for each method."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fscl.evaluation.metrics import class_accuracies, mean_interval
from fscl.report.figures.lines import Rows, Values, number_text
from fscl.report.figures.style import WIDTH, figure_style
from fscl.report.figures.svg import INK, to_svg
from fscl.report.figures.tips import tip_cells
from fscl.report.results import Results
from fscl.report.spec import FigureSpec

DEEP = (0.03, 0.19, 0.42)  # of a confusion matrix; the page turns it light on dark paper


def confusion_svg(results: Results) -> str:
    """How often each class was called what after the last task: rows true, columns answered, in order of arrival."""
    with figure_style():
        methods = results.finished_methods
        columns, side = (3, 2.1) if len(methods) > 2 else (2, 3.2)  # inches, as all that follows
        rows = -(-len(methods) // columns)
        left, top, below, between, foot = 0.52, 0.28, 0.4, 0.32, 0.5
        height = rows * (top + side + below) + foot
        figure = Figure(figsize=(WIDTH, height))
        for place, method in enumerate(methods):
            row, column = divmod(place, columns)
            x, y = left + column * (side + between), height - (row + 1) * (top + side + below) + below
            axes = figure.add_axes((x / WIDTH, y / height, side / WIDTH, side / height))
            _confusion(axes, results, method)
            axes.set_ylabel("true class" if column == 0 else "")
            axes.set_xlabel("answered class" if place + columns >= len(methods) else "", labelpad=1)
        scale = figure.add_axes((left / WIDTH, 0.3 / height, side / WIDTH, 0.1 / height))
        scale.imshow(_deep(np.linspace(0, 1, 101)[None]), aspect="auto", interpolation="none", extent=(0, 100, 0, 1))
        scale.set_yticks([])
        scale.set_xticks([0, 50, 100])
        scale.tick_params(length=2, width=0.5, labelsize=8)
        scale.spines[:].set_alpha(0.5)
        scale.text(1.06, 0.5, "% of the images of the true class", transform=scale.transAxes, va="center_baseline")
        return to_svg(figure, "confusion", "Confusion matrices, one for each method, in order of arrival")


def confusion_counts(results: Results, method: str) -> NDArray[np.int64]:
    """How many images of each class (rows) were called what (columns) after the last task, over all sequences."""
    counts = np.sum([outcome.confusion for outcome in results.outcomes[method].values()], axis=0)
    return np.asarray(counts, dtype=np.int64)


def confusion_rows(results: Results) -> Rows:
    """One row for each pair of classes that occurred, with the number of images of the true class (`of`)."""
    rows = [["method", "true_class", "answered_class", "count", "of"]]
    for method in results.finished_methods:
        counts = confusion_counts(results, method)
        for true, answered in np.argwhere(counts):
            found = [true + 1, answered + 1, counts[true, answered], counts[true].sum()]
            rows.append([method, *map(str, found)])
    return rows


def class_rows(results: Results) -> Rows:
    """Accuracy of each class after the last task, in order of arrival: a row for each method and class."""
    rows = [["method", "class", "accuracy_percent", "half_width", "n_sequences"]]
    for method in results.finished_methods:
        outcomes = results.outcomes[method].values()
        shares = np.array([100 * class_accuracies(outcome.confusion) for outcome in outcomes])
        for place, interval in enumerate((mean_interval(column) for column in shares.T), start=1):
            found = [number_text(interval.mean), number_text(interval.half_width), str(interval.n)]
            rows.append([method, str(place), *found])
    return rows


def _confusion(axes: Axes, results: Results, method: str) -> None:
    counts = confusion_counts(results, method)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    n, n_way = len(shares), results.stream.n_way
    # Few classes keep sharp squares; of very many, a pixel of the screen shows the mean of several.
    axes.imshow(_deep(shares), interpolation="none" if n <= 200 else "auto", extent=(0, n, n, 0))
    every = n_way * -(-n // (n_way * 5))
    apart = n_way if n <= 25 * n_way else every
    for edge in range(apart, n, apart):
        axes.axhline(edge, color=INK, alpha=0.25, linewidth=0.4)
        axes.axvline(edge, color=INK, alpha=0.25, linewidth=0.4)
    right = 100 * np.trace(counts) / max(counts.sum(), 1)
    tip_cells(axes, counts, f"{method}: {right:.1f} % of the images answered right")
    axes.set_title(method, fontsize=10, pad=4, parse_math=False)
    axes.set_xticks(range(0, n + 1, every))
    axes.set_yticks(range(0, n + 1, every))
    axes.tick_params(length=2, width=0.5, labelsize=8)
    axes.spines[:].set_alpha(0.5)
    axes.patch.set_visible(False)


def _deep(shares: Values) -> Values:
    """One deep colour, the more opaque the higher the share: nothing is drawn where the share is 0."""
    return np.concatenate([np.broadcast_to(DEEP, (*shares.shape, 3)), shares[..., None]], axis=-1)


def _caption(results: Results) -> str:
    return (
        "After the last task, summed over sequences. Row: the true class; column: the answer; both in order of arrival, "
        "class 1 at the top left. Each row adds up to 100 %. Thin lines separate classes that arrived at different times."
    )


CONFUSION = FigureSpec("confusion", confusion_svg, confusion_rows, _caption, section="What is taken for what")
