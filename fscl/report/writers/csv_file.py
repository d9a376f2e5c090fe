"""A table as CSV: every measure in full, empty where nothing was measured."""

import math

from fscl.evaluation.metrics import Interval
from fscl.report.figures.lines import to_csv
from fscl.report.spec import Measure
from fscl.report.table import Cell, Table


def csv_text(table: Table) -> str:
    """One row a method; beside a mean its half-width, beside a difference to what, and whether it is significant."""
    kinds = [_has_interval(table, place) for place in range(len(table.measures))]
    heading = ["method"]
    for measure, has_interval in zip(table.measures, kinds, strict=True):
        heading += _headings(measure, has_interval)
    rows = [heading]
    for row in table.rows:
        line = [row.method]
        for measure, cell, has_interval in zip(table.measures, row.cells, kinds, strict=True):
            line += _values(measure, cell, has_interval)
        rows.append(line)
    return to_csv(rows)


def _has_interval(table: Table, place: int) -> bool:
    return any(isinstance(row.cells[place].value, Interval) for row in table.rows)


def _headings(measure: Measure, has_interval: bool) -> list[str]:
    found = [f"{measure.key}_{measure.unit}" if measure.unit else measure.key]
    found += [f"{measure.key}_half_width"] if has_interval else []
    found += [f"{measure.key}_to"] if measure.reference is not None else []
    return [*found, f"{measure.key}_significant"] if measure.tested else found


def _values(measure: Measure, cell: Cell, has_interval: bool) -> list[str]:
    half = cell.value.half_width if isinstance(cell.value, Interval) else math.nan
    found = [_number(cell.number)]
    found += [_number(half)] if has_interval else []
    found += ["" if cell.number is None else measure.reference] if measure.reference is not None else []
    return [*found, "" if math.isnan(half) else "yes" if cell.significant else "no"] if measure.tested else found


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return ""
    return str(value) if isinstance(value, int) else f"{value:.8g}"
