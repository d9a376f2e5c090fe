"""Reports of small hand-made run directories, whose numbers are worked out on paper beside them."""

import csv
import io
import re
import tomllib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from fscl.experiment.sheet import save_sheet
from matplotlib.textpath import TextPath
from rich.console import Console

from fscl.data.pool import Examples
from fscl.errors import RunError, StorageError
from fscl.experiment.config import load_config, load_plan, make_config
from fscl.experiment.plan import Cell, Finished
from fscl.experiment.record import RunRecord
from fscl.report.figures import LABEL_GAP, _spread, accuracy_svg, bands_shown
from fscl.report.page import run_command, shown_path, toml_listing, write_report
from fscl.report.results import read_results, typical_seconds
from fscl.report.tables import Row, SummaryTable, print_table, show, summary_table, write_csv
from fscl.storage import read_json, write_json

Rows = list[list[float]]
T3 = 4.302653  # Student's t, 97.5 %, for three values

# Two tasks. A_T = (R[1,0] + R[1,1]) / 2; forgetting = R[0,0] - R[1,0]; average = (R[0,0] + A_T) / 2.
GOOD: list[Rows] = [[[1.0], [0.8, 0.8]], [[1.0], [0.9, 0.9]], [[1.0], [1.0, 1.0]]]  # A_T 80, 90, 100; forgets 20, 10, 0
FAIR: list[Rows] = [[[0.9], [0.5, 0.9]], [[0.9], [0.7, 0.9]], [[0.9], [0.8, 1.0]]]  # A_T 70, 80, 90; forgets 40, 20, 10
POOR: list[Rows] = [[[0.9], [0.6, 0.8]], [[0.9], [0.8, 0.8]], [[0.9], [0.8, 0.9]]]  # A_T 70, 80, 85


def make_run(folder: Path, matrices: Mapping[str, list[Rows]], **changes: Any) -> RunRecord:
    """A run directory with these top-1 matrices, one a sequence; those left out are not finished."""
    n_tasks = max(len(rows) for sequences in matrices.values() for rows in sequences) if any(matrices.values()) else 2
    content: dict[str, Any] = {
        "name": "toy",
        "stream": {"n_tasks": n_tasks, "n_way": 2, "n_query": 5, **changes.pop("stream", {})},
        "run": {"methods": list(matrices), "n_sequences": 3, **changes.pop("run", {})},
        **changes,
    }
    config = make_config(content)
    record = RunRecord(folder)
    record.begin(about(config.resolved()))
    for method, sequences in matrices.items():
        for number, rows in enumerate(sequences):
            append(record, Cell(method, number), rows, config.stream.n_labels)
    return record


def about(config: dict[str, Any]) -> dict[str, Any]:
    spec = {"backbone": "conv4", "width": 16, "norm": "group", "channels": 1, "image_size": 32}
    return {
        "config": config,
        "versions": {"fscl": "0.1.0", "torch": "2.4"},
        "data": {"pool": "glyphs (test)", "hash": "d" * 32, "classes": 240},
        "base": {"hash": "b" * 32, "spec": spec, "origin": "o" * 16, "summary": "protonet on glyphs"},
        "streams": ["a" * 16] * config["run"]["n_sequences"],
    }


def append(record: RunRecord, cell: Cell, rows: Rows, n_labels: int, **more: Any) -> None:
    """A finished cell; `more` of its result, and of its cost under "cost"."""
    confusion = [[5 if true == answer else 1 for answer in range(n_labels)] for true in range(n_labels)]
    result = {"top1": rows, "top5": [[1.0] * len(row) for row in rows], "confusion": confusion}
    result["restricted"] = [[1.0] * len(row) for row in rows]
    result["diagnostics"] = [{"embedding_steps": 5.0}, {"embedding_steps": 10.0}][: len(rows)]
    seconds = [0.5 + number for number in range(len(rows))]  # 0.5, 1.5: a mean of 1
    cost = {"learn_seconds": seconds, "predict_seconds": seconds, "peak_memory_bytes": 2**20, **more.pop("cost", {})}
    record.append(cell, Finished({**result, **more}, cost))


