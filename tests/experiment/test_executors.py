"""Executors: the same bits from each, and from processes that are killed."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from fscl.errors import MisuseError, RunError, UnknownName
from fscl.experiment.executors import Placement, find_executor
from fscl.experiment.executors.local import MAX_DEATHS, _Queue
from fscl.experiment.plan import Cell
from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from tests.children import run_child, started_child
from tests.conftest import ROOT
from tests.experiment.planted import AUDIT, plant, plant_at_start_of_cells, plant_kills
from tests.experiment.tiny import TINY, command, tiny, toml


def files_of(record: RunRecord) -> dict[str, bytes]:
    """What must not depend on who computed it; not the lock, the times, or what is made by the way."""
    varying = {".lock", "cells.jsonl", "report.html"}
    paths = [path for path in record.folder.rglob("*") if path.is_file() and path.name not in varying]
    return {str(path.relative_to(record.folder)): path.read_bytes() for path in paths}


def test_cells_computed_in_this_process_leave_the_bits_of_two_worker_processes(finished: RunRecord, tmp_path: Path):
    here = run_experiment(tiny(), tmp_path / "here", executor="in-process")
    assert files_of(here) == files_of(finished)
    assert "files/tsc-000/confusions.json" in files_of(here)


def test_an_observed_and_generating_run_leaves_the_same_files_from_every_executor(tmp_path: Path):
    observe = {"drift": {"after": [1]}, "penalties": {"after": 1}, "fisher": {"steps": [0, 2], "episodes": 0}}
    config = tiny(run__methods=["gr"], run__reference="gr", run__n_sequences=1, observe=observe)
    records = [run_experiment(config, tmp_path / name, workers=1, executor=name) for name in ("local", "in-process")]
    files = [files_of(record) for record in records]
    assert files[0] == files[1]
    assert {f"files/gr-000/{name}" for name in ("confusions.json", "observed/drift.json", "generated.png")} <= files[
        0
    ].keys()


def test_in_process_starts_no_process_and_refuses_to_be_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("multiprocessing.get_context", lambda *_: pytest.fail("a process was started"))
    config = tiny(run__methods=["prototypes"], run__n_sequences=1)
    record = run_experiment(config, tmp_path / "run", executor="in-process")
    assert set(record.cells()) == {Cell("prototypes", 0)}
    with pytest.raises(MisuseError, match="in-process computes one cell at a time, but workers is 2"):
        run_experiment(config, tmp_path / "two", executor="in-process", workers=2)
    assert not (tmp_path / "two").exists()


def test_an_unknown_executor_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownName, match=r"no executor named 'locale'\. Did you mean 'local'\?"):
        find_executor("locale")


@pytest.mark.parametrize("placement", [Placement(address="127.0.0.1:6379"), Placement(send_data=True)])
def test_what_is_said_about_other_machines_is_refused_where_there_are_none(placement: Placement):
    option = "--address" if placement.address else "--send-data"
    with pytest.raises(MisuseError, match=f"{option} is about other machines, but --executor local"):
        find_executor("local", placement)


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_of_a_cell_changes_no_bit(
    finished: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    deaths = plant_kills(["tsc-0", "replay-1", "prototypes-2"], 1, tmp_path / "planted", monkeypatch)
    record = run_experiment(tiny(), tmp_path / "run", workers=2)
    assert {path.stem for path in deaths.iterdir()} == {"tsc-0", "replay-1", "prototypes-2"}
    assert files_of(record) == files_of(finished)
    assert len(record.cells()) == 9


@pytest.mark.slow
def test_a_cell_that_always_kills_its_worker_is_reported_and_the_others_finish(
    finished: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    deaths = plant_kills(["replay-1"], 3, tmp_path / "planted", monkeypatch)
    config = toml(tmp_path / "tiny.toml", TINY)
    record = RunRecord(tmp_path / "run")
    ended = run_child(command(config, record.folder, 2), expect=1)
    assert "1 of 9 cells failed; 8 finished ones are kept." in ended.stderr
    assert (
        "replay on sequence 1 ended its worker process 3 times, the last time alone (killed by signal 9" in ended.stderr
    )
    assert len(list(deaths.iterdir())) == 3
    assert not record.results_path.exists()
    before = record.cells()
    assert set(before) == {cell for cell in finished.cells() if cell != Cell("replay", 1)}

    run_child(command(config, record.folder, 2))
    assert {cell: entry for cell, entry in record.cells().items() if cell != Cell("replay", 1)} == before
    assert record.results_path.read_bytes() == finished.results_path.read_bytes()


class IdleWorker:
    """Takes a cell, and does nothing with it."""

    def __init__(self) -> None:
        self.is_ready, self.cell = True, None

    def send(self, value: object) -> bool:
        return True


def test_the_last_try_of_a_cell_has_the_machine_to_itself():
    suspect, other, last = Cell("tsc", 0), Cell("tsc", 1), Cell("tsc", 2)
    queue = _Queue([other, suspect, last])
    queue.deaths[suspect] = MAX_DEATHS - 1
    crew = [IdleWorker(), IdleWorker()]
    queue.assign_to(crew, lambda cell: None)  # type: ignore[arg-type]
    assert [worker.cell for worker in crew] == [other, None]
    crew[0].cell = None
    queue.assign_to(crew, lambda cell: None)  # type: ignore[arg-type]
    assert [worker.cell for worker in crew] == [suspect, None]
    crew[0].cell = None
    queue.assign_to(crew, lambda cell: None)  # type: ignore[arg-type]
    assert [worker.cell for worker in crew] == [last, None]
    assert not queue.waiting


def test_a_worker_opens_nothing_of_the_run_directory_for_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = tmp_path / "log"
    plant(AUDIT.format(log=str(log)), tmp_path / "planted", monkeypatch)
    observe = {"drift": {"after": [1]}, "penalties": {"after": 1}, "fisher": {"steps": [0, 2], "episodes": 0}}
    config = tiny(run__methods=["gr", "tsc"], run__reference="gr", run__n_sequences=1, observe=observe)
    record = run_experiment(config, tmp_path / "run", workers=2)
    assert record.file_path(Cell("gr", 0), "generated.png").exists()
    assert record.file_path(Cell("tsc", 0), "observed/drift.json").exists()
    lines = log.read_text().splitlines()
    assert lines.count("a worker began") == 2
    assert "/proc/self/clear_refs" in lines  # the audit sees what is written
    assert [line for line in lines if str(record.folder) in line] == []


def test_workers_that_die_as_they_start_end_the_run_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plant("os._exit(7)", tmp_path / "planted", monkeypatch)
    with pytest.raises(RunError, match=r"the worker processes die as they start \(exit code 7\)"):
        run_experiment(tiny(run__n_sequences=1), tmp_path / "run", workers=2)


def test_a_worker_that_dies_once_as_it_starts_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    marker = tmp_path / "marker"
    once = f"if not os.path.exists({str(marker)!r}):\n    open({str(marker)!r}, 'w').close()\n    os._exit(7)\n"
    plant(once, tmp_path / "planted", monkeypatch)
    record = run_experiment(tiny(run__n_sequences=1, run__methods=["prototypes"]), tmp_path / "run", workers=1)
    assert marker.exists()
    assert set(record.cells()) == {Cell("prototypes", 0)}


def test_a_worker_does_not_hear_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = tmp_path / "log"
    plant_at_start_of_cells("os.kill(os.getpid(), 2)", log, tmp_path / "planted", monkeypatch)
    run_experiment(tiny(run__n_sequences=1, run__methods=["prototypes"]), tmp_path / "run", workers=1)
    assert log.read_text() == "a cell began\n"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 1)])
def test_a_driver_that_ends_takes_its_workers_with_it_in_the_middle_of_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
):
    log = tmp_path / "log"
    plant_at_start_of_cells("import time; time.sleep(600)", log, tmp_path / "planted", monkeypatch)
    config = toml(tmp_path / "tiny.toml", TINY)
    process = subprocess.Popen(
        command(config, tmp_path / "run", 1), cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not (log.exists() and log.read_text()) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)  # to the driver alone
    try:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == code, errors
        assert _all_gone(process.pid)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


FAULTY = """
import fscl.experiment.executors.executor as executor

