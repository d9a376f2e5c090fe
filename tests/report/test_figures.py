"""What figures show, what their points say, and the files of their numbers."""

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath

from fscl.continual.registry import methods
from fscl.experiment.plan import Cell, Finished
from fscl.experiment.record import RunRecord
from fscl.report.figures.accuracy import accuracy_rows, accuracy_svg
from fscl.report.figures.confusion import confusion_rows, confusion_svg
from fscl.report.figures.seconds import seconds_rows, seconds_svg
from fscl.report.figures.style import LABEL_GAP, bands_shown, spread
from fscl.report.figures.tips import SVG, add_tips, sparse, tip_cells, tip_points
from fscl.report.figures.two_sides import backward_lines, transfer_rows, transfer_svg, two_sides_rows, two_sides_svg
from fscl.report.page import write_report
from fscl.report.results import Results, read_results
from tests.report.runs import FAIR, GOOD, POOR, Rows, make_run, page_of, probed_run


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    return make_run(tmp_path / "toy", {"tsc": GOOD, "joint": FAIR, "replay": POOR})


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return read_results(probed_run(tmp_path / "probed"))


def titles(svg: str) -> list[str]:
    return [title.text or "" for title in ElementTree.fromstring(svg).iter(f"{{{SVG}}}title")]


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


def test_figures_are_valid_xml_and_share_no_id(record: RunRecord) -> None:
    page = page_of(record)
    figures = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert len(figures) == 3
    ids = [element.get("id") for figure in figures for element in ElementTree.fromstring(figure).iter()]
    named = [name for name in ids if name is not None]
    assert len(named) == len(set(named))
    targets = re.findall(r'(?:url\(|href=")#([^)"]+)', page)
    assert targets
    assert set(targets) <= set(named)


def test_figures_take_the_ink_of_the_page(record: RunRecord) -> None:
    svg = accuracy_svg(read_results(record))
    assert "currentColor" in svg
    assert "#010203" not in svg
    assert "fill: #ffffff" not in svg


def test_accuracy_is_drawn_against_tasks_where_classes_return(tmp_path: Path) -> None:
    grows = make_run(tmp_path / "a", {"tsc": GOOD})
    returns = make_run(tmp_path / "b", {"tsc": GOOD}, stream={"setting": "new_instance"})
    assert "number of classes learned" in accuracy_svg(read_results(grows))
    assert "number of tasks learned" in accuracy_svg(read_results(returns))


def test_names_at_the_ends_of_lines_are_moved_apart_but_keep_their_order() -> None:
    places = spread([0.1, 0.11, 0.98, 0.99, 1.0], LABEL_GAP)
    assert all(above - below > 0.06 for below, above in pairwise(places))
    assert places[0] == 0.1
    assert places[-1] == 1.0


@pytest.mark.parametrize("name", ["tsc", "tsc_gated@k=20", "tsc_gated@" + "m" * 32])
def test_the_longest_name_beside_a_line_stays_inside_the_figure(name: str, tmp_path: Path) -> None:
    svg = accuracy_svg(read_results(make_run(tmp_path, {name: GOOD, "joint": FAIR})))
    width = float(re.findall(r'viewBox="0 0 ([0-9.]+) ', svg)[0])
    begin = float(re.findall(rf'<text[^>]* x="([0-9.]+)"[^>]*>{re.escape(name)}<', svg)[0])
    assert begin + TextPath((0, 0), name, size=9.5).get_extents().width <= width


def test_with_many_methods_every_line_is_named_and_bands_are_left_out(tmp_path: Path) -> None:
    few = read_results(make_run(tmp_path / "few", {"tsc": GOOD, "joint": FAIR}))
    names = [name for name in methods() if name != "joint"]
    worse: list[Rows] = [[[0.9], [last, last]] for last in (0.6, 0.7, 0.8)]
    many = read_results(make_run(tmp_path / "many", {"joint": FAIR, **dict.fromkeys(names, GOOD), "replay": worse}))
    heights = [float(re.findall(r'viewBox="0 0 [0-9.]+ ([0-9.]+)"', accuracy_svg(run))[0]) for run in (few, many)]
    assert heights[1] > 1.2 * heights[0]
    assert (bands_shown(few), bands_shown(many)) == (True, False)
    places = spread([0.5] * len(methods()), LABEL_GAP / (0.84 * heights[1] / 72))
    assert places[0] >= 0
    assert places[-1] <= 1
    page = page_of(RunRecord(tmp_path / "many"))
    assert "Bands are 95 %" not in page


def test_figures_say_their_numbers_and_are_the_same_bytes_again(results: Results):
    assert two_sides_svg(results) == two_sides_svg(results)
    assert "tsc, 2 tasks learned: 73.3 ± 14.3 %" in two_sides_svg(results)
    assert "prototypes, 1 tasks learned: 90.0 ± 0.0 %" in transfer_svg(results)
    moments, lines = backward_lines(results)
    assert moments.tolist() == [2]
    assert lines[0].mean.tolist() == [0]  # restricted accuracy is 1 throughout


def test_the_numbers_of_a_figure_can_be_had_as_rows(results: Results):
    rows = two_sides_rows(results)
    assert rows[0] == ["measure", "method", "at", "value", "half_width", "n_sequences"]
    assert ["accuracy_percent_by_n_classes", "tsc", "4", "90.000000"] in [row[:4] for row in rows]
    assert ["probe_novel_percent_by_n_tasks", "tsc", "2", "73.333333"] in [row[:4] for row in rows]
    assert {row[0] for row in transfer_rows(results)[1:]} == {
        "backward_transfer_points_by_n_tasks",
        "probe_novel_percent_by_n_tasks",
        "probe_base_percent_by_n_tasks",
    }
