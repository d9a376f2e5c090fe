"""The table of a run for a paper: a `booktabs` tabular with the columns that papers show."""

import math
from collections.abc import Callable, Sequence
from functools import partial

from fscl.evaluation.metrics import Interval
from fscl.report.tables import ACCURACY, Row, SummaryTable, shape, show_seconds, what_intervals
from fscl.report.transfer import TwoSides

MISSING = "--"
SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def latex_table(table: SummaryTable) -> str:
    """The tabular, under comments that say what the figures are and which package it needs."""
    columns: list[tuple[str, Callable[[Row], str]]] = [
        (f"$A_{{{n_classes}}}$", partial(_early, place=place)) for place, n_classes in enumerate(table.at_classes)
    ]
    columns.append(("final $A$", lambda row: _interval(row.final)))
    if table.has_reference:
        columns.append((f"minus {escape(table.reference)}", lambda row: _difference(table, row)))
    columns.append(("average $A$", lambda row: _interval(row.average)))
    if table.stream.base_way:
        columns.append(("drop", lambda row: _interval(row.drop)))
    columns.append(("forgetting", lambda row: _interval(row.forgetting)))
    columns.append(("s/task", lambda row: _seconds(row.learn_seconds)))
    if table.unfinished:
        columns.append(("$n$", lambda row: str(row.n_sequences)))
    body = [[escape(row.method), *(cell(row) for _, cell in columns)] for row in table.rows]
    return _tabular([_caption(table)], ["method", *(heading for heading, _ in columns)], body)


def latex_two_sides(rows: Sequence[TwoSides], moments: Sequence[int]) -> str:
    """What methods keep and how well they learn what is new: the probe after each of `moments` tasks, and its change."""
    sides = list(rows[0].probes) if rows else []
    heading = ["method", "final $A$", "old", "new", "harmonic"]
    for side in sides:
        heading += [f"{side} classes, {after} tasks" for after in moments] + ["change"]
    body = []
    for row in rows:
        cells = [escape(row.method), *(_interval(found) for found in (row.final, row.old, row.new, row.harmonic))]
        for side in sides:
            cells += [_interval(point.accuracy) for point in row.probes[side] if point.after in moments]
            last = row.probes[side][-1]
            cells.append(_interval(last.change, signed=True, bold=last.changed))
        body.append(cells)
    comment = "Accuracy and probes in %, mean and 95 % interval; bold: the interval of the change excludes zero."
    return _tabular([comment], heading, body)


def _tabular(comments: list[str], heading: list[str], body: list[list[str]]) -> str:
    lines = [f"% {sentence}" for sentence in [*comments, r"Needs \usepackage{booktabs}."]]
    lines += [rf"\begin{{tabular}}{{l{'r' * (len(heading) - 1)}}}", r"\toprule", _line(heading), r"\midrule"]
    return "\n".join([*lines, *map(_line, body), r"\bottomrule", r"\end{tabular}"]) + "\n"


def escape(text: str) -> str:
    """Text that LaTeX prints as it stands, on one line."""
    return "".join(SPECIAL.get(character, character) for character in " ".join(text.split()))


def _caption(table: SummaryTable) -> str:
    stream, name = table.stream, " ".join(table.name.split())
    tasks = "1 task" if stream.n_tasks == 1 else f"{stream.n_tasks} tasks"
    unfinished = f" Unfinished: {table.n_done} of {table.n_cells} cells." if table.unfinished else ""
    compared = (
        f" The differences to {table.reference} are taken sequence by sequence; bold where the 95 % interval excludes zero."
        if table.has_reference
        else ""
    )
    return (
        f"{name}: {tasks}, {shape(stream)}. A is {ACCURACY}, in %; differences and forgetting in "
        f"percentage points. {what_intervals(table)}.{compared}{unfinished}"
    )


def _line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _interval(interval: Interval | None, *, signed: bool = False, bold: bool = False) -> str:
    if interval is None or math.isnan(interval.mean):
        return MISSING
    text = f"{interval.mean:+z.1f}" if signed else f"{interval.mean:z.1f}"
    if not math.isnan(interval.half_width):
        text += rf" \pm {interval.half_width:.1f}"
    return rf"$\mathbf{{{text}}}$" if bold else f"${text}$"


def _early(row: Row, place: int) -> str:
    return _interval(row.early[place])


def _difference(table: SummaryTable, row: Row) -> str:
    return "reference" if row.method == table.reference else _interval(row.difference, signed=True, bold=row.differs)


def _seconds(seconds: float) -> str:
    return MISSING if math.isnan(seconds) else f"${show_seconds(seconds)}$"
