"""Golden runs: a change of structure leaves every bit of a result as it was.

`python -m tests.test_golden` records them anew, for a change that is meant to alter results (raise ARITHMETIC then).
Bits are those of one kind of processor (`fscl.process.cpu_level`); on another the accuracies are compared instead.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from fscl.experiment.config import load_config
from fscl.experiment.run import run_experiment
from fscl.process import cpu_level
from fscl.storage import digest, read_json

FOLDER = Path(__file__).parent / "golden"
RUNS = {
    "omniglot": (str(FOLDER / "omniglot-golden.toml"), []),
    "glyphs": (
        "glyphs-quick",
        ["run.n_sequences=1", "settings.all.steps=20", "stream.n_tasks=3", "probe.after=[0,3]"],
    ),
}
SHIFT = 0.15  # of an accuracy over some 100 images, between two kinds of processor


def measured(name: str, folder: Path) -> dict[str, dict[str, Any]]:
    """For each cell a digest of its result, and its last accuracies for people and other processors."""
    config, overrides = RUNS[name]
    record = run_experiment(load_config(config, overrides), folder, workers=2)
    cells = read_json(record.results_path, "results")["cells"]
    return {
        f"{cell['method']} {cell['sequence']}": {"digest": digest(cell["result"]), "top1": cell["result"]["top1"][-1]}
        for cell in cells
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_results_are_those_of_the_golden_run(
    name: str, tmp_path: Path, real_data: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FSCL_DATA", str(real_data))
    golden = json.loads((FOLDER / f"{name}.json").read_text())
    found = measured(name, tmp_path / "run")
    assert list(found) == list(golden["cells"])
    if golden["cpu"] == cpu_level():
        assert found == golden["cells"]
        return
    for cell, expected in golden["cells"].items():
        assert found[cell]["top1"] == pytest.approx(expected["top1"], abs=SHIFT), cell


if __name__ == "__main__":
    for each in RUNS:
        with TemporaryDirectory() as temporary:
            content = {"cpu": cpu_level(), "cells": measured(each, Path(temporary) / "run")}
        (FOLDER / f"{each}.json").write_text(json.dumps(content, indent=1) + "\n")