def row_of(table: SummaryTable, method: str) -> Row:
    return next(row for row in table.rows if row.method == method)


def text_of(record: RunRecord, **options: Any) -> str:
    file = io.StringIO()
    print_table(summary_table(record), Console(file=file, **options))
    return file.getvalue()


def page_of(record: RunRecord) -> str:
    return write_report(record).read_text("utf-8")


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    return make_run(tmp_path / "toy", {"tsc": GOOD, "joint": FAIR, "replay": POOR})


# The table


def test_final_accuracy_is_the_mean_over_sequences_with_a_student_interval(record: RunRecord) -> None:
    row = row_of(summary_table(record), "tsc")
    assert row.final.mean == pytest.approx(90)  # of 80, 90, 100
    assert row.final.half_width == pytest.approx(T3 * 10 / 3**0.5)  # standard deviation 10
    assert row.final.n == row.n_sequences == 3


def test_the_other_columns_are_those_of_the_matrices(record: RunRecord) -> None:
    row = row_of(summary_table(record), "tsc")
    assert row.forgetting.mean == pytest.approx(10)  # of 20, 10, 0
    assert row.bwt.mean == pytest.approx(-10)
    assert row.bwt_own.mean == 0
    assert row.average.mean == pytest.approx(95)  # of (100 + 80) / 2, (100 + 90) / 2, (100 + 100) / 2
    assert row.final_top5.mean == 100
    assert row.learn_seconds == pytest.approx(1)
    assert row.peak_memory == 2**20


def test_a_sequence_during_which_the_machine_slept_does_not_change_the_times():
    assert typical_seconds([[1.0, 2.0], [3600.0, 2.5], [1.5, 7200.0]]) == [1.5, 2.5]
    assert typical_seconds([]) == []


def test_differences_are_paired_by_sequence(record: RunRecord) -> None:
    table = summary_table(record)
    tsc, replay = row_of(table, "tsc"), row_of(table, "replay")
    assert tsc.difference is not None
    assert tsc.difference.mean == pytest.approx(10)  # 10 in each sequence, so the interval is a point
    assert tsc.difference.half_width == pytest.approx(0, abs=1e-9)
    assert tsc.differs
    assert replay.difference is not None
    assert replay.difference.mean == pytest.approx(-5 / 3)  # of 0, 0, -5
    assert not replay.differs
    assert row_of(table, "joint").difference is None


def test_methods_keep_the_order_of_the_configuration(record: RunRecord) -> None:
    assert [row.method for row in summary_table(record).rows] == ["tsc", "joint", "replay"]


