"""Tables of small hand-made run directories, whose numbers are worked out on paper beside them."""

from pathlib import Path

import pytest

from fscl.errors import RunError, StorageError
from fscl.experiment.plan import Cell, Finished
from fscl.experiment.record import RunRecord
from fscl.report.page import write_report
from fscl.report.results import typical_seconds
from fscl.report.table import show
from fscl.storage import read_json, write_json
from tests.report.runs import FAIR, GOOD, POOR, T3, interval_of, make_run, page_of, table_of, text_of


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    return make_run(tmp_path / "toy", {"tsc": GOOD, "joint": FAIR, "replay": POOR})


def test_final_accuracy_is_the_mean_over_sequences_with_a_student_interval(record: RunRecord) -> None:
    final = interval_of(table_of(record), "tsc", "final_top1")
    assert final.mean == pytest.approx(90)  # of 80, 90, 100
    assert final.half_width == pytest.approx(T3 * 10 / 3**0.5)  # standard deviation 10
    assert final.n == table_of(record).cell("tsc", "n_sequences").value == 3


def test_the_other_columns_are_those_of_the_matrices(record: RunRecord) -> None:
    table = table_of(record)
    assert interval_of(table, "tsc", "forgetting").mean == pytest.approx(10)  # of 20, 10, 0
    assert interval_of(table, "tsc", "bwt").mean == pytest.approx(-10)
    assert interval_of(table, "tsc", "bwt_own_classes").mean == 0
    # of (100 + 80) / 2, (100 + 90) / 2, (100 + 100) / 2
    assert interval_of(table, "tsc", "average_top1").mean == pytest.approx(95)
    assert interval_of(table, "tsc", "final_top5").mean == 100
    assert table.cell("tsc", "learn").value == pytest.approx(1)
    assert table.cell("tsc", "peak_memory").value == 2**20


def test_a_sequence_during_which_the_machine_slept_does_not_change_the_times():
    assert typical_seconds([[1.0, 2.0], [3600.0, 2.5], [1.5, 7200.0]]) == [1.5, 2.5]
    assert typical_seconds([]) == []


def test_differences_are_paired_by_sequence(record: RunRecord) -> None:
    table = table_of(record)
    tsc, replay = (interval_of(table, method, "difference") for method in ("tsc", "replay"))
    assert tsc.mean == pytest.approx(10)  # 10 in each sequence, so the interval is a point
    assert tsc.half_width == pytest.approx(0, abs=1e-9)
    assert table.cell("tsc", "difference").significant
    assert replay.mean == pytest.approx(-5 / 3)  # of 0, 0, -5
    assert not table.cell("replay", "difference").significant
    assert table.cell("joint", "difference").is_reference


def test_methods_keep_the_order_of_the_configuration(record: RunRecord) -> None:
    assert [row.method for row in table_of(record).rows] == ["tsc", "joint", "replay"]


