"""One process changes a model at a time: another waits, is told who writes, and takes over from one that was killed."""

import os
import signal
import threading
import time
from multiprocessing import get_context
from pathlib import Path

import pytest

from fscl import ContinualClassifier
from fscl.classifier.store.lock import TIMEOUT, writing
from fscl.errors import ModelBusy, StorageError
from tests.classifier.models import classifier, contents, examples, same


@pytest.fixture
def model(tmp_path: Path) -> ContinualClassifier:
    return classifier().partial_fit(*examples(0, 1)).save(tmp_path / "model", timeout=0.05)


def hold(folder: Path, held: int) -> None:
    """In a process of its own: take the lock, say so, and keep it until killed."""
    with writing(folder):
        os.write(held, b".")
        time.sleep(60)


class Holder:
    """A process that holds the lock of a folder."""

    def __init__(self, folder: Path) -> None:
        reading, held = os.pipe()
        self.process = get_context("fork").Process(target=hold, args=(folder, held))
        self.process.start()
        assert os.read(reading, 1) == b"."

    def kill(self) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()


def test_a_second_writer_waits_and_is_told_who_writes_and_a_reader_is_not_kept_waiting(
    model: ContinualClassifier, tmp_path: Path
):
    holder = Holder(tmp_path / "model")
    try:
        before = contents(tmp_path / "model")
        for call in (
            lambda: model.partial_fit(*examples(2)),
            lambda: model.undo(),
            lambda: model.forget("class-1"),
            lambda: model.rename("class-1", "one"),
        ):
            with pytest.raises(ModelBusy, match=f"process {holder.process.pid} is changing .*; wait for it to end"):
                call()
        assert contents(tmp_path / "model") == before
        begin = time.monotonic()
        patient = ContinualClassifier.load(tmp_path / "model", timeout=0.5)
        assert same(patient, model)
        assert time.monotonic() - begin < 0.5  # reading takes no lock
        begin = time.monotonic()
        with pytest.raises(ModelBusy):
            patient.partial_fit(*examples(2))
        assert time.monotonic() - begin >= 0.5
    finally:
        holder.kill()


def test_the_lock_of_a_killed_process_is_free(model: ContinualClassifier, tmp_path: Path):
    holder = Holder(tmp_path / "model")
    holder.kill()
    assert model.partial_fit(*examples(2)).classes_.tolist() == ["class-0", "class-1", "class-2"]


def test_a_writer_that_waits_goes_on_when_the_other_ends(model: ContinualClassifier, tmp_path: Path):
    patient = ContinualClassifier.load(tmp_path / "model")
    released = []

    def release() -> None:
        with writing(tmp_path / "model"):
            started.set()
            time.sleep(0.3)
            released.append(time.monotonic())

    started = threading.Event()
    other = threading.Thread(target=release)
    other.start()
    started.wait()
    patient.partial_fit(*examples(2))
    assert released
    other.join()
    assert ContinualClassifier.load(tmp_path / "model").classes_.tolist() == ["class-0", "class-1", "class-2"]


def test_a_change_waits_ten_seconds_unless_told_otherwise(model: ContinualClassifier, tmp_path: Path):
    loaded = ContinualClassifier.load(tmp_path / "model")
    assert loaded._model.folder is not None
    assert loaded._model.folder.timeout == TIMEOUT == 10


@pytest.mark.parametrize("name", ["lock", "writer"])
def test_a_lock_that_is_a_link_is_refused(name: str, model: ContinualClassifier, tmp_path: Path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "model" / name).unlink(missing_ok=True)
    (tmp_path / "model" / name).symlink_to(tmp_path / "precious")
    with pytest.raises(StorageError, match=f"{name} is a link; nothing outside the model's folder is written"):
        model.partial_fit(*examples(2))
    assert (tmp_path / "precious").read_text() == "mine"


def test_the_number_of_the_writer_may_be_missing(model: ContinualClassifier, tmp_path: Path):
    holder = Holder(tmp_path / "model")
    try:
        (tmp_path / "model" / "writer").write_text("nonsense")
        with pytest.raises(ModelBusy, match="another process is changing"):
            model.partial_fit(*examples(2))
    finally:
        holder.kill()


def test_deleting_the_lock_while_it_is_held_lets_no_second_writer_in(model: ContinualClassifier, tmp_path: Path):
    holder = Holder(tmp_path / "model")
    try:
        (tmp_path / "model" / "lock").unlink()
        before = contents(tmp_path / "model")
        with pytest.raises(ModelBusy):
            model.partial_fit(*examples(2))
        assert contents(tmp_path / "model") == before
    finally:
        holder.kill()
    assert model.partial_fit(*examples(2)).classes_.tolist() == ["class-0", "class-1", "class-2"]
