"""The tables of `benchmarks/photographs.py`, from made-up files."""

import copy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.photographs_tables import DASH, KIND, calibration_error, read_records, tables
from fscl.errors import StorageError
from fscl.storage import write_json
from tests.children import run_child

SETTING = {"classes": 50, "lessons": 10, "queries": 10}


def record(draw: int, ours: float, logistic: float, ridge: float, shots: int = 5, **other: Any) -> dict[str, Any]:
    accuracy = {"LogisticRegression": logistic, "Ridge": ridge, "LDA": 0.3, "1-NN": 0.2, "ours": ours}
    return {
        "set": "birds",
        "shots": shots,
        "draw": draw,
        "accuracy": accuracy,
        "lesson_seconds": [2.0, 6.0],
        "predict_seconds": [0.011, 0.010],
        "bare_seconds": [0.010, 0.010],
        "estimated": ours + 0.02 * (-1) ** draw,
        "calibration_error": 0.05,
        "auroc": {"ours": 0.9, "own probability": 0.8, "class mean": 0.7 + draw / 10, "nearest example": 0.6},
        "false_alarms": 0.05,
        "caught": 0.5,
    } | other


def row(text: str, number: int) -> dict[str, str]:
    """The first row of a Markdown table, by its headings."""
    lines = text.split("\n\n")[2 * number + 1].splitlines()
    heading, _, first = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[:3])
    return dict(zip(heading, first, strict=True))


def test_the_best_rival_is_best_by_the_mean_and_each_draw_has_a_best_of_its_own():
    # ridge is the best by the mean (55 against 50): +10 and +0, a mean of 5; the bests of the draws are 50 and 60
    records = [record(0, ours=0.60, logistic=0.40, ridge=0.50), record(1, ours=0.60, logistic=0.60, ridge=0.60)]
    cells = row(tables(SETTING, records, markdown=True), 0)
    assert cells["the best"] == "Ridge"
    assert cells["draws"] == "2"
    assert cells["Ridge"] == "55.0 ± 63.5"  # t with one degree of freedom, 12.706, times 10 / √2 / √2
    assert cells["ours minus the best"] == "+5.0 ± 63.5"
    assert cells["ours"] == "60.0 ± 0.0"
    records[1]["accuracy"]["LogisticRegression"] = 0.65
    assert row(tables(SETTING, records, markdown=True), 0)["ours minus each draw's best"].startswith("+2.5 ±")


def test_times_and_estimates_are_means_over_lessons_and_draws():
    cells = row(tables(SETTING, [record(0, 0.6, 0.4, 0.5), record(1, 0.7, 0.4, 0.5)], markdown=True), 1)
    assert (cells["s a lesson"], cells["longest"]) == ("4.0", "6.0")
    assert (cells["ms a picture"], cells["relative"]) == ("10.5", "× 1.050")
    assert (cells["estimated %"], cells["true %"], cells["error of the estimate"]) == ("65.0", "65.0", "2.0")


def test_with_one_shot_what_there_is_not_is_a_dash():
    one = record(0, 0.6, 0.4, 0.5, shots=1, estimated=None, false_alarms=None, caught=None)
    del one["accuracy"]["LDA"]
    text = tables(SETTING, [one], markdown=True)
    assert row(text, 0)["LDA"] == DASH
    assert row(text, 1)["estimated %"] == row(text, 1)["error of the estimate"] == DASH
    assert row(text, 2)["false alarms"] == row(text, 2)["caught"] == DASH
    assert row(text, 2)["AUROC ours"] == "0.900"


def test_calibration_error_weighs_the_gap_of_each_bin():
    confidence = np.array([0.9, 0.9, 0.9, 0.9, 0.1])
    right = np.array([True, True, False, False, False])
    assert calibration_error(confidence, right) == pytest.approx(0.8 * 0.4 + 0.2 * 0.1)
    assert calibration_error(np.ones(3), np.ones(3, bool)) == 0


def test_files_of_several_processes_make_one_table(tmp_path: Path):
    files = [tmp_path / "one.json", tmp_path / "other.json"]
    for draw, file in enumerate(files):
        write_json(file, KIND, {"setting": SETTING, "records": [record(draw, 0.6, 0.4, 0.5)]})
    script = Path(__file__).parents[2] / "benchmarks" / "photographs.py"
    shown = run_child([sys.executable, script, "--show", *files]).stdout
    assert shown.rstrip("\n") == tables(SETTING, read_records(files)[1])
    assert next(line.split()[:3] for line in shown.splitlines() if line.startswith("birds")) == ["birds", "5", "2"]


def test_files_of_other_settings_or_with_the_same_draw_are_refused(tmp_path: Path):
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    content = {"setting": SETTING, "records": [record(0, 0.6, 0.4, 0.5)]}
    write_json(one, KIND, content)
    write_json(other, KIND, copy.deepcopy(content))
    with pytest.raises(SystemExit, match="a second time"):
        read_records([one, other])
    write_json(other, KIND, content | {"setting": SETTING | {"lessons": 5}})
    with pytest.raises(SystemExit, match="show it alone"):
        read_records([one, other])
    other.write_text("{}")
    with pytest.raises(StorageError):
        read_records([other])
