"""`make soak` breaks real processes, finds nothing where the store is sound, and something where it is not."""

import os
import random
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fscl import ContinualClassifier
from fscl.classifier.store.manifest import read_manifest
from fscl.errors import StorageError
from fscl.storage import sync_folder, write_bytes
from tests.classifier.models import classifier, examples
from tools.soak import soak
from tools.soaking.breaking import (
    CUT,
    ENDED,
    FAILED,
    KILLED,
    REFUSED,
    BeforeChange,
    Breaking,
    FullDisk,
    NoNewFiles,
    PowerCut,
    in_child,
)
from tools.soaking.disk import Disk
from tools.soaking.full import EveryByte
from tools.soaking.models import TRIES, Round, contents, model_task
from tools.soaking.readers import Reader, answer_digest
from tools.soaking.runs import Runs, run_task, train_task
from tools.soaking.service import ServiceRound
from tools.soaking.tally import CALLS, Tally
from tools.soaking.task import next_place

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, so that a killed process costs no imports")


def renamed(folder: Path, old: str = "class-0", new: str = "zero") -> Callable[[], object]:
    return lambda: ContinualClassifier.load(folder).rename(old, new)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    classifier().partial_fit(*examples(0, 1)).save(tmp_path / "disk" / "model")
    return tmp_path / "disk" / "model"


def test_a_process_is_killed_before_each_file_change_until_there_is_none(folder: Path):
    before = read_manifest(folder).seal
    assert in_child(renamed(folder), BeforeChange(0)) == KILLED
    assert read_manifest(folder).seal == before
    assert in_child(renamed(folder), BeforeChange(500)) == ENDED
    assert read_manifest(folder).seal != before
    assert in_child(renamed(folder)) == REFUSED  # it has that name already
    assert in_child(lambda: 1 / 0) == FAILED


@pytest.mark.parametrize("make", [FullDisk, NoNewFiles])
def test_a_full_disk_refuses_in_a_sentence_and_leaves_the_model_as_it_was(
    make: Callable[[int], Breaking], folder: Path
):
    before = read_manifest(folder).seal
    assert in_child(renamed(folder), make(0)) == REFUSED
    assert read_manifest(folder).seal == before
    assert in_child(renamed(folder), make(10**9)) == ENDED
    assert read_manifest(folder).seal != before


def test_a_power_cut_drops_what_was_not_flushed(tmp_path: Path):
    root = tmp_path / "disk"
    root.mkdir()
    (root / "old").write_bytes(b"old")
    disk = Disk(root)
    with (root / "flushed").open("wb") as file:
        file.write(b"flushed")
        file.flush()
        os.fsync(file.fileno())
        disk.flushed(file.fileno())
    (root / "not flushed").write_bytes(b"content")
    (root / "old").unlink()

    def left(name: str, keep: str) -> dict[str, bytes]:
        disk.survivors(tmp_path / name, keep, random.Random(0))  # type: ignore[arg-type] # names of the ways
        return {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}

    assert left("nothing", "nothing") == {"old": b"old"}  # no name was flushed
    assert left("names", "names") == {"flushed": b"flushed", "not flushed": b""}
    descriptor = os.open(root, os.O_RDONLY)
    disk.flushed(descriptor)
    os.close(descriptor)
    assert left("certain", "nothing") == {"flushed": b"flushed", "not flushed": b""}


def test_the_power_is_cut_before_a_change_or_when_all_is_done(tmp_path: Path):
    root = tmp_path / "disk"
    root.mkdir()

    def work() -> None:
        write_bytes(root / "one", b"1")
        sync_folder(root)
        write_bytes(root / "two", b"2")

    assert in_child(work, PowerCut(0, root)) == CUT
    assert list(root.iterdir()) == []
    assert in_child(work, PowerCut(500, root)) == ENDED
    assert [path.name for path in root.iterdir()] == ["one"]  # the name of the second was never flushed


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Round, ServiceRound, lambda _, place, tally: EveryByte(place, tally)])
def test_a_short_soak_finds_nothing_and_goes_on_where_it_was(kind: Callable[..., object], tmp_path: Path):
    first = soak(tmp_path, 0.06, order=(kind,))
    assert first.problems == []
    broken, found = ("moment", "change", "power", "full"), ("before", "waiting", "after")
    assert sum(first.total[name] for name in broken) > 0
    assert sum(first.total[name] for name in found) == sum(first.total[name] for name in (*broken, "ended"))
    again = soak(tmp_path, 0.02 + first.seconds / 60, order=(kind,))
    assert again.rounds > first.rounds
    assert all(again.total[name] >= first.total[name] > 0 for name in first.total)
    assert again.places.keys() >= first.places.keys()
    assert again.table().count("\n") == len(CALLS) + 4


