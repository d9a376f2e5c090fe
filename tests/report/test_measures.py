"""Both sides of a method and what they cost, worked out on paper for a small run."""

import csv
import io
import math
from pathlib import Path

import numpy as np
import pytest

from fscl.experiment.plan import Cell
from fscl.experiment.record import RunRecord
from fscl.report.probes import probing_share, shown_moments
from fscl.report.results import read_results
from tests.report.runs import GOOD, PROBE, T3, append, interval_of, make_run, page_of, probed_run, table_of


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    return probed_run(tmp_path / "toy")


def test_a_change_of_the_probe_is_paired_and_its_interval_is_over_sequences(record: RunRecord):
    table = table_of(record, "two-sides")
    assert "probe_novel_change_0" not in [measure.key for measure in table.measures]
    assert interval_of(table, "tsc", "probe_novel_after_0").mean == pytest.approx((60 + 50 + 50) / 3)
    assert interval_of(table, "tsc", "probe_novel_change_1").mean == pytest.approx((0 + 0 + 10) / 3)
    last = interval_of(table, "tsc", "probe_novel_change_2")
    assert last.mean == pytest.approx(20)
    assert last.half_width == pytest.approx(T3 * 10 / math.sqrt(3), rel=1e-4)
    assert not table.cell("tsc", "probe_novel_change_2").significant  # 20 ± 24.8
    assert interval_of(table, "prototypes", "probe_novel_change_2").mean == 0
    assert shown_moments(read_results(record), "novel") == [0, 1, 2]


def test_a_change_that_excludes_zero_is_marked(tmp_path: Path):
    record = make_run(tmp_path / "toy", {"tsc": []}, probe=PROBE)
    for number in range(3):
        points = {"0": [0.5, 0.5], "1": [0.6, 0.6], "2": [0.6 + 0.01 * number] * 2}
        append(record, Cell("tsc", number), GOOD[number], 4, probes={"novel": points, "base": points})
    cell = table_of(record, "two-sides").cell("tsc", "probe_novel_change_2")
    assert (cell.text, cell.significant) == ("+11.00 ± 2.48", True)
    assert 'class="clear">+11.00 ± 2.48 *</td>' in page_of(record)


def test_probes_that_have_a_name_stand_in_the_same_table_with_moments_of_their_own(tmp_path: Path):
    hard = {**PROBE, "after": [0, 2], "n_way": 20, "n_shot": 1, "learn": "optimum"}
    record = make_run(tmp_path / "toy", {"tsc": []}, probe=PROBE, probes={"hard": hard})
    for number in range(3):
        points = {"0": [0.5, 0.5], "1": [0.6, 0.6], "2": [0.6, 0.6]}
        few = {"0": [0.2, 0.2], "2": [0.4 + 0.01 * number] * 2}
        probes = {"novel": points, "base": points, "novel hard": few, "base hard": few}
        append(record, Cell("tsc", number), GOOD[number], 4, probes=probes)
    table = table_of(record, "two-sides")
    assert table.cell("tsc", "probe_novel-hard_change_2").text == "+21.00 ± 2.48"
    keys = [measure.key for measure in table.measures]
    assert "probe_novel_change_1" in keys
    assert "probe_novel-hard_change_1" not in keys
    page = page_of(record)
    assert "hard: 2 problems of 20 ways and 1 shots, learned by logistic regression" in page
    assert "Probe, novel hard" in page


def test_of_a_single_sequence_the_interval_is_over_its_problems_and_nothing_is_marked(tmp_path: Path):
    record = probed_run(tmp_path / "one", sequences=1)
    table = table_of(record, "two-sides")
    last = interval_of(table, "tsc", "probe_novel_change_2")
    assert last.n == 2
    assert last.mean == pytest.approx(10)  # of 10 and 10
    assert last.half_width == pytest.approx(0, abs=1e-9)
    assert not table.cell("tsc", "probe_novel_change_2").significant
    assert "say nothing of other sequences" in page_of(record)


def test_many_problems_of_one_sequence_mark_no_change(tmp_path: Path):
    record = make_run(tmp_path / "toy", {"tsc": []}, probe=PROBE, run={"n_sequences": 1})
    points = {"0": [0.5, 0.52, 0.51], "1": [0.6] * 3, "2": [0.9] * 3}
    append(record, Cell("tsc", 0), GOOD[0], 4, probes={"novel": points, "base": points})
    cell = table_of(record, "two-sides").cell("tsc", "probe_novel_change_2")
    assert interval_of(table_of(record, "two-sides"), "tsc", "probe_novel_change_2").excludes_zero
    assert not cell.significant


