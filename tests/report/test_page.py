"""What a page carries besides words: values to sort by, texts under the pointer, and files to download."""

import base64
import csv
import hashlib
import io
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from fscl.experiment.plan import Cell, Finished
from fscl.experiment.record import RunRecord
from fscl.report.figure_data import accuracy_rows, confusion_rows, seconds_rows
from fscl.report.figures import accuracy_svg, confusion_svg, seconds_svg
from fscl.report.latex import escape, latex_table
from fscl.report.page import _link, write_report
from fscl.report.results import read_results
from fscl.report.tables import csv_text, summary_table, write_csv
from fscl.report.tips import SVG, add_tips, sparse, tip_cells, tip_points
from tests.report.test_report import FAIR, GOOD, POOR, append, make_run, page_of


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    return make_run(tmp_path / "toy", {"tsc": GOOD, "joint": FAIR, "replay": POOR})


def titles(svg: str) -> list[str]:
    return [title.text or "" for title in ElementTree.fromstring(svg).iter(f"{{{SVG}}}title")]


# LaTeX


def test_names_are_printed_by_latex_as_they_stand() -> None:
    assert escape("tsc@half_rate 50% {a}") == r"tsc@half\_rate 50\% \{a\}"
    assert escape("a\\b^c~d") == r"a\textbackslash{}b\textasciicircum{}c\textasciitilde{}d"
    assert escape("two\nlines") == "two lines"


def test_the_latex_table_is_bold_where_the_interval_of_the_difference_excludes_zero(record: RunRecord) -> None:
    text = latex_table(summary_table(record))
    caption, package, *lines = text.splitlines()
    assert caption.startswith("% toy: 2 tasks, 2-way 5-shot. A is single-head top-1 accuracy")
    assert "Mean ± 95 % interval over 3 sequences" in caption
    assert package == r"% Needs \usepackage{booktabs}."
    assert lines[0] == r"\begin{tabular}{lrrrrr}"
    assert r"method & final $A$ & minus joint & average $A$ & forgetting & s/task \\" in lines
    assert r"tsc & $90.0 \pm 24.8$ & $\mathbf{+10.0 \pm 0.0}$ & $95.0 \pm 12.4$ & $10.0 \pm 24.8$ & $1.0$ \\" in lines
    assert any(line.startswith(r"joint & $80.0 \pm 24.8$ & reference &") for line in lines)
    assert any(line.startswith(r"replay & $78.3 \pm 19.0$ & $-1.7 \pm 7.2$ &") for line in lines)  # of 0, 0, -5


def test_the_latex_table_escapes_methods_and_dashes_what_is_missing(tmp_path: Path) -> None:
    table = summary_table(make_run(tmp_path, {"tsc": GOOD[:1], "joint": []}, run={"n_sequences": 1}))
    named = replace(table, rows=tuple(replace(row, method=f"{row.method}@a_b%") for row in table.rows))
    lines = latex_table(named).splitlines()
    assert "Unfinished: 1 of 2 cells." in lines[0]
    assert r"tsc@a\_b\% & $80.0$ & $90.0$ & $20.0$ & $1.0$ & 1 \\" in lines  # no interval, and no reference
    assert r"joint@a\_b\% & -- & -- & -- & -- & 0 \\" in lines


# Files beside the page, and the same in it


def test_the_csv_file_is_the_text_of_the_table(record: RunRecord, tmp_path: Path) -> None:
    table = summary_table(record)
    write_csv(table, tmp_path / "table.csv")
    write_report(record)
    assert (tmp_path / "table.csv").read_bytes() == (record.folder / "table.csv").read_bytes()
    assert (tmp_path / "table.csv").read_bytes() == csv_text(table).encode()


