"""What somebody else put into a model's folder is never deleted, and a folder that was replaced is never written to."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fscl import ContinualClassifier
from fscl.classifier.store.check import check_model
from fscl.errors import ModelReplaced, StorageError
from tests.classifier.models import BASE, POOL, classifier, contents, examples

OWN = (
    "notes.txt",
    ".hidden.part",
    "states/notes.txt",
    "states/backup/000001/state.json",
    "states/000001/notes.txt",
    "states/000077/mine.txt",
    "images/holiday.png",
    "images/album/1.png",
    "originals/me.jpg",
    "cache/x.safetensors",
    "journal/diary.txt",
)


def test_files_of_ones_own_stay_whatever_is_done(tmp_path: Path):
    folder = tmp_path / "model"
    model = classifier().partial_fit(*examples(0, 1)).save(folder)
    for name in OWN:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"mine: {name}")
    model.partial_fit(*examples(2)).undo().partial_fit(*examples(3)).rename("class-3", "three")
    model.remove(1).forget("class-1")
    ContinualClassifier.load(folder).partial_fit(*examples(4))
    for name in OWN:
        assert (folder / name).read_text() == f"mine: {name}", name
    found = check_model(folder)
    assert (found.problems, found.strays) == ((), ())


@pytest.mark.parametrize("name", ["images", "originals", "cache", "journal", "states"])
def test_a_folder_that_is_a_link_fails_the_check(name: str, tmp_path: Path):
    folder = tmp_path / "model"
    classifier().partial_fit(*examples(0, 1)).save(folder)
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    assert any(f"{folder / name} is a link" in problem for problem in check_model(folder).problems)


def test_advice_for_a_damaged_model_loses_nothing(tmp_path: Path):
    folder = tmp_path / "model"
    classifier().partial_fit(*examples(0, 1)).save(folder)
    (folder / "model.json").write_bytes((folder / "model.json").read_bytes()[:100])
    with pytest.raises(StorageError, match=r"model\.json is not a whole JSON file .*Restore it from a copy") as refusal:
        ContinualClassifier.load(folder)
    assert "elete" not in str(refusal.value)


def replaced(folder: Path, other: ContinualClassifier) -> None:
    other.save(folder.with_name("other"))
    shutil.rmtree(folder)
    folder.with_name("other").rename(folder)


@pytest.mark.parametrize("differs", ["base", "seed", "method"])
def test_a_handle_does_not_write_into_another_model(differs: str, tmp_path: Path):
    from dataclasses import replace

    folder = tmp_path / "model"
    model = classifier().partial_fit(*examples(0, 1)).save(folder)
    weights = {name: tensor + 1 for name, tensor in BASE.params.items()}
    others = {
        "base": ContinualClassifier(replace(BASE, params=weights), "prototypes"),
        "seed": classifier(random_state=3),
        "method": classifier("discriminant"),
    }
    replaced(folder, others[differs].partial_fit(*examples(2, 3)))
    before = contents(folder)
    for call in (
        lambda: model.partial_fit(*examples(4)),
        lambda: model.correct(POOL.images[0, 0].numpy(), "class-0"),
        lambda: model.forget("class-0"),
        lambda: model.undo(),
        lambda: model.save(tmp_path / "copy"),
    ):
        with pytest.raises(ModelReplaced, match="holds another model now"):
            call()
    assert contents(folder) == before
    assert model.predict(examples(0)[0]).tolist() == ["class-0"] * 3  # it still answers


def test_a_handle_that_was_overtaken_goes_on_from_what_is_there(tmp_path: Path):
    folder = tmp_path / "model"
    model = classifier().partial_fit(*examples(0, 1)).save(folder)
    other = ContinualClassifier.load(folder)
    other.partial_fit(*examples(2))
    model.correct(examples(2, start=4, n=1)[0][0], "class-2")  # a class that the other one brought
    assert [event.call for event in model.history_] == ["learn", "learn", "correct"]
    twin = classifier().partial_fit(*examples(0, 1)).partial_fit(*examples(2))
    twin.correct(examples(2, start=4, n=1)[0][0], "class-2")
    X = POOL.images[:24, 0].numpy()
    assert np.array_equal(model.predict_proba(X), twin.predict_proba(X))
    assert np.array_equal(ContinualClassifier.load(folder).predict_proba(X), twin.predict_proba(X))


def test_about_beside_a_writer_tells_of_the_newer_state_where_the_older_is_gone(tmp_path: Path):
    """A method that moves weights reads activations when it needs them, and another process may have dropped them."""
    settings = {"steps": 2, "learning_rate": 5e-3, "views": 2}
    classifier("tsc_tail", settings=settings).partial_fit(*examples(0, 1, 2)).save(tmp_path / "model")
    handle = ContinualClassifier.load(tmp_path / "model")
    ContinualClassifier.load(tmp_path / "model").forget("class-0")
    assert [each["label"] for each in handle.about()["classes"]] == ["class-1", "class-2"]


def test_about_counts_the_bytes_of_what_is_there_while_files_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    model = classifier().partial_fit(*examples(0, 1)).save(tmp_path / "model")
    whole, lstat = model.about()["folder_bytes"], os.lstat

    def goes(path: Any) -> os.stat_result:
        if Path(path).suffix == ".png":
            raise FileNotFoundError(path)  # between the list and the look
        return lstat(path)

    monkeypatch.setattr("os.lstat", goes)
    assert 0 < model.about()["folder_bytes"] < whole