def test_old_new_and_harmonic_are_those_of_the_matrices(record: RunRecord):
    table = table_of(record, "two-sides")
    assert [interval_of(table, "tsc", key).mean for key in ("old", "new", "harmonic")] == pytest.approx([90, 90, 90])
    harmonics = [2 * a * b / (a + b) for a, b in ((50, 90), (70, 90), (80, 100))]
    assert interval_of(table, "prototypes", "harmonic").mean == pytest.approx(np.mean(harmonics))
    assert "forward_transfer" not in [measure.key for measure in table.measures]


def test_costs_are_those_of_a_class_and_unknown_work_is_not_summed(record: RunRecord):
    table = table_of(record, "cost")
    assert table.cell("tsc", "learn").value == pytest.approx(2 / 4)
    assert table.cell("tsc", "multiply_adds").value == pytest.approx(3e6)
    assert [table.cell("tsc", key).value for key in ("weights", "memory", "importance")] == [2048, 3072, 0]
    assert (table.cell("tsc", "stored").value, table.cell("tsc", "stored").text) == (5120, "5")
    assert table.cell("prototypes", "multiply_adds").number is None
    assert probing_share(read_results(record)) == pytest.approx(6 * 0.7 / (3 * 2 + 3 * 0.1))


def test_the_page_shows_both_sides_and_the_files_lie_beside_it(tmp_path: Path):
    record = probed_run(tmp_path / "toy")
    page = page_of(record)
    assert page.count("Probe, novel<small>after") == 3
    assert "2 problems of 2 ways and 3 shots" in page
    assert "<td>–</td>" in page  # work that nobody counted
    rows = list(csv.DictReader(io.StringIO((record.folder / "two-sides.csv").read_text())))
    assert float(rows[0]["probe_novel_change_2_points"]) == pytest.approx(20)
    assert len((record.folder / "classes.csv").read_text().splitlines()) == 1 + 2 * 4
    assert (record.folder / "figures" / "transfer.csv").exists()


def test_without_a_probe_the_page_says_how_to_ask_for_one(tmp_path: Path):
    page = page_of(make_run(tmp_path / "plain", {"tsc": GOOD}))
    assert "was not probed in this run" in page
    assert "Probe, novel" not in page


def test_forward_transfer_of_guessing_is_zero_though_there_is_ever_more_to_guess_from(tmp_path: Path):
    spec = {"setting": "mixed", "class_change_interval": 2}
    rows = [[1.0], [1.0, 1.0], [1.0] * 3, [1.0] * 4]
    record = make_run(tmp_path / "mixed", {"tsc": [], "joint": []}, stream={**spec, "n_tasks": 4})
    for number in range(3):
        append(record, Cell("tsc", number), rows, 4, before=[None, 0.5, None, 0.25])
        append(record, Cell("joint", number), rows, 4, before=[None, 0.9, None, 0.65])
    table = table_of(record, "two-sides")
    assert interval_of(table, "tsc", "forward_transfer").mean == pytest.approx(0)
    assert interval_of(table, "joint", "forward_transfer").mean == pytest.approx(40)
    assert "FWT<small>points" in page_of(record)
    assert "Harmonic<small>" not in page_of(record)  # classes return with the same test images


def test_a_probe_that_begins_later_has_its_columns_under_their_headings(tmp_path: Path):
    record = make_run(tmp_path / "late", {"tsc": []}, probe={**PROBE, "after": [1, 2]})
    for number in range(3):
        points = {"1": [0.5, 0.5], "2": [0.7, 0.7]}
        append(record, Cell("tsc", number), GOOD[number], 4, probes={"novel": points, "base": points})
    page_of(record)
    (row,) = csv.DictReader(io.StringIO((record.folder / "two-sides.csv").read_text()))
    assert (row["probe_novel_after_2_percent"], row["probe_novel_change_2_points"]) == ("70", "20")
    assert "probe_novel_change_1_points" not in row


def test_one_task_and_one_moment_can_be_reported(tmp_path: Path):
    record = make_run(tmp_path / "short", {"tsc": []}, probe={**PROBE, "after": [0]}, stream={"n_tasks": 1})
    for number in range(3):
        points = {"0": [0.5, 0.5]}
        append(record, Cell("tsc", number), [[1.0]], 2, probes={"novel": points, "base": points})
    page = page_of(record)
    assert "Probe, novel" in page
    assert "Change<small>" not in page
