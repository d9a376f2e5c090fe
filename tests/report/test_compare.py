"""Paired differences of small hand-made runs, worked out on paper beside them."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from fscl.errors import MisuseError, RunError
from fscl.experiment.plan import Finished
from fscl.experiment.record import RunRecord
from fscl.report.compare import Comparison, compare, print_comparison
from fscl.storage import read_json, write_json
from tests.report.runs import FAIR, GOOD, POOR, T3, make_run


def text_of(comparison: Comparison) -> str:
    file = io.StringIO()
    print_comparison(comparison, Console(file=file))
    return file.getvalue()


def test_a_run_can_be_compared_with_any_of_its_methods(tmp_path: Path) -> None:
    record = make_run(
        tmp_path / "toy",
        {"tsc": GOOD, "joint": FAIR, "replay": POOR[:2]},
        run={"at_classes": [2], "reference": "joint"},
    )
    found = compare(record, "replay")
    assert found.moments == (2, 4)
    assert list(found.rows) == ["tsc", "joint"]
    told = {method: [(d.mean, d.n) for d in row if d is not None] for method, row in found.rows.items()}
    assert told["joint"] == [
        (0, 2),
        (pytest.approx(0), 2),
    ]  # 90 - 90, twice; 70 - 70, 80 - 80; the third is not finished
    assert told["tsc"] == [(pytest.approx(10), 2), (pytest.approx(10), 2)]  # 100 - 90, twice; 80 - 70, 90 - 80
    assert "each method minus replay" in text_of(found)


def test_two_runs_are_compared_on_the_methods_and_sequences_that_both_have(tmp_path: Path) -> None:
    here = make_run(tmp_path / "here", {"joint": GOOD, "replay": POOR}, name="quick", run={"reference": "joint"})
    there = make_run(tmp_path / "there", {"joint": POOR, "tsc": GOOD}, name="paper", run={"reference": "joint"})
    found = compare(here, str(there.folder))
    assert list(found.rows) == ["joint"]
    (difference,) = found.rows["joint"]
    assert difference is not None
    assert difference.mean == pytest.approx(35 / 3)  # 80 - 70, 90 - 80, 100 - 85
    assert difference.half_width == pytest.approx(T3 * (25 / 3) ** 0.5 / 3**0.5)  # variance of 10, 10, 15
    told = text_of(found)
    assert "quick minus paper" in told
    assert "+11.67 ± 7.17" in told


def test_sequences_of_other_tasks_are_not_paired(tmp_path: Path) -> None:
    here, there = (make_run(tmp_path / name, {"joint": GOOD}, run={"reference": "joint"}) for name in ("one", "two"))
    _other_streams(there, 1)
    (difference,) = compare(here, str(there.folder)).rows["joint"]
    assert difference is not None
    assert difference.n == 2
    _other_streams(there, 3)
    with pytest.raises(RunError, match="share no sequence of tasks"):
        compare(here, str(there.folder))


def test_what_is_neither_a_method_nor_a_run_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    record = make_run(tmp_path / "toy", {"joint": GOOD, "replay": POOR}, run={"reference": "joint"})
    with pytest.raises(MisuseError, match=r"'replai' is neither a method of .* Did you mean 'replay'"):
        compare(record, "replai")


def _other_streams(record: RunRecord, n: int) -> None:
    """The last `n` sequences of a run become others; its cells are sealed anew."""
    cells = record.cells()
    about = read_json(record.about_path, "run")
    kept = about["streams"][: 3 - n]
    write_json(record.about_path, "run", {**about, "streams": [*kept, *["b" * 16] * n]})
    record.cells_path.unlink()
    for cell, entry in cells.items():
        record.append(cell, Finished(entry["result"], entry["cost"]))
