"""Penalties: how many weights a regulariser holds how firmly."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fscl.analysis.penalties import Penalties
from fscl.report.figures.panels import SECTION, after_tasks, log_ticks, panel
from fscl.report.figures.style import COLOURS, WIDTH, figure_style
from fscl.report.figures.svg import to_svg
from fscl.report.figures.tips import tip_points
from fscl.report.results import Results
from fscl.report.spec import DataRows, FigureSpec

SYMBOLS = {
    "fisher information": "F, Fisher information",
    "path integral": "Ω, path integral",
    "output sensitivity": "Ω, output sensitivity",
    "gate": "δ, gate",
}


def penalties_svg(results: Results) -> str:
    """How many weights are held how firmly: a histogram a method, each on a scale of its own."""
    shown = _penalties(results)
    with figure_style():
        columns, wide, tall = 3, 2.42, 2.15  # inches
        rows = -(-len(shown) // columns)
        figure = Figure(figsize=(WIDTH, rows * tall))
        for place, (method, penalties) in enumerate(shown):
            row, column = divmod(place, columns)
            axes = panel(figure, 0.62 + wide * column, (rows - row - 1) * tall + 0.52, 1.85, tall - 0.98)
            axes.stairs(penalties.counts, penalties.edges(), baseline=0.7, fill=True, color=COLOURS[0], alpha=0.75)
            axes.set_ylim(0.7, 2.5 * max(penalties.counts))
            edges, counts = np.array(penalties.edges()), np.array(penalties.counts, dtype=np.float64)
            bins = zip(edges[:-1], edges[1:], counts, strict=True)
            texts = [f"{low:.4g} to {high:.4g}: {n:,.0f} weights" for low, high, n in bins]
            tip_points(axes, (edges[1:] + edges[:-1]) / 2, np.where(counts > 0, counts, np.nan), texts)
            log_ticks(axes)
            axes.xaxis.set_major_locator(MaxNLocator(3))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
            axes.axvline(penalties.mean, color=COLOURS[1], linewidth=1.3, linestyle=(0, (4, 1.5)))
            axes.set_title(method, fontsize=9.5, pad=15, loc="left", parse_math=False)
            said = f"mean {penalties.mean:.3g}, λ = {penalties.strength:g}"
            axes.annotate(said, (0, 1), (0, 4), xycoords="axes fraction", textcoords="offset points", fontsize=8)
            axes.set_xlabel(f"{SYMBOLS[penalties.measure]}, {after_tasks(penalties.after)}", fontsize=8, labelpad=2)
            axes.set_ylabel("weights" if column == 0 else "", fontsize=8.5)
        return to_svg(figure, "penalties", "How many weights are held how firmly, one histogram for each method")


def penalties_rows(results: Results) -> DataRows:
    """A row a bin."""
    rows: list[tuple[object, ...]] = [("method", "measure", "tasks_learned", "strength", "from", "to", "weights")]
    for method, found in _penalties(results):
        edges = found.edges()
        rows += [
            (method, found.measure, found.after, found.strength, low, high, count)
            for low, high, count in zip(edges, edges[1:], found.counts, strict=False)
        ]
    return rows


def _penalties(results: Results) -> list[tuple[str, Penalties]]:
    found = results.findings.get("penalties", {})
    return [(method, penalties) for method, penalties in found.items() if isinstance(penalties, Penalties)]


def _caption(results: Results) -> str:
    return (
        "How many weights of the embedding (logarithmic) are held how firmly, each method on a scale of its own; the "
        "dashed line is the mean. In the penalty each value is multiplied by λ."
    )


PENALTIES = FigureSpec(
    "penalties",
    penalties_svg,
    penalties_rows,
    _caption,
    when=lambda results: bool(_penalties(results)),
    section=SECTION,
    heading="Penalties",
)