def test_links_hold_the_files_that_lie_beside_the_page(record: RunRecord) -> None:
    page = page_of(record)
    links = dict(re.findall(r'<a href="data:[^,]*,([^"]*)" download="([^"]*)"', page))
    held = {name: unquote(content.replace("&#39;", "'")) for content, name in links.items()}
    beside = {
        "toy.csv": "table.csv",
        "toy.tex": "table.tex",
        **{f"toy-{name}.csv": f"figures/{name}.csv" for name in ("accuracy", "confusion", "seconds")},
        **{f"toy-{name}.csv": f"{name}.csv" for name in ("two-sides", "cost", "classes")},
    }
    assert held.pop("toy-two-sides.tex").startswith("% Accuracy and probes in %")
    assert held == {name: (record.folder / path).read_text("utf-8") for name, path in beside.items()}


def test_a_file_too_long_for_a_link_is_named_instead() -> None:
    assert _link("text/csv", "a,b\n" * 10) is not None
    assert _link("text/csv", "a,b\n" * 2**18) is None


@pytest.mark.parametrize("name", ["accuracy", "confusion", "seconds"])
def test_a_figure_by_itself_has_a_size_and_uses_the_usual_black(record: RunRecord, name: str) -> None:
    write_report(record)
    root = ElementTree.fromstring((record.folder / "figures" / f"{name}.svg").read_bytes())
    _, _, width, height = root.attrib["viewBox"].split()
    assert (root.get("width"), root.get("height")) == (f"{width}pt", f"{height}pt")
    assert root.get("color") is None


def test_the_accuracy_file_has_the_points_that_are_drawn(record: RunRecord) -> None:
    heading, *rows = accuracy_rows(read_results(record))
    assert heading == ["method", "n_classes", "accuracy_percent", "half_width", "n_sequences"]
    assert rows[0] == ["tsc", "2", "100.000000", "0.000000", "3"]
    assert rows[1][:3] == ["tsc", "4", "90.000000"]
    assert titles(accuracy_svg(read_results(record))) == [
        f"{method}, {n} classes: {float(mean):.1f} ± {float(half):.1f} %" for method, n, mean, half, _ in rows
    ]


def test_the_seconds_file_has_the_points_that_are_drawn(record: RunRecord) -> None:
    _, *rows = seconds_rows(read_results(record))
    assert rows[1] == ["tsc", "2", "1.500000", "1.500000", "1.500000", "3"]
    assert titles(seconds_svg(read_results(record)))[:2] == [
        "tsc, task 1: 0.5 s (0.5 to 0.5)",
        "tsc, task 2: 1.5 s (1.5 to 1.5)",
    ]


def test_the_confusion_file_has_the_counts_that_are_drawn(record: RunRecord) -> None:
    results = read_results(record)
    heading, *rows = confusion_rows(results)
    assert heading == ["method", "true_class", "answered_class", "count", "of"]
    assert rows[:2] == [["tsc", "1", "1", "15", "24"], ["tsc", "1", "2", "3", "24"]]  # 5 and 1 of 8, in 3 sequences
    svg = confusion_svg(results)
    assert titles(svg)[0] == "tsc: 62.5 % of the images answered right"
    cells = [rectangle.get("data-cells") for rectangle in ElementTree.fromstring(svg).iter(f"{{{SVG}}}rect")]
    drawn = [cell for cell in cells if cell is not None]
    assert drawn[0] == "0:15,1:3,2:3,3:3;0:3,1:15,2:3,3:3;0:3,1:3,2:15,3:3;0:3,1:3,2:3,3:15"
    assert len(drawn) == 3


def test_a_single_sequence_says_no_interval(tmp_path: Path) -> None:
    results = read_results(make_run(tmp_path, {"tsc": GOOD[:1]}, run={"n_sequences": 1}))
    assert titles(accuracy_svg(results)) == ["tsc, 2 classes: 100.0 %", "tsc, 4 classes: 80.0 %"]
    assert titles(seconds_svg(results))[0] == "tsc, task 1: 0.5 s"
    assert accuracy_rows(results)[1] == ["tsc", "2", "100.000000", "", "1"]