def test_an_unfinished_run_is_compared_on_shared_sequences_and_says_so(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": GOOD, "joint": FAIR[:2], "replay": []})
    table = summary_table(record)
    tsc, replay = row_of(table, "tsc"), row_of(table, "replay")
    assert (table.n_done, table.n_cells) == (5, 9)
    assert tsc.final.n == 3
    assert tsc.difference is not None
    assert tsc.difference.n == 2
    assert replay.n_sequences == 0
    assert show(replay.final) == "-"
    assert "5 of 9 cells finished" in text_of(record)
    assert "5 of 9 cells finished" in page_of(record)


def test_a_run_without_a_finished_cell_has_a_report_without_figures(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": [], "joint": []})
    page = page_of(record)
    assert "0 of 6 cells finished" in page
    assert "No cell has finished yet" in page
    assert "<svg" not in page
    assert "tsc" in text_of(record)


def test_a_single_sequence_has_a_mean_and_a_dash_for_the_interval(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": GOOD[:1], "joint": FAIR[:1]}, run={"n_sequences": 1})
    row = row_of(summary_table(record), "tsc")
    assert show(row.final) == "80.0 ± -"
    assert show(row.difference, signed=True) == "+10.0 ± -"
    assert not row.differs
    page = page_of(record)
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    assert "no difference between methods is claimed" in page


def test_a_single_task_has_no_forgetting(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": [[[0.9]], [[0.8]], [[0.7]]], "joint": [[[0.9]], [[0.8]], [[0.7]]]})
    row = row_of(summary_table(record), "tsc")
    assert show(row.final).startswith("80.0 ±")
    assert show(row.forgetting) == show(row.bwt) == "-"
    page_of(record)


def test_a_run_without_the_reference_has_no_differences(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": GOOD, "replay": POOR})
    table = summary_table(record)
    assert not table.has_reference
    assert all(row.difference is None for row in table.rows)
    assert "minus" not in text_of(record)
    assert "The reference joint has no finished sequence here" in page_of(record)


def test_memory_that_was_not_measured_is_no_number(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": []}, run={"n_sequences": 1})
    cost = {"learn_seconds": [1.0], "predict_seconds": [1.0], "peak_memory_bytes": 0}
    rows = [[0.5]]
    result = {"top1": rows, "top5": rows, "restricted": rows, "confusion": [[1]]}
    record.append(Cell("tsc", 0), Finished(result, cost))
    assert row_of(summary_table(record), "tsc").peak_memory is None


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


def test_the_csv_has_every_number_and_nothing_where_there_is_none(record: RunRecord, tmp_path: Path) -> None:
    write_csv(summary_table(record), tmp_path / "table.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "table.csv").read_text())))
    assert [row["method"] for row in rows] == ["tsc", "joint", "replay"]
    assert rows[0]["final_top1_percent"] == "90.0000"
    assert rows[0]["difference_points"] == "10.0000"
    assert [row["difference_excludes_zero"] for row in rows] == ["yes", "", "no"]
    assert rows[1]["difference_points"] == rows[1]["difference_to"] == ""


def test_a_small_loss_is_not_shown_as_minus_zero(tmp_path: Path) -> None:
    almost = [[[1.0], [1.0, 0.9996]]]
    record = make_run(tmp_path, {"tsc": almost, "joint": [[[1.0], [1.0, 1.0]]]}, run={"n_sequences": 1})
    assert show(row_of(summary_table(record), "tsc").difference, signed=True) == "+0.0 ± -"


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no run\.json"):
        summary_table(RunRecord(tmp_path))


@pytest.mark.parametrize("part", ["config", "versions", "data", "base", "streams", "config.run", "base.spec.width"])
@pytest.mark.parametrize("value", [None, 3, {"x": 1}])
def test_a_damaged_description_is_refused_in_a_sentence(tmp_path: Path, part: str, value: object) -> None:
    record = make_run(tmp_path, {"tsc": []})
    content = read_json(record.about_path, "run")
    *sections, key = part.split(".")
    section = content
    for name in sections:
        section = section[name]
    if part == "base.spec.width" and value == 3:
        value = 0  # three is a width
    section[key] = value
    write_json(record.about_path, "run", content)
    with pytest.raises(StorageError, match=r"run\.json is damaged|cannot be reported"):
        write_report(record)


# The page


def test_the_page_claims_a_difference_only_where_the_interval_excludes_zero(record: RunRecord) -> None:
    page = page_of(record).replace("\u00a0", " ")
    assert "After 4 classes, tsc answers 90.0 % ± 24.8 of the test images right; joint 80.0 % ± 24.8;" in page
    assert "On the same sequences, tsc (+10.0 ± 0.0) answers more right than joint" in page
    assert "No difference from joint is shown for replay" in page


def test_the_page_and_its_table_are_the_same_bytes_twice(record: RunRecord, tmp_path: Path) -> None:
    first = write_report(record)
    again = write_report(record, tmp_path / "elsewhere")
    assert first == record.folder / "report.html"
    assert again == tmp_path / "elsewhere" / "report.html"
    assert first.read_bytes() == again.read_bytes()
    figures = [f"figures/{name}.{kind}" for name in ("accuracy", "confusion", "seconds") for kind in ("svg", "csv")]
    for name in ("table.csv", "table.tex", *figures):
        assert (first.parent / name).read_bytes() == (again.parent / name).read_bytes()


def test_the_page_loads_nothing_and_names_no_path_of_the_machine(record: RunRecord) -> None:
    page = page_of(record)
    assert "<link" not in page
    assert "@import" not in page
    references = re.findall(r"""(?:src|href|url|srcset|action)\s*[=(]\s*["']?([^"')\s]*)""", page)
    assert references
    carried = ("#", "data:image/png;base64,", "data:text/csv;", "data:application/x-tex;")
    assert all(reference.startswith(carried) for reference in references)
    addresses = set(re.findall(r"https?://[^\s\"'<]*", page))
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, which nothing loads
    assert str(record.folder.parent) not in page
    assert "fscl report toy" in page


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


def test_hostile_words_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    evil = "</svg><script>alert(1)</script>$\\frac"
    record = RunRecord(tmp_path)
    content = about(
        make_config({"run": {"methods": ["tsc"], "n_sequences": 1}, "stream": {"n_tasks": 2, "n_way": 2}}).resolved()
    )
    content["data"]["pool"] = content["base"]["summary"] = content["versions"]["torch"] = evil
    record.begin(content)
    append(record, Cell("tsc", 0), GOOD[0], 4)
    page = page_of(record)
    assert page.count("<script") == 1  # ours
    assert page.count("</svg>") == 3
    assert page.count("&lt;script&gt;alert(1)") >= 3


def test_a_hostile_name_is_refused(tmp_path: Path) -> None:
    record = RunRecord(tmp_path)
    content = about(make_config({}).resolved())
    content["config"]["name"] = "<script>alert(1)</script>"
    record.begin(content)
    with pytest.raises(StorageError, match="cannot be reported"):
        page_of(record)


def test_accuracy_is_drawn_against_tasks_where_classes_return(tmp_path: Path) -> None:
    grows = make_run(tmp_path / "a", {"tsc": GOOD})
    returns = make_run(tmp_path / "b", {"tsc": GOOD}, stream={"setting": "new_instance"})
    assert "number of classes learned" in accuracy_svg(read_results(grows))
    assert "number of tasks learned" in accuracy_svg(read_results(returns))
    assert "After 2 tasks, tsc answers" in page_of(returns)


def test_a_shipped_configuration_is_named_with_its_overrides() -> None:
    plain = load_config("glyphs-quick")
    assert run_command(plain.resolved(), "out") == "fscl run glyphs-quick --out out"
    overrides = ["stream.n_tasks=3", 'run.methods=["tsc", "joint"]']
    changed = load_config("glyphs-quick", overrides)
    command = run_command(changed.resolved(), "out")
    assert command == 'fscl run glyphs-quick stream.n_tasks=3 \'run.methods=["tsc", "joint"]\' --out out'
    assert run_command({**plain.resolved(), "name": "mine"}, "out") is None


@pytest.mark.parametrize("name", ["glyphs-quick", "glyphs-protonet"])
def test_the_listing_is_a_configuration_that_makes_the_same_run(name: str) -> None:
    resolved = load_config(name, ["settings.tsc.strength=1e-10"]).resolved()
    assert make_config(tomllib.loads(toml_listing(resolved))).resolved() == resolved


def test_the_page_says_how_to_run_a_configuration_that_is_not_shipped(record: RunRecord) -> None:
    page = page_of(record)
    assert "not a configuration that comes with fscl" in page
    assert "fscl run toy.toml --out toy" in page


def test_paths_of_the_machine_in_the_configuration_are_not_shown(tmp_path: Path) -> None:
    data = {"name": "folder", "path": "/home/me/birds"}
    record = make_run(tmp_path / "my runs", {"tsc": GOOD}, name="glyphs-quick", data=data)
    page = page_of(record)
    assert "/home/me" not in page
    assert "path = &#34;birds&#34;" in page
    assert "fscl report &#39;my runs&#39;" in page  # quoted for the shell


def test_settings_are_shown_where_they_differ_from_the_method(tmp_path: Path) -> None:
    page = page_of(make_run(tmp_path, {"tsc": GOOD, "joint": FAIR}, settings={"tsc": {"steps": 33}}))
    assert "<code>steps = 33</code>" in page
    assert page.count('<span class="soft">none</span>') == 1


@pytest.mark.parametrize(
    ("given", "shown"), [("runs/a", "runs/a"), ("/home/me/runs/a", "a"), ("C:\\runs\\a", "a"), (".", ".")]
)
def test_an_absolute_path_is_cut_to_its_last_part(given: str, shown: str) -> None:
    assert shown_path(given) == shown


def test_names_at_the_ends_of_lines_are_moved_apart_but_keep_their_order() -> None:
    places = _spread([0.1, 0.11, 0.98, 0.99, 1.0], LABEL_GAP)
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
    names = [name for name in METHODS if name != "joint"]
    worse: list[Rows] = [[[0.9], [last, last]] for last in (0.6, 0.7, 0.8)]
    many = read_results(make_run(tmp_path / "many", {"joint": FAIR, **dict.fromkeys(names, GOOD), "replay": worse}))
    heights = [float(re.findall(r'viewBox="0 0 [0-9.]+ ([0-9.]+)"', accuracy_svg(run))[0]) for run in (few, many)]
    assert heights[1] > 1.2 * heights[0]
    assert (bands_shown(few), bands_shown(many)) == (True, False)
    places = _spread([0.5] * len(METHODS), LABEL_GAP / (0.84 * heights[1] / 72))
    assert places[0] >= 0
    assert places[-1] <= 1
    page = page_of(RunRecord(tmp_path / "many"))
    assert "Bands are 95 %" not in page
    assert "answer most of the test images right; joint answers 80.0" in page.replace("\u00a0", " ")
    assert f"{len(names) - 1} methods answer more and 1 method answers fewer right than joint; the table says" in page


def test_accuracy_along_the_way_is_shown_in_every_form(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": GOOD, "joint": FAIR}, run={"at_classes": [2, 3, 4, 50]})
    table = summary_table(record)
    assert table.at_classes == (2,)  # the end has a column of its own; 3 and 50 never come
    tsc, joint = table.rows
    assert (tsc.early[0].mean, joint.early[0].mean) == (pytest.approx(100), pytest.approx(90))
    assert tsc.early_difference[0] is not None
    assert tsc.early_difference[0].mean == pytest.approx(10)
    assert joint.early_difference == (None,)
    text = text_of(record)
    assert "A_2" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "2 classes, %" in page_of(record)
    write_csv(table, tmp_path / "t.csv")
    with (tmp_path / "t.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert rows["tsc"]["A_2_top1_percent"] == "100.0000"
    assert rows["tsc"]["A_2_difference_points"] == "10.0000"
    assert rows["joint"]["A_2_difference_points"] == ""
    assert float(rows["tsc"]["answer_ms_per_image"]) == pytest.approx(1000 * 2 / (3 * 2 * 5), abs=1e-3)


def test_a_sheet_of_generated_images_is_part_of_the_page(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"gr": GOOD, "joint": FAIR})
    assert "Generated images" not in page_of(record)
    record.sheet_path("gr").parent.mkdir()
    record.sheet_path("gr").write_bytes(b"<script>")
    assert "Generated images" not in page_of(record)  # no PNG
    pixels = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    examples = Examples(pixels, torch.tensor([0, 1]))
    record.sheet_path("gr").write_bytes(sheet_png(examples, examples))
    page = page_of(record)
    assert "Generated images" in page
    assert "data:image/png;base64,iVBOR" in page


def test_the_command_of_a_part_names_its_plan_and_its_own_folder() -> None:
    (part,) = [config for config in load_plan("omniglot-table2").configs if config.name == "omniglot-table2-maml"]
    expected = "fscl run omniglot-table2 --part omniglot-table2-maml --out runs/x"
    assert run_command(part.resolved(), "runs/x") == expected
    assert run_command(part.model_copy(update={"seed": 5}).resolved(), "runs/x") is None
