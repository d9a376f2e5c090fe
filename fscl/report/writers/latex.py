"""A table for a paper: a `booktabs` tabular with the measures that papers show."""

from fscl.report.spec import Measure
from fscl.report.table import MISSING, SIGNIFICANT, Cell, Table

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def latex_table(table: Table) -> str:
    """The tabular, under comments that say what the figures are and which package it needs."""
    table = table.only(lambda measure: measure.paper)
    comments = [table.description, r"Needs \usepackage{booktabs}."]
    if table.has_significant:
        comments.insert(1, f"Bold, {SIGNIFICANT}.")
    lines = [f"% {' '.join(comment.split())}" for comment in comments]
    lines += [rf"\begin{{tabular}}{{l{'r' * len(table.measures)}}}", r"\toprule"]
    lines += [_line(["method", *map(_heading, table.measures)]), r"\midrule"]
    lines += [_line([escape(row.method), *map(_cell, row.cells)]) for row in table.rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def escape(text: str) -> str:
    """Text that LaTeX prints as it stands, on one line."""
    return "".join(SPECIAL.get(character, character) for character in " ".join(text.split()))


def _heading(measure: Measure) -> str:
    return measure.latex or escape(measure.short or measure.heading)


def _cell(cell: Cell) -> str:
    if cell.is_reference:
        return cell.text
    if cell.number is None:
        return "--"
    number = cell.text.removesuffix(f" ± {MISSING}").replace("±", r"\pm").replace(",", "{,}")
    return rf"$\mathbf{{{number}}}$" if cell.significant else f"${number}$"


def _line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"