def test_a_task_too_short_for_the_clock_says_nothing_and_is_empty_in_the_file(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": []}, run={"n_sequences": 1})
    cost = {"learn_seconds": [0.0, 2.0], "predict_seconds": [1.0, 1.0], "peak_memory_bytes": 0}
    rows = GOOD[0]
    confusion = np.eye(4, dtype=int).tolist()
    result = {"top1": rows, "top5": rows, "restricted": rows, "confusion": confusion}
    record.append(Cell("tsc", 0), Finished(result, cost))
    results = read_results(record)
    assert titles(seconds_svg(results)) == ["tsc, task 2: 2 s"]
    assert seconds_rows(results)[1] == ["tsc", "1", "", "", "", "1"]


# Places


def test_tips_lie_where_the_axes_put_them_whenever_the_limits_are_set() -> None:
    figure = Figure(figsize=(2, 1))  # 144 × 72 points
    axes = figure.add_axes((0.5, 0.0, 0.5, 1.0))
    tip_points(axes, np.array([0.0, 5.0, 6.0]), np.array([0.0, 5.0, np.nan]), ["corner", "middle", "nowhere"])
    tip_cells(axes, np.eye(10, dtype=np.int64), "all")
    axes.set(xlim=(0, 10), ylim=(0, 10))
    root = ElementTree.Element("svg")
    add_tips(figure, root)
    places = [(circle.get("cx"), circle.get("cy")) for circle in root.iter(f"{{{SVG}}}circle")]
    assert places == [("72.00", "72.00"), ("108.00", "36.00")]
    assert [title.text for title in root.iter(f"{{{SVG}}}title")] == ["corner", "middle", "all"]


def test_points_lie_on_the_markers_of_their_line(record: RunRecord) -> None:
    root = ElementTree.fromstring(accuracy_svg(read_results(record)))
    line = next(group for group in root.iter() if group.get("id") == "accuracy-line-0")
    marks = [(float(use.get("x", "")), float(use.get("y", ""))) for use in line.iter(f"{{{SVG}}}use")]
    tips = next(group for group in root.iter() if group.get("class") == "tips")
    places = [(float(circle.get("cx", "")), float(circle.get("cy", ""))) for circle in tips]
    assert np.array(places) == pytest.approx(np.array(marks), abs=0.01)


def test_a_matrix_is_written_by_what_is_not_zero() -> None:
    assert sparse(np.array([[5, 0], [1, 4]])) == "0:5;0:1,1:4"
    assert sparse(np.array([[0, 0], [0, 4]])) == ";1:4"


# The page


def test_cells_carry_their_means_in_full_and_nothing_where_nothing_was_measured(record: RunRecord) -> None:
    page = page_of(record)
    rows = re.findall(r'<tr>\n<th scope="row">(\w+)</th>\n(.*?)</tr>', page, flags=re.DOTALL)
    cells = {method: row.splitlines() for method, row in rows[:3]}
    final, difference = summary_table(record).rows[2].final, summary_table(record).rows[2].difference
    assert difference is not None
    assert cells["replay"][0] == f'<td data-value="{final.mean!r}">78.3 ± 19.0</td>'
    assert cells["replay"][1] == f'<td data-value="{difference.mean!r}">−1.7 ± 7.2</td>'
    assert cells["joint"][1] == '<td class="soft">reference</td>'


def test_the_script_is_ours_to_the_letter_and_the_policy_allows_no_other(record: RunRecord) -> None:
    page = page_of(record)
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    assert script == (files("fscl.report") / "page.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}';" in page
    assert "innerHTML" not in script
    assert not re.search(r"<[^>]+\son\w+=", page.replace(script, ""))


def test_an_unfinished_method_sorts_by_nothing(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": GOOD, "joint": []})
    append(record, Cell("joint", 1), FAIR[1], 4)
    page = page_of(record)
    assert '<td data-value="1">1</td>' in page  # n
    assert "nan" not in re.sub(r"<(svg|script).*?</\1>", "", page, flags=re.DOTALL)
    (data,) = re.findall(r'href="data:text/csv;charset=utf-8,([^"]*)" download="toy-accuracy.csv"', page)
    assert [row["method"] for row in csv.DictReader(io.StringIO(unquote(data)))] == ["tsc", "tsc", "joint", "joint"]
