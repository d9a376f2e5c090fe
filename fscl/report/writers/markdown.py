"""A table in Markdown, for an issue or a README: the measures that papers show."""

from fscl.report.table import SIGNIFICANT, Cell, Table


def markdown_table(table: Table) -> str:
    """The table under its title, with what must be said of the numbers."""
    table = table.only(lambda measure: measure.paper)
    lines = [table.description, ""]
    lines.append(_line(["method", *(measure.short or measure.heading for measure in table.measures)]))
    lines.append("|---" + "|---:" * len(table.measures) + "|")
    lines += [_line([f"`{row.method}`", *map(_cell, row.cells)]) for row in table.rows]
    if table.has_significant:
        lines += ["", f"Bold, {SIGNIFICANT}."]
    return "\n".join(lines) + "\n"


def _cell(cell: Cell) -> str:
    return f"**{cell.text}**" if cell.significant else cell.text


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
