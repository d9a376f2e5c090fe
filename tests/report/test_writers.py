"""One table in the terminal, CSV, LaTeX and Markdown; and that a new measure needs no writer to know it."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fscl.experiment.record import RunRecord
from fscl.report.figures.lines import Rows
from fscl.report.measures import RESULTS
from fscl.report.page import write_report
from fscl.report.results import Results
from fscl.report.spec import FigureSpec, Measure
from fscl.report.values import percent
from fscl.report.writers.csv_file import csv_text
from fscl.report.writers.latex import escape, latex_table
from fscl.report.writers.markdown import markdown_table
from tests.report.runs import FAIR, GOOD, POOR, interval_of, make_run, page_of, table_of, text_of


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    return make_run(tmp_path / "toy", {"tsc": GOOD, "joint": FAIR, "replay": POOR})


def rows_of(record: RunRecord) -> dict[str, dict[str, str]]:
    return {row["method"]: row for row in csv.DictReader(io.StringIO(csv_text(table_of(record))))}


def test_a_long_name_costs_a_column_rather_than_its_own_end(tmp_path: Path) -> None:
    long = "fsw@slow_rate=0.001"
    record = make_run(tmp_path / "toy", {"joint": FAIR, long: GOOD}, run={"at_classes": [2], "reference": "joint"})
    assert long in text_of(record)
    assert "ms/image" not in text_of(record)
    assert "ms/image" in text_of(make_run(tmp_path / "short", {"joint": FAIR, "tsc": GOOD}))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_text_table_fits_80_columns_whole_and_without_escape_codes(record: RunRecord, width: int) -> None:
    text = text_of(record, width=width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "\x1b" not in text
    assert "…" not in text
    assert "single-head top-1 accuracy over all classes learned, inductive prediction" in text
    assert re.search(r"tsc +90\.0 ± 24\.8 +\+10\.0 ± 0\.0 \* +10\.0 ± 24\.8 +1\.0", text)


def test_the_mark_is_explained_where_it_is_used(record: RunRecord, tmp_path: Path) -> None:
    assert "* significant: paired t-test, p < 0.05 after Holm's correction for all methods." in text_of(record)
    assert "*" not in text_of(make_run(tmp_path / "same", {"tsc": FAIR, "joint": FAIR}))


def test_the_csv_has_every_number_and_nothing_where_there_is_none(record: RunRecord) -> None:
    rows = rows_of(record)
    assert list(rows) == ["tsc", "joint", "replay"]
    assert (rows["tsc"]["final_top1_percent"], rows["tsc"]["final_top1_half_width"]) == ("90", "24.841377")
    assert (rows["tsc"]["difference_points"], rows["tsc"]["difference_to"]) == ("10", "joint")
    assert [row["difference_significant"] for row in rows.values()] == ["yes", "", "no"]
    assert rows["joint"]["difference_points"] == rows["joint"]["difference_to"] == ""
    assert rows["tsc"]["peak_memory_bytes"] == str(2**20)


def test_accuracy_along_the_way_is_shown_in_every_form(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": GOOD, "joint": FAIR}, run={"at_classes": [2, 3, 4, 50]})
    table = table_of(record)
    assert [m.key for m in table.measures if m.heading == "A"] == ["A_2_top1"]  # 4 is the end; 3 and 50 never come
    assert interval_of(table, "tsc", "A_2_top1").mean == pytest.approx(100)
    assert interval_of(table, "joint", "A_2_top1").mean == pytest.approx(90)
    text = text_of(record)
    assert "A_2" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "$A_{2}$" in latex_table(table)
    assert "| A_2 |" in markdown_table(table)
    assert "2 classes, %" in page_of(record)
    rows = rows_of(record)
    assert rows["tsc"]["A_2_top1_percent"] == "100"
    assert rows["tsc"]["A_2_difference_points"] == "10"
    assert rows["joint"]["A_2_difference_points"] == ""
    assert float(rows["tsc"]["answer_ms_per_image"]) == pytest.approx(1000 * 2 / (3 * 2 * 5), abs=1e-3)


def test_names_are_printed_by_latex_as_they_stand() -> None:
    assert escape("tsc@half_rate 50% {a}") == r"tsc@half\_rate 50\% \{a\}"
    assert escape("a\\b^c~d") == r"a\textbackslash{}b\textasciicircum{}c\textasciitilde{}d"
    assert escape("two\nlines") == "two lines"


def test_the_latex_table_is_bold_where_a_difference_is_significant(record: RunRecord) -> None:
    text = latex_table(table_of(record))
    caption, bold, package, *lines = text.splitlines()
    assert caption.startswith("% toy: 2 tasks, 2-way 5-shot. A is single-head top-1 accuracy")
    assert "Mean ± 95 % interval over 3 sequences" in caption
    assert bold.startswith("% Bold, significant")
    assert package == r"% Needs \usepackage{booktabs}."
    assert lines[0] == r"\begin{tabular}{lrrrrrrr}"
    assert r"method & final $A$ & minus joint & average $A$ & forgetting & BWT & BWT, own & s/task \\" in lines
    assert (
        r"tsc & $90.0 \pm 24.8$ & $\mathbf{+10.0 \pm 0.0}$ & $95.0 \pm 12.4$ & $10.0 \pm 24.8$ & "
        r"$-10.0 \pm 24.8$ & $+0.0 \pm 0.0$ & $1.0$ \\"
    ) in lines
    assert any(line.startswith(r"joint & $80.0 \pm 24.8$ & reference &") for line in lines)
    assert any(line.startswith(r"replay & $78.3 \pm 19.0$ & $-1.7 \pm 7.2$ &") for line in lines)  # of 0, 0, -5


def test_the_latex_table_escapes_methods_and_dashes_what_is_missing(tmp_path: Path) -> None:
    table = table_of(make_run(tmp_path, {"tsc": GOOD[:1], "joint": []}, run={"n_sequences": 1}))
    named = replace(table, rows=tuple(replace(row, method=f"{row.method}@a_b%") for row in table.rows))
    lines = latex_table(named).splitlines()
    assert "Unfinished: 1 of 2 cells finished." in lines[0]
    assert (
        r"tsc@a\_b\% & $1$ & $80.0$ & $90.0$ & $20.0$ & $-20.0$ & $+0.0$ & $1.0$ \\" in lines
    )  # no interval, and no reference
    assert r"joint@a\_b\% & $0$ & -- & -- & -- & -- & -- & -- \\" in lines


def test_the_markdown_table_is_bold_where_a_difference_is_significant(record: RunRecord) -> None:
    lines = markdown_table(table_of(record)).splitlines()
    assert "| method | final A | minus joint | average A | forgetting | BWT | BWT, own | s/task |" in lines
    assert (
        "| `tsc` | 90.0 ± 24.8 | **+10.0 ± 0.0** | 95.0 ± 12.4 | 10.0 ± 24.8 | -10.0 ± 24.8 | +0.0 ± 0.0 | 1.0 |"
        in lines
    )
    assert any(line.startswith("| `joint` | 80.0 ± 24.8 | reference |") for line in lines)


def test_the_csv_file_is_the_text_of_the_table(record: RunRecord) -> None:
    write_report(record)
    assert (record.folder / "table.csv").read_bytes() == csv_text(table_of(record)).encode()


def _worst_task(results: Results) -> Rows:
    return [["method", "worst"], *([method, "50"] for method in results.finished_methods)]


WORST = Measure(
    "worst_task",
    "worst task",
    "percent",
    percent(lambda outcome, stream: float(outcome.top1[-1].min())),
    detail="at the end, %",
    meaning="The accuracy on the task that is remembered worst.",
    terminal=1,
    figure=FigureSpec(
        "worst",
        lambda results: '<svg viewBox="0 0 1 1" aria-label="worst task"/>',
        _worst_task,
        lambda results: f"The worst task of {results.name}.",
        section="A new heading",
    ),
)


@pytest.fixture
def worst_task() -> Iterator[None]:
    """A metric with a figure: one entry in one list."""
    RESULTS.append(WORST)
    yield
    RESULTS.remove(WORST)


@pytest.mark.usefixtures("worst_task")
def test_a_metric_with_a_figure_is_one_entry_that_every_writer_shows(record: RunRecord) -> None:
    assert re.search(r"joint .* 66\.7 ± 37\.9", text_of(record))  # of 50, 70, 80
    page = page_of(record)
    assert "worst task" in text_of(record)
    assert rows_of(record)["joint"]["worst_task_percent"] == "66.666667"
    assert "& worst task" in (record.folder / "table.tex").read_text()
    assert "| worst task |" in (record.folder / "table.md").read_text()
    assert "Worst task<small>at the end, %</small>" in page
    assert ">66.7 ± 37.9</td>" in page
    assert "<dd>The accuracy on the task that is remembered worst.</dd>" in page
    heading, figure = page.index("<h2>A new heading</h2>"), page.index('aria-label="worst task"')
    assert heading < figure < page.index("The worst task of toy.")
    assert 'download="toy-worst.csv"' in page
    assert (record.folder / "figures" / "worst.svg").exists()
    assert (record.folder / "figures" / "worst.csv").read_text() == "method,worst\ntsc,50\njoint,50\nreplay,50\n"


def test_without_the_entry_nothing_of_it_is_left(record: RunRecord) -> None:
    assert "worst task" not in page_of(record).lower()