@pytest.mark.slow
def test_a_training_and_a_run_are_continued_to_the_bits_of_their_twins(tmp_path: Path):
    tally = Tally()
    runs = Runs(0, tmp_path, tally)
    for task in (train_task(runs.config, runs.twin), run_task(runs.config, runs.twin, executor="in-process")):
        for number in (3, 9):
            tally.places[f"{task.name} {task.kind} change"] = number
            next_place(task, runs.victim, "change", lambda _, number: BeforeChange(number), tally)
            tally.places[f"{task.name} {task.kind} power"] = number
            next_place(task, runs.victim, "power", lambda root, number: PowerCut(number, root, "some"), tally)
        assert tally.counts[task.kind]["change"] == 2
        assert tally.counts[task.kind]["power"] == 2
    assert tally.problems == []


def test_a_store_that_writes_in_place_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def in_place(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
            file.flush()
            os.fsync(file.fileno())  # a process that is killed here leaves half a file
            file.write(content[len(content) // 2 :])

    tally = Tally()
    one = Round(0, tmp_path, tally)
    one.step(1, tries=TRIES)
    assert tally.problems == []
    monkeypatch.setattr("fscl.storage.write_bytes", in_place)
    one.step(2, tries={**TRIES, "change": 30})
    assert tally.total["half"] + tally.total["error"] + tally.total["lost"] > 0


@pytest.mark.parametrize(("module", "what"), [("folder", "lost"), ("states", "half")])
def test_a_store_that_flushes_no_folder_is_found_out(
    module: str, what: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copytree(folder, tmp_path / "twin")
    monkeypatch.setattr("fscl.estimator._now", lambda: "2020-01-01T00:00:00+00:00")
    tally, before = Tally(), contents(folder)
    ContinualClassifier.load(tmp_path / "twin").rename("class-0", "zero")
    task = model_task(
        "rename", "toy", lambda model: model.rename("class-0", "zero"), before, contents(tmp_path / "twin")
    )
    for _ in range(2):
        next_place(task, folder.parent, "power", lambda root, number: PowerCut(number + 500, root), tally)
        assert tally.counts["rename"][what] == len(tally.problems)
        if not tally.problems:
            monkeypatch.setattr(f"fscl.classifier.store.{module}.sync_folder", lambda _: None)
    assert tally.problems


def looked(reader: Reader, wanted: int) -> int:
    """Wait until it has looked so often; how often it has."""
    until = time.monotonic() + 60
    while (n := Path(reader.notes.name).read_text().count("\n")) < wanted and time.monotonic() < until:
        time.sleep(0.02)
    return n


def test_a_reader_tells_what_never_was(folder: Path):
    asked, tally = examples(0)[0], Tally()
    known = answer_digest(folder, asked)
    with Reader(folder, asked) as reader:
        looks = looked(reader, 1)
        renamed(folder)()
        looked(reader, looks + 2)  # one look may have begun before
    reader.compare({known, answer_digest(folder, asked)}, tally)
    assert tally.looks["looks"] > 1
    assert tally.problems == []
    reader.compare({known}, tally)
    assert tally.looks["wrong"] > 0


def test_what_is_lost_is_counted_and_said(folder: Path):
    tally, before = Tally(), contents(folder)
    task = model_task("rename", "toy", lambda model: model.rename("class-0", "zero"), before, before)
    next_place(task, folder.parent, "change", lambda _, number: BeforeChange(number + 500), tally)
    assert tally.counts["rename"]["lost"] == 1
    assert "neither that before the call nor that after it" in tally.problems[0]
    assert "| rename | 0 | 0 |" in tally.table()


def test_errors_that_are_no_sentences_are_counted(folder: Path):
    def broken(_: Path) -> None:
        raise StorageError("a refusal where none is due")

    tally, before = Tally(), contents(folder)
    task = model_task("learn", "toy", lambda model: broken(folder), before, before)
    assert in_child(partial(task.call, folder.parent)) == REFUSED
    next_place(task, folder.parent, "change", lambda _, number: BeforeChange(number + 500), tally)
    assert tally.counts["learn"]["error"] == 1
