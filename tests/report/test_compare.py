"""Paired differences of small hand-made runs, worked out on paper beside them."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from fscl.errors import MisuseError, RunError
from fscl.evaluation.metrics import Interval
from fscl.experiment.plan import Finished
from fscl.experiment.record import RunRecord
from fscl.report.compare import Comparison, compare, print_comparison
from fscl.report.summary import write_summary
from fscl.storage import read_json, write_json
from tests.report.runs import FAIR, GOOD, POOR, T3, make_run


def text_of(comparison: Comparison) -> str:
    file = io.StringIO()
    print_comparison(comparison, Console(file=file))
    return file.getvalue()


def intervals_of(comparison: Comparison, method: str) -> list[Interval]:
    """Of one method; every one of them must be there."""
    found = [each.interval for each in comparison.differences if each.method == method]
    return [interval for interval in found if interval is not None]


def test_a_run_can_be_compared_with_any_of_its_methods(tmp_path: Path) -> None:
    record = make_run(
        tmp_path / "toy",
        {"tsc": GOOD, "joint": FAIR, "replay": POOR[:2]},
        run={"at_classes": [2], "reference": "joint"},
    )
    found = compare(record.folder, "replay")
    assert [(each.method, each.n_classes) for each in found.differences] == [
        ("tsc", 2),
        ("tsc", 4),
        ("joint", 2),
        ("joint", 4),
    ]
    told = {m: [(d.mean, d.n) for d in intervals_of(found, m)] for m in ("tsc", "joint")}
    assert told["joint"] == [
        (0, 2),
        (pytest.approx(0), 2),
    ]  # 90 - 90, twice; 70 - 70, 80 - 80; the third is not finished
    assert told["tsc"] == [(pytest.approx(10), 2), (pytest.approx(10), 2)]  # 100 - 90, twice; 80 - 70, 90 - 80
    assert "each method minus replay" in text_of(found)


def test_two_runs_are_compared_on_the_methods_and_sequences_that_both_have(tmp_path: Path) -> None:
    here = make_run(tmp_path / "here", {"joint": GOOD, "replay": POOR}, name="quick", run={"reference": "joint"})
    there = make_run(tmp_path / "there", {"joint": POOR, "tsc": GOOD}, name="paper", run={"reference": "joint"})
    found = compare(here.folder, str(there.folder))
    assert [each.method for each in found.differences] == ["joint"]
    (difference,) = intervals_of(found, "joint")
    assert difference.mean == pytest.approx(35 / 3)  # 80 - 70, 90 - 80, 100 - 85
    assert difference.half_width == pytest.approx(T3 * (25 / 3) ** 0.5 / 3**0.5)  # variance of 10, 10, 15
    told = text_of(found)
    assert "quick minus paper" in told
    assert "+11.67 ± 7.17" in told


def test_sequences_of_other_tasks_are_not_paired(tmp_path: Path) -> None:
    here, there = (make_run(tmp_path / name, {"joint": GOOD}, run={"reference": "joint"}) for name in ("one", "two"))
    _other_streams(there, 1)
    (difference,) = intervals_of(compare(here.folder, str(there.folder)), "joint")
    assert difference.n == 2
    _other_streams(there, 3)
    with pytest.raises(RunError, match="share no sequence of tasks"):
        compare(here.folder, str(there.folder))


def test_what_is_neither_a_method_nor_a_run_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    record = make_run(tmp_path / "toy", {"joint": GOOD, "replay": POOR}, run={"reference": "joint"})
    with pytest.raises(MisuseError, match=r"'replai' is neither a method of .* Did you mean 'replay'"):
        compare(record.folder, "replai")


def test_a_summary_is_compared_as_the_run_that_it_was_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fscl.report.summary.run_command", lambda config, out: "fscl run toy")
    record = make_run(
        tmp_path / "toy",
        {"tsc": GOOD, "joint": FAIR, "replay": POOR[:2]},
        run={"at_classes": [2], "reference": "joint"},
    )
    write_summary(record.folder, tmp_path / "toy.json")
    from_file, from_run = (compare(source, "joint") for source in (tmp_path / "toy.json", record.folder))
    assert repr(from_file) == repr(from_run)  # they hold NaN, which makes dataclasses unequal from Python 3.13 on
    # the same sequences, so that a run and a summary can be compared, too: nothing is left of any method
    both = compare(record.folder, str(tmp_path / "toy.json"))
    assert {each.interval.mean for each in both.differences if each.interval is not None} == {0.0}


def test_a_summary_without_its_sequences_is_refused(tmp_path: Path) -> None:
    old = Path(__file__).parents[2] / "docs" / "results" / "omniglot-table2-generative.json"
    content = json.loads(old.read_text())
    for method in content["methods"]:
        method.pop("sequences", None)
    (tmp_path / "old.json").write_text(json.dumps(content))
    with pytest.raises(MisuseError, match="no accuracy for each sequence"):
        compare(tmp_path / "old.json", "joint")


def test_a_difference_is_called_level_only_within_the_margin_that_is_told(tmp_path: Path) -> None:
    record = make_run(tmp_path / "toy", {"joint": GOOD, "replay": GOOD}, run={"reference": "joint"})
    told = text_of(compare(record.folder, "joint", margin=2))
    assert "level" in told
    assert "within ± 2 points" in told
    assert "Preliminary: fewer than 10 sequences." in told


def _other_streams(record: RunRecord, n: int) -> None:
    """The last `n` sequences of a run become others; its cells are sealed anew."""
    cells = record.cells()
    about = read_json(record.about_path, "run")
    kept = about["streams"][: 3 - n]
    write_json(record.about_path, "run", {**about, "streams": [*kept, *["b" * 16] * n]})
    record.cells_path.unlink()
    for cell, entry in cells.items():
        record.append(cell, Finished(entry["result"], entry["cost"]))
