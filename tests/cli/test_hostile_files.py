"""Files with odd names, links in circles, pictures that are bombs, signals at bad moments: a sentence, and nothing lost."""

import csv
import os
import shutil
import signal
import struct
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fscl import ContinualClassifier
from fscl.classifier.store.check import check_model
from fscl.classifier.store.folder import ModelFolder
from fscl.cli import main
from fscl.errors import DataError
from fscl.testing import POOL
from tests.classifier.models import classifier, examples
from tools.soaking.breaking import BeforeChange, in_child


def fscl(*arguments: object) -> int:
    sys.argv = ["fscl", *map(str, arguments)]
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def photos(folder: Path, n_classes: int = 2) -> Path:
    for label in range(n_classes):
        (folder / f"class-{label}").mkdir(parents=True)
        for number in range(2):
            Image.fromarray(POOL.of_class(label)[number, 0].numpy()).save(folder / f"class-{label}" / f"{number}.png")
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    classifier().partial_fit(*examples(0, 1)).save(tmp_path / "model")
    return tmp_path / "model"


def odd_name(folder: Path, name: bytes) -> Path:
    path = Path(os.fsdecode(os.fsencode(folder) + b"/" + name))
    shutil.copy(folder / "0.png", path)
    return path


def test_a_file_whose_name_is_not_utf_8_is_learned_under_a_name_that_can_be_read(
    model: Path, tmp_path: Path, capfd: Any
):
    folder = photos(tmp_path / "photos")
    odd = odd_name(folder / "class-0", b"\xff\x1b[31m.png")
    assert fscl("learn", model, folder) == 0
    assert fscl("correct", model, odd, "class-1") == 0
    assert fscl("predict", model, odd) == 0
    assert fscl("examples", model) == 0
    out, err = capfd.readouterr()
    assert "\x1b" not in out + err
    sources = [each.source for each in ContinualClassifier.load(model).examples_]
    assert "class-0/\\udcff\\x1b[31m.png" in sources
    assert fscl("remove", model, "class-0/\\udcff\\x1b[31m.png") == 0
    assert check_model(model).problems == ()


def test_a_link_that_points_to_itself_is_named_or_skipped(model: Path, tmp_path: Path, capfd: Any):
    folder = photos(tmp_path / "photos")
    (folder / "class-0" / "loop.png").symlink_to("loop.png")
    (folder / "round").symlink_to("round")
    assert fscl("learn", model, folder) == 1
    assert "class-0/loop.png is a link that leads to itself" in capfd.readouterr().err
    assert fscl("learn", model, folder, "--skip-bad") == 0
    capfd.readouterr()
    for command in (
        ("correct", model, folder / "class-0" / "loop.png", "class-0"),
        ("predict", model, folder / "round"),
    ):
        assert fscl(*command) == 1
        assert "does not exist; give the path of a picture" in capfd.readouterr().err
    assert fscl("predict", model, folder / "class-0", "--skip-bad") == 0


def test_no_escape_of_a_file_or_folder_reaches_the_terminal(model: Path, tmp_path: Path, capfd: Any):
    folder = photos(tmp_path / "photos")
    bad = folder / "class-0" / "\x1b]0;owned\x07\x9b31m.png"
    bad.write_bytes(b"no picture")
    for command in (
        ("learn", model, folder),
        ("learn", model, folder, "--skip-bad"),
        ("predict", model, bad),
        ("predict", model, "--skip-bad", folder / "class-0"),
        ("test", model, folder, "--skip-bad"),
        ("suggest", model, folder / "class-0", "--skip-bad"),
        ("info", tmp_path / "\x1b[31m"),
    ):
        fscl(*command)
        out, err = capfd.readouterr()
        assert not {"\x1b", "\x9b", "\x07"} & set(out + err), command
        assert "Traceback" not in err


def test_a_table_holds_no_formula(tmp_path: Path, capfd: Any):
    X, _ = examples(0, 1)
    folder = tmp_path / "model"
    classifier().fit(X, ["=1+1"] * 3 + ["@cmd"] * 3).save(folder)
    (tmp_path / "asked").mkdir()
    os.chdir(tmp_path / "asked")
    for name in ("=2+2.png", "-3.png"):
        Image.fromarray(X[0]).save(name)
    assert fscl("predict", folder, "--csv", "--top", 2, "--", "=2+2.png", "-3.png") == 0
    rows = list(csv.reader(capfd.readouterr().out.splitlines()))
    cells = [cell for row in rows for cell in row]
    assert "'=1+1" in cells
    assert "'=2+2.png" in cells
    assert "'-3.png" in cells
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)


