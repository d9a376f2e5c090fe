"""A cell that is killed goes on where it was, with the same bits."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from fscl.experiment.config import Config
from fscl.experiment.plan import Cell, Tick
from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from fscl.storage import read_json
from tests.experiment.planted import plant
from tests.experiment.tiny import TINY, command, tiny, toml

DIES = """
from pathlib import Path
from signal import SIGKILL

import fscl.experiment.executors.executor as executor

compute, log = executor.compute, Path({log!r})

def dies_after_the_second_task(order, cell, on_task, begun):
    first = not log.exists()
    def after_task(tick):
        with log.open("a") as file:
            file.write(f"{{cell.method}} {{tick.n_done}}\\n")
        on_task(tick)
        if first and tick.n_done == 2:
            os.kill(os.getpid(), SIGKILL)
    return compute(order, cell, after_task, begun)

executor.compute = dies_after_the_second_task
"""
METHODS = ["tsc", "replay", "prototypes", "tsc_gr", "cbcl", "ewc"]


def one_method(method: str) -> Config:
    return tiny(run__methods=[method], run__reference=method, run__n_sequences=1)


@pytest.mark.parametrize("method", METHODS)
def test_a_killed_cell_goes_on_after_its_last_task_with_the_same_bits(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    undisturbed = run_experiment(one_method(method), tmp_path / "whole", executor="in-process")
    monkeypatch.setattr("fscl.experiment.run.SAVE_EVERY", 0.0)
    log = tmp_path / "log"
    plant(DIES.format(log=str(log)), tmp_path / "planted", monkeypatch)
    record = run_experiment(one_method(method), tmp_path / "killed", workers=1)
    assert log.read_text().split() == [method, "1", method, "2", method, "3"]
    assert record.results_path.read_bytes() == undisturbed.results_path.read_bytes()
    assert list((record.folder / "unfinished").iterdir()) == []


def halfway(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> RunRecord:
    """A run of one cell whose driver was stopped after two tasks."""
    monkeypatch.setattr("fscl.experiment.run.SAVE_EVERY", 0.0)

    def stop(tick: Tick) -> None:
        if tick.n_done == 2:
            raise RuntimeError("the driver dies")

    with monkeypatch.context() as patch:
        patch.setattr("fscl.experiment.run._Progress.update", lambda self, cell, tick: stop(tick))
        with pytest.raises(RuntimeError, match="the driver dies"):
            run_experiment(one_method(method), folder, executor="in-process")
    return RunRecord(folder)


def test_the_same_command_goes_on_with_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole = run_experiment(one_method("tsc"), tmp_path / "whole", executor="in-process")
    record = halfway("tsc", tmp_path / "run", monkeypatch)
    assert record.cells() == {}
    assert record.unfinished(Cell("tsc", 0)) is not None
    seen: list[int] = []
    monkeypatch.setattr("fscl.experiment.run._Progress.update", lambda self, cell, tick: seen.append(tick.n_done))
    run_experiment(one_method("tsc"), record.folder, executor="in-process")
    assert seen == [3]
    assert record.results_path.read_bytes() == whole.results_path.read_bytes()


@pytest.mark.parametrize("content", [b"", b"no such file", None], ids=["empty", "foreign", "torn"])
def test_damaged_bytes_are_passed_over(content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole = run_experiment(one_method("replay"), tmp_path / "whole", executor="in-process")
    record = halfway("replay", tmp_path / "run", monkeypatch)
    path = record.unfinished_path(Cell("replay", 0))
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    seen: list[int] = []
    monkeypatch.setattr("fscl.experiment.run._Progress.update", lambda self, cell, tick: seen.append(tick.n_done))
    run_experiment(one_method("replay"), record.folder, executor="in-process")
    assert seen == [1, 2, 3]
    assert record.results_path.read_bytes() == whole.results_path.read_bytes()


def test_what_another_cell_left_is_not_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    record = halfway("replay", tmp_path / "replay", monkeypatch)
    other = halfway("tsc", tmp_path / "tsc", monkeypatch)
    path = other.unfinished_path(Cell("tsc", 0))
    path.write_bytes(record.unfinished_path(Cell("replay", 0)).read_bytes())
    seen: list[int] = []
    monkeypatch.setattr("fscl.experiment.run._Progress.update", lambda self, cell, tick: seen.append(tick.n_done))
    run_experiment(one_method("tsc"), other.folder, executor="in-process")
    assert seen == [1, 2, 3]
    assert len(read_json(other.results_path, "results")["cells"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("ctrl_c_is_ignored", [False, True], ids=["in front", "in the background"])
def test_a_run_that_is_terminated_keeps_what_is_finished_and_goes_on(ctrl_c_is_ignored: bool, tmp_path: Path):
    config, out = toml(tmp_path / "tiny.toml", {**TINY, "run": {**TINY["run"], "n_sequences": 60}}), tmp_path / "run"
    started = subprocess.Popen(
        [
            *(["nohup", "sh", "-c", 'trap "" INT; exec "$@"', "sh"] if ctrl_c_is_ignored else []),
            *command(config, out, 1),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    record = RunRecord(out)
    try:
        deadline = time.monotonic() + 120
        while not record.cells_path.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        started.send_signal(signal.SIGTERM)
        _, said = started.communicate(timeout=60)
    finally:
        started.kill()
    assert started.returncode != 0
    assert b"finished cells are kept, and the same command continues" in said
    assert 0 < len(record.cells()) < 180
