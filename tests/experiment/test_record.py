"""A run directory: what is damaged is refused, and a finished cell is on disk."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from fscl.errors import OtherRun, RunError, StorageError
from fscl.experiment.plan import Cell, Finished
from fscl.experiment.record import RunRecord
from fscl.storage import write_bytes, write_json
from tests.experiment.tiny import begun
from tools.soaking.breaking import ENDED, PowerCut, in_child


def test_a_line_cut_short_by_a_kill_is_dropped(tmp_path: Path):
    record = begun(tmp_path)
    record.append(Cell("tsc", 0), Finished({"top1": [[1.0]]}, {}))
    with record.cells_path.open("a") as file:
        file.write('{"method": "tsc", "sequ')
    before = record.cells_path.read_bytes()
    assert set(record.cells()) == {Cell("tsc", 0)}
    assert record.cells_path.read_bytes() == before  # readers change nothing: a writer may be at work
    record.drop_torn_line()
    record.append(Cell("tsc", 1), Finished({"top1": [[0.5]]}, {}))
    assert set(record.cells()) == {Cell("tsc", 0), Cell("tsc", 1)}


@pytest.mark.parametrize(
    ("old", "new"), [("0.5", "0.9"), ('"tsc"', '"joint"'), ('"sequence":0', '"sequence":1'), ("7.0", "1.0")]
)
def test_an_altered_cell_is_refused_whatever_was_altered(tmp_path: Path, old: str, new: str):
    record = begun(tmp_path)
    record.append(Cell("tsc", 0), Finished({"top1": [[0.5]]}, {"learn_seconds": [7.0]}))
    text = record.cells_path.read_text()
    assert old in text
    record.cells_path.write_text(text.replace(old, new))
    with pytest.raises(StorageError, match=r"line 1 was altered"):
        record.cells()


@pytest.mark.parametrize(
    "line", [b"\xff\xfe", b"[]", b"3", b"{}", b'{"digest": 1, "method": "x", "sequence": {}}', b"[" * 100_000]
)
def test_a_line_that_is_no_cell_is_refused_by_its_number(tmp_path: Path, line: bytes):
    record = begun(tmp_path)
    record.cells_path.write_bytes(line + b"\n")
    with pytest.raises(StorageError, match=r"cells\.jsonl, line 1 is not a finished cell"):
        record.cells()


@pytest.mark.parametrize("part", ["config", "data", "base", "streams"])
def test_a_cell_belongs_to_one_configuration_data_base_and_streams(tmp_path: Path, part: str):
    record = begun(tmp_path)
    record.append(Cell("tsc", 0), Finished({"top1": [[0.5]]}, {}))
    about = record.about()
    about[part] = ["another"] if part == "streams" else {**about[part], next(iter(about[part])): "another"}
    write_json(record.about_path, "run", about)
    with pytest.raises(StorageError, match="belongs to another run"):
        record.cells()


def test_a_cell_that_comes_twice_is_refused(tmp_path: Path):
    record = begun(tmp_path)
    for _ in range(2):
        record.append(Cell("tsc", 0), Finished({"top1": [[0.5]]}, {}))
    with pytest.raises(StorageError, match="line 2 repeats tsc on sequence 0"):
        record.cells()


@pytest.mark.parametrize("text", ["{}", '{"kind": "run", "schema": 1}', '{"kind": "run", "schema": 1, "config": 3}'])
def test_a_damaged_description_is_refused_by_name(tmp_path: Path, text: str):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(StorageError, match=r"run\.json"):
        RunRecord(tmp_path).about()


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path):
    with pytest.raises(RunError, match="is not a run directory"):
        RunRecord(tmp_path).about()


def test_a_finished_cell_is_flushed_to_the_disk_after_its_files_and_before_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    record, flushed = begun(tmp_path), []
    fsync = os.fsync

    def spy(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        flushed.append((path.relative_to(tmp_path).as_posix(), path.read_bytes() if path.is_file() else b""))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    record.append(Cell("tsc", 0), Finished({"top1": [[0.5]]}, {}, {"confusions.json": b"{}"}))
    names = [name for name, _ in flushed]
    # the file, the folders that name it and one another, the line, and the folder that names its file
    assert names[0].startswith("files/tsc-000/")
    assert names[1:] == ["files/tsc-000", "files", ".", "cells.jsonl", "."]
    assert flushed[0][1] == b"{}"
    assert flushed[4][1] == record.cells_path.read_bytes()  # the whole line had left the process's buffer
    assert json.loads(flushed[4][1])["method"] == "tsc"


def test_a_cell_whose_files_cannot_be_written_is_not_finished(tmp_path: Path):
    record = begun(tmp_path)
    (tmp_path / "files").write_text("a file in the way")
    with pytest.raises(OSError, match="files"):
        record.append(Cell("gr", 0), Finished({}, {}, {"generated.png": b"png"}))
    assert record.cells() == {}


@pytest.mark.parametrize(
    "name",
    [
        "../run.json",
        "../../run.json",
        "/etc/passwd",
        "/run.json",
        "a/b/c.json",
        "observed/../../run.json",
        "observed/..",
        "observed\\x",
        "",
    ],
)
def test_a_cell_cannot_write_over_anything_but_its_own_files(tmp_path: Path, name: str):
    record = begun(tmp_path)
    with pytest.raises(RunError, match="but a name is like"):
        record.append(Cell("tsc", 0), Finished({}, {}, {name: b"evil"}))
    assert record.cells() == {}


def test_a_run_begun_on_another_kind_of_processor_is_refused_with_both_shown(tmp_path: Path):
    record = begun(tmp_path)
    about = {**record.about(), "versions": {"cpu": "torch Z80"}}
    record.about_path.unlink()
    record.begin(about)
    record.begin(about)
    with pytest.raises(OtherRun, match=r"another kind of processor: torch Z80, but now it is torch 6502\."):
        record.begin({**about, "versions": {"cpu": "torch 6502"}})


def test_a_version_that_does_not_change_results_does_not_end_a_run(tmp_path: Path):
    record = begun(tmp_path)
    record.begin({**record.about(), "versions": {"python": "4.0"}})
    with pytest.raises(OtherRun, match=r"versions\.torch = None, but now it is '9'"):
        record.begin({**record.about(), "versions": {"torch": "9"}})


def test_the_results_are_in_the_order_of_the_plan_whatever_finished_first(tmp_path: Path):
    record = begun(tmp_path)
    for number in (1, 0):
        record.append(Cell("tsc", number), Finished({"top1": [[number / 2]]}, {"learn_seconds": [3.0]}))
    record.finish([Cell("tsc", 0), Cell("tsc", 1)])
    results = json.loads(record.results_path.read_text())["cells"]
    assert results == [{"method": "tsc", "sequence": n, "result": {"top1": [[n / 2]]}} for n in (0, 1)]


def test_a_lock_is_given_back_and_refused_at_once_while_it_is_held(tmp_path: Path):
    record, begin = RunRecord(tmp_path), time.monotonic()
    for _ in range(2):
        with record.locked(), pytest.raises(RunError, match="another process is running"), record.locked():
            pass
    assert time.monotonic() - begin < 4


def test_a_folder_that_cannot_be_written_is_refused_by_name(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RunError, match=r"cannot write to .*file/run: Not a directory\. Name another folder"),
        RunRecord(tmp_path / "file" / "run").locked(),
    ):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, so that a process that dies costs no imports")
def test_what_a_power_cut_leaves_can_be_gone_on_with_and_a_cell_that_was_added_is_there(tmp_path: Path):
    cell, root = Cell("tsc", 0), tmp_path / "disk"

    def work() -> None:
        record = begun(root / "run")
        write_bytes(record.network_path, b"base")
        record.append(cell, Finished({"top1": [[0.5]]}, {}, {"observed/drift.json": b"{}"}))

    for number in range(100):
        root.mkdir()
        code = in_child(work, PowerCut(number, root, "nothing" if number > 50 else "some", seed=number))
        record = RunRecord(root / "run")
        record.refuse_strays()  # a file without the run.json that says what it is of
        found = record.cells() if record.about_path.exists() else {}
        for done in found:
            assert record.file_path(done, "observed/drift.json").read_bytes() == b"{}"
        shutil.rmtree(root)
    assert code == ENDED
    assert set(found) == {cell}