def test_an_unfinished_run_is_compared_on_shared_sequences_and_says_so(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": GOOD, "joint": FAIR[:2], "replay": []})
    table = table_of(record)
    assert interval_of(table, "tsc", "final_top1").n == 3
    assert interval_of(table, "tsc", "difference").n == 2
    assert table.cell("replay", "n_sequences").value == 0
    assert table.cell("replay", "final_top1").text == "-"
    assert "5 of 9 cells finished" in table.description
    assert "5 of 9 cells finished" in text_of(record)
    assert "5 of 9 cells finished" in page_of(record)


@pytest.mark.parametrize("n", [9, 10])
def test_fewer_than_ten_sequences_are_called_preliminary_everywhere(n: int, tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": GOOD[:1] * n, "joint": FAIR[:1] * n}, run={"n_sequences": n})
    page, folder = page_of(record), record.folder
    files = [(folder / name).read_text("utf-8") for name in ("table.tex", "table.md", "two-sides.tex", "cost.md")]
    for text in (text_of(record), page, *files):
        assert ("reliminary" in text) == (n < 10)


def test_a_single_sequence_has_a_mean_and_a_dash_for_the_interval(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": GOOD[:1], "joint": FAIR[:1]}, run={"n_sequences": 1})
    table = table_of(record)
    assert table.cell("tsc", "final_top1").text == "80.0 ± -"
    assert table.cell("tsc", "difference").text == "+10.0 ± -"
    assert not table.cell("tsc", "difference").significant
    assert "One sequence, so there are no intervals" in text_of(record)


def test_two_sequences_that_agree_by_chance_are_not_significant(tmp_path: Path) -> None:
    same = {"tsc": [GOOD[0], GOOD[0]], "joint": [FAIR[0], FAIR[0]]}
    table = table_of(make_run(tmp_path / "two", same, run={"n_sequences": 2}))
    difference = interval_of(table, "tsc", "difference")
    assert (difference.mean, difference.half_width) == (pytest.approx(10), 0)
    assert not table.cell("tsc", "difference").significant


def test_a_single_task_has_no_forgetting(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": [[[0.9]], [[0.8]], [[0.7]]], "joint": [[[0.9]], [[0.8]], [[0.7]]]})
    table = table_of(record)
    assert table.cell("tsc", "final_top1").text.startswith("80.0 ±")
    assert table.cell("tsc", "forgetting").text == table.cell("tsc", "bwt").text == "-"
    page_of(record)


def test_a_run_without_the_reference_has_no_differences(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": GOOD, "replay": POOR})
    assert not any(measure.tested for measure in table_of(record).measures)
    assert "minus" not in text_of(record)


def test_memory_that_was_not_measured_is_no_number(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": []}, run={"n_sequences": 1})
    cost = {"learn_seconds": [1.0], "predict_seconds": [1.0], "peak_memory_bytes": 0}
    rows = [[0.5]]
    result = {"top1": rows, "top5": rows, "restricted": rows, "confusion": [[1]]}
    record.append(Cell("tsc", 0), Finished(result, cost))
    assert table_of(record).cell("tsc", "peak_memory").value is None


def test_a_small_loss_is_not_shown_as_minus_zero(tmp_path: Path) -> None:
    almost = [[[1.0], [1.0, 0.9996]]]
    record = make_run(tmp_path, {"tsc": almost, "joint": [[[1.0], [1.0, 1.0]]]}, run={"n_sequences": 1})
    assert table_of(record).cell("tsc", "difference").text == "+0.0 ± -"


@pytest.mark.parametrize(
    ("number", "text"), [(1234.0, "1234"), (99.96, "100.0"), (1.04, "1.0"), (0.123, "0.12"), (0.0123, "0.012")]
)
def test_a_duration_is_shown_with_as_many_digits_as_it_deserves(number: float, text: str) -> None:
    assert show(number, digits=None) == text


def test_large_counts_are_scaled_and_grouped() -> None:
    assert show(12_345_678_901, digits=0, scale=1e6) == "12,346"


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ({}, "2 tasks, 2-way 5-shot"),
        ({"base_way": 6, "base_shot": 20}, "a base session of 6 classes (20-shot), then 1 session, 2-way 5-shot"),
        ({"setting": "new_instance"}, "2 tasks, 2-way 5-shot, new examples of the same classes in each"),
        ({"setting": "mixed", "class_change_interval": 2}, "2 tasks, 2-way 5-shot, new classes every 2 tasks"),
        (
            {"setting": "mixed", "overwrite": True},
            "2 tasks, 2-way 5-shot, new classes every task under the labels of the old ones",
        ),
    ],
)
def test_the_title_says_what_the_stream_is(stream: dict[str, object], words: str, tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": []}, stream=stream)
    assert table_of(record).title == f"toy: {words}"
    assert f"<dd>{words};" in page_of(record)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no run\.json"):
        table_of(RunRecord(tmp_path))


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
