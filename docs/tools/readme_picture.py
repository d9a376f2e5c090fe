"""Makes docs/images/readme.png from committed summaries: `python -m docs.tools.readme_picture`.

Left: accuracy over everything learned, the same augmentation for those that train (`omniglot-augmented`). Right: accuracy on
fresh problems before and after a stream (`omniglot-systems`).
"""

import sys
from pathlib import Path
from typing import Any

from docs.tools.runs import summaries
from docs.tools.site import DOCS
from fscl.report.summary import Figure

OUT = DOCS / "images" / "readme.png"
LEFT, RIGHT = "omniglot-augmented", "omniglot-systems"
PROBE = "novel 20w1s"
SHOWN_LEFT = {"tsc": "tsc", "joint@jitter": "joint training", "prototypes": "class means"}
SHOWN_RIGHT = {"tsc": "tsc", "prototypes": "class means, joint training", "replay": "replay"}
COLOURS = {
    "tsc": "#0b6e5b",
    "joint@jitter": "#c05621",
    "prototypes": "#4a5568",
    "replay": "#805ad5",
}


def lines_left() -> dict[str, dict[int, Figure]]:
    """Accuracy by number of classes, of each method shown."""
    return {method.method: method.accuracy for method in summaries()[LEFT].methods if method.method in SHOWN_LEFT}


def lines_right() -> dict[str, dict[int, Figure]]:
    """The probe on classes never seen, by number of tasks."""
    methods = summaries()[RIGHT].methods
    return {method.method: method.probes[PROBE] for method in methods if method.method in SHOWN_RIGHT}


def in_words() -> str:
    """All figures of the picture, as its file says them, so that a test can tell whether it is the newest."""
    sides = ((LEFT, lines_left()), (RIGHT, lines_right()))
    return "; ".join(
        f"{run} {name} {moment}: {figure.show()}"
        for run, lines in sides
        for name, points in lines.items()
        for moment, figure in points.items()
    )


def draw(out: Path) -> None:
    """Write the picture."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        canvas = Canvas(figsize=(9, 3.3), layout="constrained", dpi=160)
        left, right = canvas.subplots(1, 2)
        _side(
            left,
            lines_left(),
            SHOWN_LEFT,
            "What it keeps: accuracy over everything learned, %",
            "handwritten characters learned",
        )
        _side(
            right,
            lines_right(),
            SHOWN_RIGHT,
            "How well it learns: fresh 20-way 1-shot problems, %",
            "tasks learned before",
        )
        left.set_xticks([30, 50])
        left.set_xlim(26, 54)
        canvas.savefig(out, metadata={"Description": in_words(), "Software": None})


def _side(axes: Any, lines: dict[str, dict[int, Figure]], names: dict[str, str], title: str, below: str) -> None:
    for name, points in lines.items():
        means = [figure.mean for figure in points.values()]
        errors = [figure.half_width or 0 for figure in points.values()]
        axes.errorbar(
            list(points), means, yerr=errors, marker="o", ms=4, capsize=3, color=COLOURS[name], label=names[name]
        )
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(below)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, fontsize=9)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
    print(OUT)