def long_png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(1, 64_000_000), (64_000_000, 1), (2, 70_000)])
def test_a_picture_that_is_too_long_is_refused_before_it_is_decoded(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
):
    model = classifier().partial_fit(*examples(0, 1))
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda *_: pytest.fail("it was decoded"))
    with pytest.raises(DataError, match="a side may have at most 65,535"):
        model.predict([long_png(*size)])
    with pytest.raises(DataError, match="at most 65,535 a side"):
        model.predict(np.zeros((1, *size), dtype=np.uint8))


@pytest.mark.parametrize("when", ["before", "after"])
def test_ctrl_c_says_whether_an_undo_was_done(
    when: str, model: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    ContinualClassifier.load(model).partial_fit(*examples(2))
    place = {"before": "read_content", "after": "sweep"}[when]
    calls = []

    def interrupt(*_: object) -> None:
        calls.append(place)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if when == "after":
            patch.setattr(f"fscl.classifier.store.folder.{place}", interrupt)
        else:
            patch.setattr("fscl.classifier.store.folder.ModelFolder.undo", interrupt)
        assert fscl("undo", model) == 1
    said = capfd.readouterr().err
    n_classes = len(ContinualClassifier.load(model).classes_)
    assert calls
    if when == "after":
        assert "was changed before that, as asked: do not repeat the command. Its last call is now 1." in said
        assert n_classes == 2
    else:
        assert "is as it was before the command" in said
        assert n_classes == 3
    assert check_model(model).problems == ()


def test_a_handle_that_was_interrupted_late_shows_what_is_on_disk(model: Path, monkeypatch: pytest.MonkeyPatch):
    handle = ContinualClassifier.load(model).partial_fit(*examples(2))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fscl.classifier.store.folder.sweep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            handle.undo()
    assert handle.classes_.tolist() == ContinualClassifier.load(model).classes_.tolist() == ["class-0", "class-1"]


def test_what_a_killed_forget_left_is_removed_by_the_next_change(model: Path, monkeypatch: pytest.MonkeyPatch):
    """Killed when its new sheet was written and nothing else."""
    from fscl.classifier.store import folder as store

    before = set((model / "images").iterdir())

    def killed(*_: object, **__: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(store, "write_state", killed)
        patch.setattr(ModelFolder, "_or_as_before", _Nothing)
        with pytest.raises(SystemExit):
            ContinualClassifier.load(model).forget("class-1")
    assert set((model / "images").iterdir()) > before
    assert check_model(model).strays
    ContinualClassifier.load(model).rename("class-0", "zero")
    assert set((model / "images").iterdir()) == before
    assert check_model(model).strays == ()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, so that a killed process costs no imports")
def test_what_a_killed_lesson_left_half_written_is_removed_when_it_is_completed(model: Path):
    """Killed while it wrote a file of its state: the next writer takes that state's number, and with it the half file."""
    seen = set()
    for number in range(20, 60):  # before that the journal is not written
        copy = Path(shutil.copytree(model, model.with_name("copy")))
        code = in_child(
            lambda copy=copy: ContinualClassifier.load(copy).partial_fit(*examples(2)), BeforeChange(number)
        )
        left = {path.parent.parent.name for path in check_model(copy).strays if path.name.endswith(".part")}
        seen |= left | {path.parent.parent.name for path in (copy / "states").glob("*/.*.part")}
        ContinualClassifier.load(copy).recover()
        ModelFolder(copy).complete()
        assert check_model(copy).strays == ()
        shutil.rmtree(copy)
        if code == 0:
            break
    assert code == 0
    assert "states" in seen, "no kill fell on a file of a state"


class _Nothing:
    """In the place of what cleans up after an exception: a killed process has no time for it."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_what_a_killed_new_left_is_removed_by_the_next_one_and_a_living_one_is_let_alone(tmp_path: Path):
    dead, alive = tmp_path / ".model.0123abcd.part", tmp_path / ".model.4567abcd.part"
    other = tmp_path / ".model.mine.part"
    for folder in (dead, alive, other):
        folder.mkdir()
        (folder / "base.safetensors").write_text("half")
    from fscl.classifier.store.lock import holding

    with holding(alive, until=time.monotonic()):
        classifier().save(tmp_path / "model")
    assert not dead.exists()
    assert alive.exists()
    assert other.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal there")
def test_sigterm_stops_as_ctrl_c_does():
    from fscl.cli.opening import terminated_like_ctrl_c

    def work() -> None:
        with terminated_like_ctrl_c():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_header_is_bounded_before_it_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from fscl import storage
    from fscl.errors import StorageError

    monkeypatch.setattr(storage.json, "loads", lambda *_: pytest.fail("it was parsed"))
    for content in (struct.pack("<Q", 2**62) + b"{", struct.pack("<Q", 150 * 10**6) + b"[" * 100):
        (tmp_path / "x.safetensors").write_bytes(content)
        with pytest.raises(StorageError, match="its header should have"):
            storage.load_tensors(tmp_path / "x.safetensors", "network")
