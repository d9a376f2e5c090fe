"""The figures of a report as SVG, to be put into a page: transparent, and drawn in the page's own ink.

Neutral parts take the colour of the surrounding text (`currentColor`), the lines have mid-tones that can be told apart by
colour-blind people on light and on dark paper, and each also has its own marker and dashes. Same results, same bytes.
"""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from fscl.report.figure_data import accuracy_lines, confusion_counts, seconds_lines
from fscl.report.figure_data import steps as _steps
from fscl.report.figure_data import with_outcomes as _with_outcomes
from fscl.report.results import Results
from fscl.report.tips import SVG, add_tips, tip_cells, tip_points

INK = "#010203"  # stands for currentColor until the SVG is written
COLOURS = ("#0077bb", "#d55e00", "#009e73", "#cc6fa3", "#c48200", "#3d9ad6", "#8c6bb1", INK)  # after Okabe and Ito
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h", "*")
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)), (0, (9, 2)))
DEEP = (0.03, 0.19, 0.42)  # of a confusion matrix; the page turns it light on dark paper
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
XLINK = "http://www.w3.org/1999/xlink"
WIDTH = 7.6  # inches; of all figures, so that their letters are equally large in the page
LETTERS = 9.5  # points
RIGHT = 0.83  # where axes end, as a share of the width, unless a name needs more room
NAME_BEGINS = 0.37  # inches right of that
LABEL_GAP = 0.215  # inches, between two names at the ends of lines
NAMES_THAT_FIT = 15  # beside axes of the usual height; with more methods a figure is higher
MOST_BANDS = 8  # with more methods than this, bands would hide each other

Values = NDArray[np.float64]


def accuracy_svg(results: Results) -> str:
    """Accuracy over all classes learned so far, after each task: mean and 95 % band over sequences."""
    with figure_style():
        figure = Figure(figsize=(WIDTH, 4.2 * stretch(results)))
        axes = line_axes(figure, results)
        steps, meaning = _steps(results)
        lowest, highest = 100.0, 0.0
        noun = "class" if "classes" in meaning else "task"
        for line in accuracy_lines(results):
            mean = line.mean
            half = np.nan_to_num(line.half_width)
            texts = [
                f"{line.method}, {_count(step, noun)}: {plus_minus(value, width)} %"
                for step, value, width in zip(steps, mean, line.half_width, strict=True)
            ]
            half = half if bands_shown(results) else np.zeros_like(half)
            draw_line(axes, line.number, steps, mean, mean - half, mean + half, texts)
            lowest, highest = min(lowest, *(mean - half)), max(highest, *(mean + half))
        margin = 0.04 * max(highest - lowest, 10)
        axes.set_ylim(max(lowest, 0) - margin, min(highest, 100) + margin)  # bands end where accuracy does
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.set_xlabel(meaning)
        axes.set_ylabel("single-head accuracy (%)")
        step_ticks(axes, steps)
        name_lines(axes, results)
        return to_svg(figure, "accuracy", f"Accuracy against {meaning}, one line for each method")


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


def confusion_svg(results: Results) -> str:
    """How often each class was called what after the last task: rows true, columns answered, in order of arrival."""
    with figure_style():
        methods = [method for _, method in _with_outcomes(results)]
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
    widths = [TextPath((0, 0), method, size=LETTERS).get_extents().width / 72 for _, method in _with_outcomes(results)]
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


def _count(n: float, noun: str) -> str:
    return f"1 {noun}" if n == 1 else f"{n:.0f} {'classes' if noun == 'class' else noun + 's'}"


def plus_minus(mean: float, half_width: float) -> str:
    return f"{mean:.1f}" if np.isnan(half_width) else f"{mean:.1f} ± {half_width:.1f}"


def _seconds(mean: float, low: float, high: float, n_sequences: int) -> str:
    return f"{mean:.3g} s" if n_sequences == 1 else f"{mean:.3g} s ({low:.3g} to {high:.3g})"


def look(number: int) -> tuple[str, str, str | tuple[int, tuple[float, ...]]]:
    return COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)], DASHES[number % len(DASHES)]


def name_lines(axes: Axes, results: Results) -> None:
    """Write each method's name at the end of its line, moved apart where lines end close together."""
    to_place = axes.transData + axes.transAxes.inverted()
    ends: list[tuple[float, float, int, str]] = []
    for number, method in _with_outcomes(results):
        line = next(line for line in axes.lines if line.get_gid() == f"line-{number}")
        x, y = to_place.transform(np.nan_to_num(np.asarray(line.get_xydata(), dtype=np.float64))[-1])
        ends.append((float(np.clip(y, 0, 1)), float(x), number, method))
    ends.sort()
    figure = axes.get_figure(root=True)
    wide, high = np.asarray(axes.get_position().size) * (figure.get_size_inches() if figure else 1)
    places = _spread([end[0] for end in ends], min(LABEL_GAP / high, 1 / max(len(ends) - 1, 1)))
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
    return len(_with_outcomes(results)) <= MOST_BANDS


def stretch(results: Results) -> float:
    """How much higher than usual a figure is, so that every line can be named."""
    return max(1.0, len(_with_outcomes(results)) / NAMES_THAT_FIT)


def _spread(heights: Sequence[float], gap: float) -> list[float]:
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
    every = _every(len(steps))
    axes.set_xticks(steps[every - 1 :: every])
    room = 0.03 * (steps[-1] - steps[0]) or 1.0
    axes.set_xlim(steps[0] - room, steps[-1] + room)


def _every(n: int) -> int:
    """Of how many points to mark one, for a dozen marks or so."""
    return next(size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if n <= 13 * size)


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


def to_svg(figure: Figure, name: str, title: str) -> str:
    """An <svg> element that can stand beside others in one page: ids begin with `name`, no date, no fixed size."""
    buffer = io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}style", f"{{{SVG}}}metadata"):
                parent.remove(child)
    seen: set[str] = set()
    for element in root.iter():
        if element.get("id", "") in seen:  # a shape defined twice, under an id that is a hash of its content
            del element.attrib["id"]
        seen.add(element.get("id", "no id"))
        for key, value in element.attrib.items():
            element.set(key, _rewrite(key, value, name))
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("role", "img")
    root.set("aria-label", title)
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")
    add_tips(figure, root)
    return ElementTree.tostring(root, encoding="unicode")


def stand_alone(svg: str) -> str:
    """The same figure as a file of its own: with a size, and dark ink on white wherever it is shown."""
    root = ElementTree.fromstring(svg)
    _, _, width, height = root.attrib["viewBox"].split()
    root.set("width", f"{width}pt")
    root.set("height", f"{height}pt")
    root.set("style", f"color: #222; background: #fff; {root.get('style', '')}")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _rewrite(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == f"{{{XLINK}}}href" and value.startswith("#"):
        return f"#{name}-{value[1:]}"
    if key == "style":
        value = re.sub(r"(font-family:|font: [^;']*?px) [^;]*", rf"\1 {FONTS}", value)
    return value.replace("url(#", f"url(#{name}-").replace(INK, "currentColor")
