"""A table as computed: a row a method, a cell a measure. Writers only lay it out.

An unfinished run has a table too: each method is summarised over the sequences it has, and differences are taken on the
sequences that both methods have.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fscl.data.stream import StreamSpec
from fscl.evaluation.asking import IN_WORDS
from fscl.evaluation.metrics import Interval
from fscl.evaluation.verdicts import verdicts
from fscl.report.results import PRELIMINARY_BELOW, Results
from fscl.report.spec import Measure, TableSpec, Value

SIGNIFICANT = "significant: paired t-test, p < 0.05 after Holm's correction for all methods"
ACCURACY = "single-head top-1 accuracy over all classes learned, {prediction} prediction"
MISSING = "-"


@dataclass(frozen=True)
class Cell:
    """A value, its text, and whether it is a difference that is significant among all of its column."""

    value: Value
    text: str
    significant: bool = False
    is_reference: bool = False

    @property
    def number(self) -> float | None:
        """The mean of an interval, or the value; None where nothing was measured."""
        number = self.value.mean if isinstance(self.value, Interval) else self.value
        return None if number is None or math.isnan(number) else number


@dataclass(frozen=True)
class Row:
    """One method."""

    method: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """Rows in the order of the run's methods.

    Attributes:
        title: the run and its stream.
        caption: what the numbers are.
        notes: sentences that must stand beside it in any file: what stands on both sides of ±, and how far to trust it.
    """

    name: str
    title: str
    caption: str
    notes: tuple[str, ...]
    measures: tuple[Measure, ...]
    rows: tuple[Row, ...]

    def cell(self, method: str, key: str) -> Cell:
        """The cell of a method under the measure with this key."""
        place = [measure.key for measure in self.measures].index(key)
        return next(row for row in self.rows if row.method == method).cells[place]

    def only(self, wanted: Callable[[Measure], bool]) -> "Table":
        """The same table with the wanted measures alone."""
        places = [place for place, measure in enumerate(self.measures) if wanted(measure)]
        rows = tuple(Row(row.method, tuple(row.cells[place] for place in places)) for row in self.rows)
        return replace(self, measures=tuple(self.measures[place] for place in places), rows=rows)

    @property
    def description(self) -> str:
        """All that must be said of it."""
        return " ".join([f"{self.title}.", self.caption, *self.notes])

    @property
    def has_significant(self) -> bool:
        """Whether any cell is marked."""
        return any(cell.significant for row in self.rows for cell in row.cells)


def make_table(spec: TableSpec, results: Results) -> Table:
    """The table of a run: every measure for every method, computed once."""
    measures = spec.measures_of(results)
    methods = [m for m in results.methods if results.outcomes[m] or not spec.finished_only]
    columns = [_column(measure, results, methods) for measure in measures]
    rows = tuple(Row(method, tuple(column[place] for column in columns)) for place, method in enumerate(methods))
    title = f"{results.name}: {describe_run(results)}"
    caption = spec.caption.format(prediction=results.prediction)
    has_intervals = any(isinstance(cell.value, Interval) for row in rows for cell in row.cells)
    return Table(spec.name, title, caption, tuple(_notes(results, has_intervals)), measures, rows)


def show(value: Value, *, signed: bool = False, digits: int | None = 1, scale: float = 1.0) -> str:
    """ "91.2 ± 1.1"; a dash for what was not measured, and for the interval of a single sequence."""
    number = value.mean if isinstance(value, Interval) else value
    if number is None or math.isnan(number):
        return MISSING
    number /= scale
    places = _digits(number) if digits is None else digits
    text = f"{number:{'+' if signed else ''}z{',' if digits == 0 else ''}.{places}f}"
    if not isinstance(value, Interval):
        return text
    half = MISSING if math.isnan(value.half_width) else f"{value.half_width / scale:.{places}f}"
    return f"{text} ± {half}"


def describe_run(results: Results) -> str:
    """Its stream; and how test images were asked, where that was not each alone."""
    stream = describe_stream(results.stream)
    return stream if results.prediction == IN_WORDS["inductive"] else f"{stream}, {results.prediction}"


def describe_stream(stream: StreamSpec) -> str:
    """The tasks of a stream, in the words of the field."""
    tasks = "1 task" if stream.n_tasks == 1 else f"{stream.n_tasks} tasks"
    shape = f"{stream.n_way}-way {stream.n_shot}-shot"
    if stream.base_way:
        sessions = "1 session" if stream.n_tasks == 2 else f"{stream.n_tasks - 1} sessions"
        return f"a base session of {stream.base_way} classes ({stream.base_shot}-shot), then {sessions}, {shape}"
    if stream.setting == "new_instance":
        return f"{tasks}, {shape}, new examples of the same classes in each"
    if stream.setting == "mixed":
        period = "task" if stream.interval == 1 else f"{stream.interval} tasks"
        labels = " under the labels of the old ones" if stream.overwrite else ""
        return f"{tasks}, {shape}, new classes every {period}{labels}"
    return f"{tasks}, {shape}"


def _notes(results: Results, has_intervals: bool) -> list[str]:
    finished = "the finished of " if results.unfinished else ""
    found = [f"Mean ± 95 % interval over {finished}{results.n_sequences} sequences."] if has_intervals else []
    if results.n_sequences == 1:
        found = ["One sequence, so there are no intervals over sequences."]
    if results.preliminary:
        found.append(f"Preliminary: fewer than {PRELIMINARY_BELOW} sequences.")
    if results.unfinished:
        found.append(f"Unfinished: {results.n_done} of {results.n_cells} cells finished.")
    return found


def _column(measure: Measure, results: Results, methods: Sequence[str]) -> list[Cell]:
    cells = [_cell(measure, results, method) for method in methods]
    if not measure.tested:
        return cells
    told = verdicts([cell.value if isinstance(cell.value, Interval) else None for cell in cells])
    return [
        replace(cell, significant=each is not None and each.differs) for cell, each in zip(cells, told, strict=True)
    ]


def _cell(measure: Measure, results: Results, method: str) -> Cell:
    if method == measure.reference:
        return Cell(None, "reference", is_reference=True)
    value = measure.of(results, method)
    return Cell(value, show(value, signed=measure.signed, digits=measure.digits, scale=measure.scale))


def _digits(number: float) -> int:
    """As many as a duration of this size deserves."""
    size = abs(number)
    return 0 if size >= 100 else 1 if size >= 1 else 2 if size >= 0.1 else 3
