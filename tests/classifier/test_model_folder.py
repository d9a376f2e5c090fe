"""A model is a folder that is never half-written: transactions, readers and writers, refusal of what was altered."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fscl import ContinualClassifier
from fscl.classifier.store.check import check_model
from fscl.classifier.store.manifest import UNKNOWN, read_manifest, write_manifest
from fscl.errors import Divergence, MisuseError, StorageError
from tests.classifier.models import POOL, classifier, contents, examples, same
from tests.continual.quick import quick


@pytest.fixture
def model(tmp_path: Path) -> ContinualClassifier:
    return classifier("tsc").partial_fit(*examples(0, 1)).save(tmp_path / "model")


@pytest.mark.parametrize("method", ["tsc", "tsc_gr", "prototypes", "discriminant", "neighbour", "replay", "sequential"])
def test_a_loaded_model_answers_and_goes_on_learning_as_if_never_saved(method: str, tmp_path: Path):
    trained = method in ("tsc_gr", "replay", "sequential")
    settings = quick(method, steps=2)
    kept = classifier(method, settings=settings if trained else None).partial_fit(*examples(0, 1))
    kept.save(tmp_path / "model")
    again = ContinualClassifier.load(tmp_path / "model")
    assert same(kept, again)
    alone = classifier(method, settings=settings if trained else None).partial_fit(*examples(0, 1))
    X, y = examples(2, 0, start=3)
    again.partial_fit(X, y)
    alone.partial_fit(X, y)
    assert np.array_equal(
        again.predict_proba(POOL.images[:30, 0].numpy()), alone.predict_proba(POOL.images[:30, 0].numpy())
    )
    assert np.array_equal(ContinualClassifier.load(tmp_path / "model").predict_proba(X), again.predict_proba(X))
    assert check_model(tmp_path / "model").problems == ()


def test_a_model_of_rows_and_of_numbered_classes_can_be_saved(tmp_path: Path):
    rows = np.random.default_rng(0).normal(size=(12, 3)) + np.repeat(np.eye(3) * 9, 4, 0)
    saved = ContinualClassifier().fit(rows, np.repeat([4, 5, 6], 4)).save(tmp_path / "model")
    again = ContinualClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(rows), saved.predict_proba(rows))
    assert again.partial_fit(rows[:2] + 50, [7, 7]).classes_.tolist() == [4, 5, 6, 7]


def everything(files: dict[str, bytes]) -> set[str]:
    """The names of all files but those that the present state alone has."""
    return {name for name in files if not name.endswith(UNKNOWN)}


def test_undo_in_a_folder_is_bit_for_bit_and_reaches_back_to_the_empty_model(tmp_path: Path):
    model = classifier("tsc").save(tmp_path / "model")
    seen = [contents(tmp_path / "model")]
    for call in (
        lambda: model.partial_fit(*examples(0, 1)),
        lambda: model.partial_fit(*examples(2)),
        lambda: model.rename("class-0", "zero"),
        lambda: model.correct(POOL.of_class(3)[0, 0].numpy(), "class-1"),
    ):
        call()
        seen.append(contents(tmp_path / "model"))
    for n_calls, before in ((2, seen[2]), (1, seen[1]), (1, seen[0])):
        model.undo(n_calls)
        now = contents(tmp_path / "model")
        assert before.items() - {("model.json", before["model.json"])} <= now.items()  # the rest waits for `redo`
        assert everything(now) == everything(seen[-1])
        assert model.history_ == ContinualClassifier.load(tmp_path / "model").history_
    with pytest.raises(MisuseError, match="0 can"):
        model.undo()
    model.redo(4)
    assert contents(tmp_path / "model") == seen[-1]


def test_a_forgotten_class_is_nowhere_in_the_folder(model: ContinualClassifier, tmp_path: Path):
    model.partial_fit(*examples(2, 1, start=3))
    before = contents(tmp_path / "model")
    model.forget("class-1")
    after = contents(tmp_path / "model")
    (sheet,) = [name for name in after if name.startswith("images/")]
    assert sheet not in before  # those before had pictures of the class on them
    stored = np.asarray(Image.open(tmp_path / "model" / sheet)).reshape(-1, 16, 16)
    raw = [pixels.numpy().tobytes() for pixels in POOL.of_class(1)]
    assert len(stored) == 6
    assert not any(pixels.tobytes() in raw for pixels in stored)
    assert not any(pixels in content for pixels in raw for content in after.values())
    assert [path.name for path in (tmp_path / "model" / "states").iterdir()] == ["000003"]
    with pytest.raises(MisuseError, match="before a forget"):
        ContinualClassifier.load(tmp_path / "model").undo()


def test_old_states_go_when_keep_states_says_so(tmp_path: Path):
    model = classifier(keep_states=1).save(tmp_path / "model")
    for label in range(4):
        model.partial_fit(*examples(label))
    assert len(list((tmp_path / "model" / "states").iterdir())) == 2
    assert model.undo().classes_.tolist() == ["class-0", "class-1", "class-2"]
    with pytest.raises(MisuseError, match="beyond keep_states"):
        model.undo()


def test_a_sheet_in_the_place_of_another_is_refused(model: ContinualClassifier, tmp_path: Path):
    """A picture that can be read, in the right size, but not the one that was stored."""
    model.partial_fit(*examples(2, 3))
    one, other = (tmp_path / "model" / "images").iterdir()
    one.write_bytes(other.read_bytes())
    with pytest.raises(StorageError, match=f"{one.name} was altered after it was written"):
        ContinualClassifier.load(tmp_path / "model")
    assert any(one.name in problem for problem in check_model(tmp_path / "model").problems)


def test_a_lesson_is_flushed_before_it_is_learned_and_a_state_before_it_is_the_models(
    model: ContinualClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """With the names of the files: a folder is flushed, too."""
    from fscl.classifier.store import folder as store
    from fscl.classifier.teacher import Teacher

    events: list[str] = []
    fsync, learned, commit = os.fsync, Teacher.learned, store.write_manifest

    def flushed(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        name = str(path.relative_to(tmp_path / "model"))
        events.append("a sheet" if "images/" in name else name.split(".safetensors")[0].replace(".", ""))
        fsync(descriptor)

    def learn(*arguments: Any) -> Any:
        events.append("LEARN")
        return learned(*arguments)

    def replaced(*arguments: Any) -> None:
        events.append("COMMIT")
        commit(*arguments)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Teacher, "learned", learn)
    monkeypatch.setattr(store, "write_manifest", replaced)
    model.partial_fit(*examples(2))
    learning, committing = events.index("LEARN"), events.index("COMMIT")
    kept = [event for event in events[:learning] if event.startswith("originals")]
    assert len(kept) == 4  # three pictures, and their folder
    assert events[:learning] == [*kept, "journal/000002", "journal"]
    written = events[learning + 1 : committing]
    assert {"a sheet", "images", "states/000002/learner", "states/000002", "states"} <= set(written)
    assert written.index("states/000002/learner") < written.index("states/000002") < written.index("states")
    assert events[-1] == ""  # the folder itself, once model.json was replaced


def test_a_writer_goes_on_from_what_another_has_written(model: ContinualClassifier, tmp_path: Path):
    other = ContinualClassifier.load(tmp_path / "model")
    other.partial_fit(*examples(2))
    model.partial_fit(*examples(3))
    assert model.classes_.tolist() == ["class-0", "class-1", "class-2", "class-3"]


def test_a_reader_that_a_writer_overtakes_reads_the_newer_state(
    model: ContinualClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reader, calls = ContinualClassifier.load, []
    original = read_manifest(tmp_path / "model")

    def moved_on(*arguments: Any, **named: Any) -> Any:
        if not calls:
            calls.append("forget")
            model.forget("class-1")  # removes the state that the reader is about to read
        return read_state(*arguments, **named)

    from fscl.classifier.store.folder import read_state

    monkeypatch.setattr("fscl.classifier.store.folder.read_state", moved_on)
    assert reader(tmp_path / "model").classes_.tolist() == ["class-0"]
    assert read_manifest(tmp_path / "model").seal != original.seal


def test_a_lesson_left_in_the_journal_is_completed_by_the_next_writer_and_not_before(
    model: ContinualClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    expected = classifier("tsc").partial_fit(*examples(0, 1)).partial_fit(*examples(2))
    monkeypatch.setattr("fscl.classifier.store.folder.ModelFolder._or_as_before", _as_if_killed)
    monkeypatch.setattr("fscl.classifier.teacher.Teacher.learned", _killed)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(*examples(2))
    monkeypatch.undo()
    again = ContinualClassifier.load(tmp_path / "model")
    assert again.classes_.tolist() == ["class-0", "class-1"]
    assert check_model(tmp_path / "model").waiting
    assert again.about()["waiting"]
    shutil.copytree(tmp_path / "model", tmp_path / "copy")
    assert again.recover()
    assert not again.recover()
    X = POOL.images[:30, 0].numpy()
    assert np.array_equal(again.predict_proba(X), expected.predict_proba(X))
    given_up = ContinualClassifier.load(tmp_path / "copy").undo()
    assert given_up.classes_.tolist() == ["class-0", "class-1"]
    assert not check_model(tmp_path / "copy").waiting


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


class _as_if_killed:  # noqa: N801  in the place of a method
    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_a_lesson_that_diverges_leaves_the_model_as_it_was(model: ContinualClassifier, tmp_path: Path):
    before = contents(tmp_path / "model")
    bad = classifier("replay", settings={"learning_rate": 1e30, "steps": 60}).save(tmp_path / "bad")
    with pytest.raises(Divergence):
        bad.partial_fit(*examples(0, 1))
    assert not check_model(tmp_path / "bad").waiting
    assert contents(tmp_path / "model") == before


@pytest.mark.parametrize("call", ["learn", "forget", "rename", "save"])
def test_a_full_disk_at_any_moment_leaves_the_model_as_it_was(
    call: str, model: ContinualClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before, fsync = contents(tmp_path / "model"), os.fsync
    calls = {
        "learn": lambda: model.partial_fit(*examples(2, n=2)),
        "forget": lambda: model.forget("class-1"),
        "rename": lambda: model.rename("class-1", "one"),
        "save": lambda: classifier().fit(*examples(0)).save(tmp_path / "another"),
    }
    for moment in range(100):
        left = [moment]

        def full(descriptor: int, left: list[int] = left) -> None:
            if left[0] == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            left[0] -= 1
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", full)
        manifest = (tmp_path / "model" / "model.json").read_bytes()
        with pytest.raises(StorageError, match="No space left on device") as failure:
            calls[call]()
        monkeypatch.setattr(os, "fsync", fsync)
        if "was changed as asked" in str(failure.value):  # the very last flush, after the commit
            assert call == "save" or (tmp_path / "model" / "model.json").read_bytes() != manifest
            break
        assert contents(tmp_path / "model") == before
        assert not (tmp_path / "another").exists()
    assert moment > 2
    assert check_model(tmp_path / "model").problems == ()


def test_every_file_that_is_cut_short_or_altered_is_refused_by_name(model: ContinualClassifier, tmp_path: Path):
    model.partial_fit(*examples(2, n=1))
    names = [name for name in contents(tmp_path / "model") if not name.startswith("images/")]
    names.append(next(name for name in contents(tmp_path / "model") if name.startswith("images/")))
    for name in names:
        for harm in ("cut", "flip"):
            copy = tmp_path / f"{harm}-{name.replace('/', '-')}"
            shutil.copytree(tmp_path / "model", copy)
            content = bytearray((copy / name).read_bytes())
            if harm == "cut":
                content = content[: len(content) // 2]
            else:
                content[len(content) // 2] ^= 1
            (copy / name).write_bytes(content)
            # an earlier state is read when it is gone back to, an original when the model is taught again
            harmed_now = not name.startswith(("states/000001", "originals/"))
            if harmed_now:
                with pytest.raises(StorageError) as refusal:
                    ContinualClassifier.load(copy)
                assert Path(name).name in str(refusal.value)
            if name == "model.json":
                continue
            assert any(Path(name).name in problem for problem in check_model(copy).problems), (name, harm)


def test_a_model_of_another_format_is_refused_with_the_reason(model: ContinualClassifier, tmp_path: Path):
    path = tmp_path / "model" / "model.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "format": 4, "fscl": "9.9"}))
    with pytest.raises(StorageError, match=r"format 4, written by fscl 9\.9; this is fscl .* reads formats up to 3"):
        ContinualClassifier.load(tmp_path / "model")
    with pytest.raises(StorageError, match=r"is not a model: it has no model\.json"):
        ContinualClassifier.load(tmp_path)


def test_a_model_that_an_older_fscl_wrote_in_the_same_format_loads(model: ContinualClassifier, tmp_path: Path):
    manifest = read_manifest(tmp_path / "model")
    write_manifest(tmp_path / "model", manifest.model_copy(update={"fscl": "0.0.1"}))
    assert same(ContinualClassifier.load(tmp_path / "model"), model)


def test_nothing_in_a_folder_leads_out_of_it(model: ContinualClassifier, tmp_path: Path):
    folder, outside = tmp_path / "model", tmp_path / "outside"
    shutil.copytree(folder / "states", outside)
    image = next((folder / "images").iterdir())
    kept = image.read_bytes()
    image.unlink()
    image.symlink_to(tmp_path / "picture.png")
    (tmp_path / "picture.png").write_bytes(kept)
    with pytest.raises(StorageError, match="no plain file"):
        ContinualClassifier.load(folder)
    image.unlink()
    image.write_bytes(kept)
    shutil.rmtree(folder / "states")
    (folder / "states").symlink_to(outside)
    with pytest.raises(StorageError, match="is a link"):
        ContinualClassifier.load(folder)
    with pytest.raises(StorageError, match="is a link"):
        model.partial_fit(*examples(2))
    assert sorted(path.name for path in outside.iterdir()) == ["000001"]


def test_saving_over_something_is_refused(model: ContinualClassifier, tmp_path: Path):
    before = contents(tmp_path / "model")
    with pytest.raises(MisuseError, match="is there already"):
        classifier().fit(*examples(0)).save(tmp_path / "model")
    assert contents(tmp_path / "model") == before


def test_equal_lessons_make_equal_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fscl.estimator._now", lambda: "2020-01-01T00:00:00+00:00")
    for name in ("one", "two"):
        torch.rand(3)
        classifier("tsc").save(tmp_path / name).partial_fit(*examples(0, 1)).partial_fit(*examples(2))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.parametrize("at", ["fscl.classifier.store.folder.sweep", "fscl.classifier.store.sweep.delete"])
def test_a_forget_that_is_cut_short_while_sweeping_is_finished_by_the_next_change(
    at: str, model: ContinualClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = set((tmp_path / "model" / "images").iterdir())
    with monkeypatch.context() as patch:
        patch.setattr("fscl.classifier.store.folder.ModelFolder._or_as_before", _as_if_killed)
        patch.setattr(at, _killed)
        with pytest.raises(KeyboardInterrupt):
            model.forget("class-1")
    assert check_model(tmp_path / "model").strays
    again = ContinualClassifier.load(tmp_path / "model")
    assert "class-1" not in again.classes_
    again.rename("class-0", "zero")
    assert not before & set((tmp_path / "model" / "images").iterdir())
    assert check_model(tmp_path / "model").strays == ()


def test_undo_with_a_lesson_waiting_drops_both_or_neither(
    model: ContinualClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        patch.setattr("fscl.classifier.store.folder.ModelFolder._or_as_before", _as_if_killed)
        patch.setattr("fscl.classifier.teacher.Teacher.learned", _killed)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(*examples(5))
    waiting = ContinualClassifier.load(tmp_path / "model")
    assert check_model(tmp_path / "model").waiting
    n_states = len(read_manifest(tmp_path / "model").states)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", _full_disk)
        with pytest.raises(StorageError, match="as it was before the call"):
            waiting.undo(2)
    assert check_model(tmp_path / "model").waiting
    assert len(read_manifest(tmp_path / "model").states) == n_states
    waiting.undo(2)
    assert not check_model(tmp_path / "model").waiting
    assert len(read_manifest(tmp_path / "model").states) == n_states - 1


def test_no_more_calls_are_undone_than_keep_states_says(tmp_path: Path):
    model = classifier(keep_states=1).save(tmp_path / "model")
    model.partial_fit(*examples(0)).partial_fit(*examples(1))
    with pytest.raises(MisuseError, match="2 calls cannot be undone"):
        model.undo(2)
    assert model.undo().classes_.tolist() == ["class-0"]


def test_a_copy_of_a_model_can_be_undone_as_far_as_the_model(model: ContinualClassifier, tmp_path: Path):
    model.partial_fit(*examples(2)).partial_fit(*examples(3))
    expected = model.predict_proba(POOL.images[:9, 0].numpy())
    model.save(tmp_path / "copy")
    assert np.array_equal(model.predict_proba(POOL.images[:9, 0].numpy()), expected)
    assert model.undo(2).classes_.tolist() == ["class-0", "class-1"]
    assert len(ContinualClassifier.load(tmp_path / "model").classes_) == 4  # the other is as it was


def _full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
