"""`make soak` kills real processes, finds nothing where the store is sound, and something where it is not."""

import os
import signal
from pathlib import Path

import pytest

from fscl.classifier.store.manifest import read_manifest
from tests.classifier.models import classifier, examples
from tools.soak import FAILED, KILLED, Round, Tally, in_child, soak

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, so that a killed process costs no imports")


def totals(tally: Tally, *names: str) -> int:
    return sum(counts[name] for counts in tally.counts.values() for name in names)


def test_a_process_is_killed_before_each_file_change_until_there_is_none(tmp_path: Path):
    classifier().partial_fit(*examples(0, 1)).save(tmp_path / "model")
    before = read_manifest(tmp_path / "model").seal
    call = lambda model: model.rename("class-0", "zero")  # noqa: E731
    assert in_child(tmp_path / "model", call, stop_before=0, seconds=None) == KILLED
    assert read_manifest(tmp_path / "model").seal == before
    assert in_child(tmp_path / "model", call, stop_before=500, seconds=None) == 0
    assert read_manifest(tmp_path / "model").seal != before
    assert in_child(tmp_path / "model", call, stop_before=None, seconds=None) == FAILED  # it has that name already


def test_a_short_soak_finds_nothing_and_goes_on_where_it_was(tmp_path: Path):
    first = soak(tmp_path, 0.05)
    assert first.problems == []
    assert totals(first, "random", "placed", "ended") > 0
    assert totals(first, "before", "waiting", "after") >= totals(first, "random", "placed")
    again = soak(tmp_path, 0.05 + first.seconds / 60)
    assert again.rounds > first.rounds
    assert again.seconds > first.seconds
    assert totals(again, "random", "placed", "ended") > totals(first, "random", "placed", "ended")
    assert again.table().count("\n") == 11


def test_a_store_that_writes_in_place_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def in_place(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
            file.flush()
            os.fsync(file.fileno())  # a process that is killed here leaves half a file
            file.write(content[len(content) // 2 :])

    tally = Tally()
    one = Round(0, tmp_path, tally)
    one.step(0)
    assert tally.problems == []
    monkeypatch.setattr("fscl.storage.write_bytes", in_place)
    one.exhausted.clear()
    one.step(1)
    assert totals(tally, "half", "lost", "error") > 0
    assert signal.SIGKILL == -KILLED
