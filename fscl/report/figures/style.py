"""How all figures look: transparent, drawn in the page's own ink, with the names of methods at the ends of their lines.

Neutral parts take the colour of the surrounding text (`currentColor`), the lines have mid-tones that can be told apart by
colour-blind people on light and on dark paper, and each also has its own marker and dashes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath

from fscl.report.figures.lines import Values, with_outcomes
from fscl.report.figures.svg import INK
from fscl.report.figures.tips import tip_points
from fscl.report.results import Results

COLOURS = ("#0077bb", "#d55e00", "#009e73", "#cc6fa3", "#c48200", "#3d9ad6", "#8c6bb1", INK)  # after Okabe and Ito
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h", "*")
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)), (0, (9, 2)))
WIDTH = 7.6  # inches; of all figures, so that their letters are equally large in the page
LETTERS = 9.5  # points
RIGHT = 0.83  # where axes end, as a share of the width, unless a name needs more room
NAME_BEGINS = 0.37  # inches right of that
LABEL_GAP = 0.215  # inches, between two names at the ends of lines
NAMES_THAT_FIT = 15  # beside axes of the usual height; with more methods a figure is higher
MOST_BANDS = 8  # with more methods than this, bands would hide each other


@contextmanager
def figure_style() -> Iterator[None]:
    """Matplotlib's defaults, whatever the user has set elsewhere, with our ink."""
    with mpl.rc_context():
        mpl.rcdefaults()
        for key in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "axes.titlecolor"):
            mpl.rcParams[key] = INK
        mpl.rcParams["svg.fonttype"] = "none"
        mpl.rcParams["svg.hashsalt"] = "fscl"
        mpl.rcParams["font.size"] = LETTERS
        yield


def line_axes(figure: Figure, results: Results) -> Axes:
    """Axes that leave room for names on the right."""
    return dress_axes(figure.add_axes((0.085, 0.13, right_end(results) - 0.085, 0.84)))


def right_end(results: Results) -> float:
    """Where axes end, as a share of the figure's width, so that the longest name has room beyond them."""
    widths = [TextPath((0, 0), method, size=LETTERS).get_extents().width / 72 for method in results.finished_methods]
    return min(RIGHT, 1 - (NAME_BEGINS + max(widths, default=0) + 0.05) / WIDTH)


def dress_axes(axes: Axes) -> Axes:
    """Two thin spines, a faint grid, no ground."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_alpha(0.5)
    axes.grid(axis="y", color=INK, alpha=0.13, linewidth=0.7)
    axes.tick_params(color=INK, length=3, width=0.6)
    axes.patch.set_visible(False)
    return axes


def draw_line(
    axes: Axes, number: int, steps: Values, mean: Values, low: Values, high: Values, texts: Sequence[str] = ()
) -> None:
    """A line with its band; `texts` is what its points say when pointed at, if anything."""
    colour, marker, dashes = look(number)
    if len(steps) == 1:
        steps = steps + 0.07 * number  # side by side, with bars for bands
        axes.vlines(steps, low, high, color=colour, alpha=0.5, linewidth=1.2)
    line = axes.plot(steps, mean, color=colour, marker=marker, linestyle=dashes, linewidth=1.7, markersize=5)[0]
    line.set(gid=f"line-{number}", markevery=(_every(len(steps)) - 1, _every(len(steps))))
    if len(steps) > 1 and not np.array_equal(low, high, equal_nan=True):
        axes.fill_between(steps, low, high, color=colour, alpha=0.13, linewidth=0)
    if texts:
        tip_points(axes, steps, mean, texts)


def plus_minus(mean: float, half_width: float) -> str:
    """The value of a point; of a single sequence without an interval."""
    return f"{mean:.1f}" if np.isnan(half_width) else f"{mean:.1f} ± {half_width:.1f}"


def look(number: int) -> tuple[str, str, str | tuple[int, tuple[float, ...]]]:
    """Colour, marker and dashes of the line with this number."""
    return COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)], DASHES[number % len(DASHES)]


def name_lines(axes: Axes, results: Results) -> None:
    """Write each method's name at the end of its line, moved apart where lines end close together."""
    to_place = axes.transData + axes.transAxes.inverted()
    ends: list[tuple[float, float, int, str]] = []
    for number, method in with_outcomes(results):
        line = next(line for line in axes.lines if line.get_gid() == f"line-{number}")
        x, y = to_place.transform(np.nan_to_num(np.asarray(line.get_xydata(), dtype=np.float64))[-1])
        ends.append((float(np.clip(y, 0, 1)), float(x), number, method))
    ends.sort()
    figure = axes.get_figure(root=True)
    wide, high = np.asarray(axes.get_position().size) * (figure.get_size_inches() if figure else 1)
    places = spread([end[0] for end in ends], min(LABEL_GAP / high, 1 / max(len(ends) - 1, 1)))
    for (height, right, number, method), place in zip(ends, places, strict=True):
        colour, marker, _ = look(number)
        thread = axes.plot(
            [right + 0.07 / wide, 1 + 0.2 / wide], [height, place], color=colour, linewidth=0.7, alpha=0.7
        )
        key = axes.plot([1 + 0.25 / wide], [place], color=colour, marker=marker, markersize=5)
        for mark in (*thread, *key):
            mark.set(transform=axes.transAxes, clip_on=False)
        axes.text(
            1 + NAME_BEGINS / wide, place, method, transform=axes.transAxes, va="center_baseline", parse_math=False
        )


def bands_shown(results: Results) -> bool:
    """Whether lines have bands around them."""
    return len(results.finished_methods) <= MOST_BANDS


def stretch(results: Results) -> float:
    """How much higher than usual a figure is, so that every line can be named."""
    return max(1.0, len(results.finished_methods) / NAMES_THAT_FIT)


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights moved apart by at least `gap`, kept below the top where there is room."""
    places = list(heights)
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    ceiling = max(1.0, gap * (len(places) - 1))
    for i in reversed(range(len(places))):
        places[i] = min(places[i], ceiling)
        ceiling = places[i] - gap
    return places


def step_ticks(axes: Axes, steps: Values) -> None:
    """A tick at a dozen of the steps or so, and a little room on both sides."""
    every = _every(len(steps))
    axes.set_xticks(steps[every - 1 :: every])
    room = 0.03 * (steps[-1] - steps[0]) or 1.0
    axes.set_xlim(steps[0] - room, steps[-1] + room)


def _every(n: int) -> int:
    """Of how many points to mark one, for a dozen marks or so."""
    return next(size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if n <= 13 * size)
