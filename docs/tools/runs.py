"""A page for each run, from its summary in docs/results: what was run, its tables, and a picture."""

import io
from collections.abc import Callable
from functools import cache, partial

from docs.tools.reproduction import PAPER, PaperTable, table_of
from docs.tools.site import DOCS, Made
from fscl.report.summary import Summary, read_summary

RESULTS = DOCS / "results"


@cache
def summaries() -> dict[str, Summary]:
    """Every committed summary by the name of its run, in the order of the paper; others at the end."""
    found = {summary.name: summary for summary in map(read_summary, sorted(RESULTS.glob("*.json")))}
    order = [paper.run for paper in PAPER if paper.run in found]
    return {name: found[name] for name in [*order, *(name for name in found if name not in order)]}


def run_pages() -> Made:
    """The pages of all runs, their pictures, and a list."""
    titles = {paper.run: paper for paper in PAPER}
    pages: dict[str, str] = {}
    pictures: dict[str, Callable[[], bytes]] = {}
    lines = [
        "# Runs",
        "",
        "Each page is made from a summary that `fscl summary` wrote of a run, and says the command that makes it again. "
        "[How to read the tables](../how-to-read.md).",
        "",
        "| run | what it asks | sequences |",
        "|---|---|---|",
    ]
    for name, summary in summaries().items():
        paper = titles.get(name, PaperTable(name, name, {}))
        pages[f"benchmarks/runs/{name}.md"] = _page(summary, paper)
        pictures[f"benchmarks/runs/{name}.svg"] = partial(picture, summary)
        lines.append(f"| [{name}]({name}.md) | {paper.title} | {summary.n_sequences} |")
    pages["benchmarks/runs/index.md"] = "\n".join(lines) + "\n"
    return pages, dict(pictures)


def _page(summary: Summary, paper: PaperTable) -> str:
    text = table_of(summary, paper).removeprefix("## ")
    title, _, body = text.partition("\n")
    return (
        f"# {title}\n{body}\n## Picture\n\n![Accuracy of each method after the last task]({summary.name}.svg)\n\n"
        f"Made from [{summary.name}.json](../../results/{summary.name}.json). "
        "[How to read the tables](../how-to-read.md).\n"
    )


def picture(summary: Summary) -> bytes:
    """Accuracy of each method after the last task, with its interval, as SVG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    shown = [method for method in summary.methods if method.accuracy]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": summary.name, "font.size": 9}):
        figure = Figure(figsize=(7, 1 + 0.24 * len(shown)), layout="constrained")
        axes = figure.subplots()
        last = list(shown[0].accuracy)[-1] if shown else 0
        for place, method in enumerate(reversed(shown)):
            found = method.accuracy[last]
            axes.errorbar(found.mean, place, xerr=found.half_width or 0, fmt="o", color="#4c6ef5", ms=4, capsize=2)
        axes.set_yticks(range(len(shown)), [method.method for method in reversed(shown)])
        axes.set_xlabel(f"accuracy after {last} classes, % (95 % interval over sequences)")
        axes.grid(axis="x", alpha=0.3)
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()
