"""Small panels for figures of the inside of learners, and their legends."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from fscl.report.figures.style import look
from fscl.report.figures.svg import INK
from fscl.report.figures.tips import tip_points

SECTION = "Interference"


def panel(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
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


def log_ticks(axes: Axes) -> None:
    """A handful of ticks on a logarithmic axis, or words where there is nothing to show."""
    low, high = axes.get_ylim()
    if not any(np.isfinite(line.get_ydata(orig=True)).any() for line in axes.lines) and not axes.patches:
        axes.text(0.5, 0.5, "0 at every step", transform=axes.transAxes, ha="center", fontsize=8.5)
        axes.set_yticks([])
        return
    if high < 8 * low:
        axes.yaxis.set_major_locator(MaxNLocator(4))
    else:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,), numticks=6))


def curve(axes: Axes, number: int, steps: Sequence[int], values: Sequence[float], name: str) -> None:
    """A line with its markers; what is not above zero is left out."""
    colour, marker, dashes = look(number)
    shown = [value if value > 0 else np.nan for value in values]  # nothing has no place on a logarithmic axis
    axes.plot(steps, shown, color=colour, marker=marker, linestyle=dashes, linewidth=1.4, markersize=3.5)
    texts = [f"{name}, step {step}: {value:.4g}" for step, value in zip(steps, values, strict=True)]
    tip_points(axes, np.array(steps, dtype=np.float64), np.array(shown), texts)


def legend_entry(figure: Figure, x: float, y: float, number: int, name: str) -> None:
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


def after_tasks(n_tasks: int) -> str:
    """A moment of the stream in words."""
    return "before any task" if n_tasks == 0 else f"after {n_tasks} task{'s' if n_tasks > 1 else ''}"
