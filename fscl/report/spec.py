"""What a report is made of: a table is a list of measures, a page is a list of tables and figures.

Writers (terminal, CSV, LaTeX, Markdown, HTML) iterate over these and know none of them by name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fscl.evaluation.metrics import Interval
from fscl.report.results import Results

Value = Interval | float | int | None
DataRows = Sequence[Sequence[object]]
"""Rows of a data file; the first one is the heading."""


def always(results: Results) -> bool:
    """For what every run has."""
    return True


@dataclass(frozen=True)
class FigureSpec:
    """A figure of the page.

    Attributes:
        name: of the files `figures/<name>.svg` and `.csv`, and the prefix of all ids in the SVG.
        draw: an `<svg>` element (see `fscl.report.figures.svg.to_svg`).
        data: the numbers that it shows.
        caption: what is to be seen; text, or `Markup` where it needs tags.
        when: whether the run has what it shows; nothing is drawn of a run without a finished cell.
        section: the heading on the page under which it stands; a new one is added at the end.
        heading: over the figure itself, where a section has several.
    """

    name: str
    draw: Callable[[Results], str]
    data: Callable[[Results], DataRows]
    caption: Callable[[Results], str]
    when: Callable[[Results], bool] = always
    section: str = "Results"
    heading: str = ""


@dataclass(frozen=True)
class Measure:
    """A column of a table: one number a method.

    Attributes:
        key, unit: of the CSV file, where the column is `<key>_<unit>`, and beside an interval `<key>_half_width`.
        heading: of the page.
        of: the value for a method; NaN or None where nothing was measured.
        detail: in small letters under the heading: the unit and what else must be said.
        short: heading of the terminal, LaTeX and Markdown; `heading` unless given.
        latex: heading of LaTeX, where `short` has mathematics.
        meaning: for the glossary of the page.
        digits: after the point; None for as many as the size of the number deserves.
        scale: what is shown is the value divided by this, such as 1024 for KiB.
        signed: whether a plus is shown.
        lower_is_better: the direction in which the page sorts first.
        tested: whether the value is a difference that is marked where it is significant among all of its column.
        reference: the method that differences are taken to; its own cell says so.
        terminal: None to leave it out there; the column with the highest number goes first where 80 columns are short.
        page, paper: whether the page, and LaTeX and Markdown, show it. The CSV file has every measure.
        when: whether the run has it at all.
        figure: drawn wherever the table is shown.
    """

    key: str
    heading: str
    unit: str
    of: Callable[[Results, str], Value]
    detail: str = ""
    short: str = ""
    latex: str = ""
    meaning: str = ""
    digits: int | None = 1
    scale: float = 1.0
    signed: bool = False
    lower_is_better: bool = False
    tested: bool = False
    reference: str | None = None
    terminal: int | None = None
    page: bool = True
    paper: bool = True
    when: Callable[[Results], bool] = always
    figure: FigureSpec | None = None


Family = Callable[[Results], Sequence[Measure]]
"""Measures that depend on the run, such as accuracy at the numbers of classes that its configuration names."""


@dataclass(frozen=True)
class TableSpec:
    """A table of the page, and the files `<name>.csv`, `.tex` and `.md`.

    Attributes:
        caption: what the numbers are, in a sentence for the terminal and the files.
        measures: its columns, in order.
        note: under the table on the page; text, or `Markup` where it needs tags.
        finished_only: leave out methods that have no finished sequence.
    """

    name: str
    caption: str
    section: str
    measures: list[Measure | Family]
    note: Callable[[Results], str]
    finished_only: bool = True

    def measures_of(self, results: Results) -> tuple[Measure, ...]:
        """The measures that this run has."""
        found: list[Measure] = []
        for entry in self.measures:
            found += [entry] if isinstance(entry, Measure) else entry(results)
        return tuple(measure for measure in found if measure.when(results))


@dataclass(frozen=True)
class DataFile:
    """Numbers that the page offers for download under a table, without showing them."""

    name: str
    section: str
    label: str
    rows: Callable[[Results], DataRows]


@dataclass(frozen=True)
class Picture:
    """A PNG file with its caption."""

    png: bytes
    alt: str
    caption: str


@dataclass(frozen=True)
class Gallery:
    """Pictures that a run directory holds, shown on the page side by side or one below the other."""

    section: str
    pictures: Callable[[Results], list[Picture]]
    side_by_side: bool = True
