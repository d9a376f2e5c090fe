"""The first page of the benchmarks: a row for each headline of ours, and one for each claim of the paper."""

import tomllib
from typing import Any

from docs.tools.known_figures import difference, photograph_records
from docs.tools.runs import summaries
from docs.tools.site import DOCS, Made
from fscl.errors import StorageError
from fscl.evaluation.metrics import Interval, mean_interval
from fscl.report.summary import Figure

PHOTOGRAPHS = "python benchmarks/photographs.py --show benchmarks/results/photographs-*.json"


def overview_pages() -> Made:
    """The page, from docs/benchmarks/headlines.toml, the summaries and docs/claims.md."""
    content = tomllib.loads((DOCS / "benchmarks" / "headlines.toml").read_text("utf-8"))
    rows = [_headline(row) for row in content["headline"]] + [_photographs(row) for row in content["photographs"]]
    claims = [line for line in (DOCS / "claims.md").read_text("utf-8").splitlines() if line.startswith("|")]
    if not claims:
        raise StorageError("docs/claims.md has no table of claims.")
    lines = [
        "# Benchmarks",
        "",
        "Every figure comes from a file of figures in the repository, and every row says the command that makes it again. "
        "[Does two-step consolidation win?](reproduction.md), [does it get better at learning?](transfer.md) and "
        "[photographs](natural-images.md) tell the story; [every run](runs/index.md) has a page.",
        "",
        "## Ours",
        "",
        "Points of accuracy: mean of the paired difference, 95 % interval.",
        "",
        "| claim | ours | sequences | verdict | command |",
        "|---|---|---|---|---|",
        *rows,
        "",
        "## The paper's",
        "",
        "[What the verdicts mean, and what was asked how](../claims.md).",
        "",
        *claims,
    ]
    return {"benchmarks/index.md": "\n".join(lines) + "\n"}, {}


def _headline(row: dict[str, Any]) -> str:
    if row["run"] not in summaries():
        raise StorageError(f"docs/benchmarks/headlines.toml names the run {row['run']!r}, which has no summary.")
    summary = summaries()[row["run"]]
    methods = {method.method: method for method in summary.methods}
    method = methods[row["method"]]
    if "probe" in row:
        figure = method.probe_changes[row["probe"]][row["tasks"]]
    else:
        figure = difference(method, methods[row["minus"]], row["classes"])
    return _row(f"[{row['says']}](runs/{row['run']}.md)", figure, method.n_sequences, summary.command)


def _photographs(row: dict[str, Any]) -> str:
    taken = [
        record["accuracy"]
        for record in photograph_records()
        if (record["set"], record["shots"]) == (row["set"], row["shots"])
    ]
    rivals = [name for name in taken[0] if name != "ours"]
    best = max(rivals, key=lambda name: sum(record[name] for record in taken))
    figure = _of(mean_interval([100 * (record["ours"] - record[best]) for record in taken]))
    return _row(f"[{row['says']}](natural-images.md)", figure, len(taken), PHOTOGRAPHS)


def _of(interval: Interval) -> Figure:
    return Figure(mean=interval.mean, half_width=interval.half_width)


def _row(says: str, figure: Figure, n_sequences: int, command: str) -> str:
    verdict = "shown" if figure.excludes_zero else "not significant"
    if n_sequences < 10:
        verdict += ", preliminary"
    return f"| {says} | {figure.show(signed=True)} | {n_sequences} | {verdict} | `{command}` |"