class Odd(ValueError):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")

def compute(order, cell, on_task, begun):
    raise Odd(1, 2)

executor.compute = compute
"""


def test_a_fault_of_a_method_is_shown_with_the_traceback_of_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plant(FAULTY.replace("Odd(1, 2)", "ZeroDivisionError('a fault')"), tmp_path / "planted", monkeypatch)
    with pytest.raises(ZeroDivisionError, match="a fault") as caught:
        run_experiment(tiny(run__n_sequences=1), tmp_path / "run", workers=1)
    assert "sitecustomize.py" in "".join(caught.value.__notes__)


def test_an_error_that_cannot_be_sent_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plant(FAULTY, tmp_path / "planted", monkeypatch)
    with pytest.raises(RuntimeError, match="Odd: 1 and 2"):
        run_experiment(tiny(run__n_sequences=1), tmp_path / "run", workers=1)


@pytest.mark.slow
def test_a_run_killed_halfway_and_continued_equals_one_never_killed(finished: RunRecord, tmp_path: Path):
    config = toml(tmp_path / "tiny.toml", TINY)
    cut = RunRecord(tmp_path / "cut")
    with started_child(command(config, cut.folder, 2)) as child:
        child.wait_until(cut.cells)
        child.send(signal.SIGKILL)
        child.finish(expect=-signal.SIGKILL)
        done = len(cut.cells())
        assert 0 < done < 9
        assert not cut.results_path.exists()
        assert _all_gone(child.pid)

    ended = run_child(command(config, cut.folder, 1))
    assert ended.stdout.splitlines()[-1] == str(cut.folder / "report.html")
    assert cut.results_path.read_bytes() == finished.results_path.read_bytes()
    assert len((cut.folder / "cells.jsonl").read_text().splitlines()) == 9  # what was finished was not done again


def _all_gone(session: int) -> bool:
    """Whether every process of a session ends within a few seconds."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.killpg(session, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_ctrl_c_keeps_the_finished_cells_and_says_how_to_go_on(tmp_path: Path):
    config = toml(tmp_path / "tiny.toml", TINY)
    record = RunRecord(tmp_path / "cut")
    with started_child(command(config, record.folder, 1)) as child:
        child.wait_until(record.cells)
        child.send(signal.SIGINT, to_group=True)  # as a terminal does: to the workers too
        errors = child.finish(timeout=60, expect=1).stderr
    assert errors.strip().splitlines()[-1].startswith("fscl: stopped; ")
    assert "the same command continues" in errors
    assert "Traceback" not in errors
    assert record.cells()
