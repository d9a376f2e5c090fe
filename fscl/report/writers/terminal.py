"""A table for a terminal of 80 columns or a file: the measures there is room for, cells never shortened."""

import textwrap

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from fscl.report.table import SIGNIFICANT, Cell, Table

WIDTH = 80  # columns that the text needs at most


def print_table(table: Table, console: Console) -> None:
    """The title, the table and what its marks mean. Columns go by their `terminal` number until the rest fits."""
    table = table.only(lambda measure: measure.terminal is not None)
    body = _body(table)
    while _width(body, console, 10 * WIDTH) > WIDTH and len(table.measures) > 1:
        table = _without_least(table)
        body = _body(table)
    body.width = _width(body, console, WIDTH)
    head = [table.title, *textwrap.wrap(" ".join([table.caption, *table.notes]), WIDTH)]
    console.print(Text("\n".join(head)), soft_wrap=True)
    console.print(body, crop=False, no_wrap=True, overflow="ignore")
    if table.has_significant:
        console.print(Text(f"* {SIGNIFICANT}."), soft_wrap=True)


def _without_least(table: Table) -> Table:
    least = max(reversed(table.measures), key=lambda measure: measure.terminal or 0)
    return table.only(lambda measure: measure is not least)


def _body(table: Table) -> RichTable:
    body = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    body.add_column("method", overflow="fold")
    for measure in table.measures:
        body.add_column(Text(measure.short or measure.heading), justify="right", no_wrap=True)
    for row in table.rows:
        cells = zip(row.cells, table.measures, strict=True)
        body.add_row(Text(row.method), *(Text(_text(cell, measure.tested)) for cell, measure in cells))
    return body


def _text(cell: Cell, tested: bool) -> str:
    """Tested columns keep room for the mark, so that their numbers stand below each other."""
    return cell.text if not tested else f"{cell.text} {'*' if cell.significant else ' '}"


def _width(body: RichTable, console: Console, most: int) -> int:
    return Measurement.get(console, console.options.update(max_width=most), body).maximum
