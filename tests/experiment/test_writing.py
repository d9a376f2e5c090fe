"""The driver's pen: cells come to disk in order, in batches, and a full disk loses nothing that is finished."""

import errno
import os
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import fscl.experiment.record as record_module
from fscl.errors import RunError
from fscl.experiment.executors.executor import Outcome
from fscl.experiment.executors.in_process import InProcess
from fscl.experiment.plan import Cell, Finished
from fscl.experiment.record import FLUSH_TOGETHER, RunRecord
from fscl.experiment.run import run_experiment
from fscl.experiment.writing import CellWriter
from tests.experiment.tiny import begun, tiny


def finished(number: int) -> Finished:
    return Finished({"top1": [[number / 1000]]}, {}, {"confusions.json": f"{number}".encode()})


def test_many_cells_at_once_are_flushed_together_and_before_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    record, events = begun(tmp_path), []
    fsync, flush_all = os.fsync, record_module.sync_file_system

    def flush(folder: Path) -> None:
        written = [record.file_path(cell, "confusions.json").read_bytes() for cell, _ in batch]
        events.append((folder, written, record.cells_path.exists()))
        flush_all(folder)

    monkeypatch.setattr(record_module, "sync_file_system", flush)
    monkeypatch.setattr(os, "fsync", lambda descriptor: (events.append("line"), fsync(descriptor)))
    batch = [(Cell("tsc", number), finished(number)) for number in range(FLUSH_TOGETHER)]
    record.append_all(batch)
    contents = [f"{number}".encode() for number in range(FLUSH_TOGETHER)]
    assert events == [(tmp_path, contents, False), "line", "line"]  # the last is for the name of the new file
    del events[:]
    batch = [(Cell("ewc", number), finished(number)) for number in range(FLUSH_TOGETHER)]
    record.append_all(batch)
    assert events == [(tmp_path, contents, True), "line"]  # two waits for the disk, however many cells
    batch = [(Cell(method, number), finished(number)) for method in ("tsc", "ewc") for number in range(FLUSH_TOGETHER)]
    assert list(record.cells()) == [cell for cell, _ in batch]


def test_cells_that_come_while_the_disk_is_busy_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    record, go_on, batches = begun(tmp_path), threading.Event(), []
    append_all = RunRecord.append_all

    def slow(self: RunRecord, batch: list[tuple[Cell, Finished]]) -> None:
        go_on.wait(10)
        batches.append(len(batch))
        append_all(self, batch)

    monkeypatch.setattr(RunRecord, "append_all", slow)
    writer = CellWriter(record)
    for number in range(50):
        writer.add(Cell("tsc", number), finished(number))
    go_on.set()
    writer.close()
    writer.check()
    assert sum(batches) == 50
    assert len(batches) <= 3
    assert [cell.sequence for cell in record.cells()] == list(range(50))


def full_after(n_batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full after so many batches of cells."""
    append_all, left = RunRecord.append_all, [n_batches]

    def append(self: RunRecord, batch: list[tuple[Cell, Finished]]) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        append_all(self, batch)

    monkeypatch.setattr(RunRecord, "append_all", append)


@pytest.mark.parametrize("n_written", [2, 5])
def test_a_full_disk_ends_the_run_in_one_sentence_and_the_same_command_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_written: int
):
    config = tiny(run__methods=["prototypes"], run__reference="prototypes", run__n_sequences=6)
    whole = run_experiment(config, tmp_path / "whole", executor="in-process")
    record = RunRecord(tmp_path / "run")
    with monkeypatch.context() as patched:
        full_after(n_written, patched)
        with pytest.raises(RunError, match=r"cannot write to .*run: No space left on device\. Finished cells are kept"):
            run_experiment(config, record.folder, executor=SlowlyInProcess())
    kept = record.cells()
    assert n_written <= len(kept) < 6
    assert not record.results_path.exists()
    run_experiment(config, record.folder, executor="in-process")
    assert {cell: entry for cell, entry in record.cells().items() if cell in kept} == kept
    assert record.results_path.read_bytes() == whole.results_path.read_bytes()


class SlowlyInProcess(InProcess):
    """Waits after each cell until the pen has come to rest, as it does where cells take seconds."""

    def compute(self, *given: Any) -> Generator[tuple[Cell, Outcome], None, None]:
        for outcome in super().compute(*given):
            yield outcome
            time.sleep(0.3)


def test_a_full_disk_in_the_middle_of_a_cell_ends_the_run_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("fscl.experiment.run.SAVE_EVERY", 0.0)

    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    config = tiny(run__methods=["replay"], run__n_sequences=1)
    with monkeypatch.context() as patched:
        patched.setattr("fscl.experiment.run.write_bytes", full)
        with pytest.raises(RunError, match="No space left on device"):
            run_experiment(config, tmp_path / "run", workers=1)
    record = run_experiment(config, tmp_path / "run", workers=1)
    assert set(record.cells()) == {Cell("replay", 0)}
