"""Undone calls done again, to a named state; classes merged; a change of another process seen."""

from pathlib import Path

import numpy as np
import pytest

from fscl import ContinualClassifier
from fscl.classifier.model import Model
from fscl.classifier.store.check import check_model
from fscl.errors import Interrupted, MisuseError
from tests.classifier.models import classifier, contents, examples, same


def taught() -> ContinualClassifier:
    return classifier().partial_fit(*examples(0, 1)).partial_fit(*examples(2)).rename("class-0", "zero")


@pytest.mark.parametrize("in_folder", [False, True])
def test_redo_brings_back_what_undo_took_bit_for_bit(in_folder: bool, tmp_path: Path):
    model, never = taught(), taught()
    if in_folder:
        model.save(tmp_path / "model")
    model.undo(2).undo()
    model.redo(2)
    assert "class-0" in model.classes_.tolist()
    model.redo()
    assert [event.call for event in model.history_] == ["learn", "learn", "rename"]
    assert np.array_equal(model.predict_proba(examples(0, 1, 2)[0]), never.predict_proba(examples(0, 1, 2)[0]))
    with pytest.raises(MisuseError, match="1 call cannot be done again"):
        model.redo()


@pytest.mark.parametrize("in_folder", [False, True])
def test_a_change_after_an_undo_drops_what_was_undone(in_folder: bool, tmp_path: Path):
    model = taught()
    if in_folder:
        model.save(tmp_path / "model")
    model.undo().correct(examples(3)[0][0], "class-3", new=True)
    with pytest.raises(MisuseError, match="0 can"):
        model.redo()
    if in_folder:
        assert check_model(tmp_path / "model").strays == ()


def test_what_was_undone_outlasts_the_process_and_is_gone_after_a_forget(tmp_path: Path):
    taught().save(tmp_path / "model").undo(2)
    again = ContinualClassifier.load(tmp_path / "model")
    assert check_model(tmp_path / "model").problems == ()
    again.redo()
    assert again.classes_.tolist() == ["class-0", "class-1", "class-2"]
    again.undo().forget("class-1")
    assert not any("000002" in name for name in contents(tmp_path / "model"))
    with pytest.raises(MisuseError, match="0 can"):
        again.redo()


def test_any_kept_state_can_be_gone_to_by_its_number(tmp_path: Path):
    classifier().save(tmp_path / "model").partial_fit(*examples(0, 1)).partial_fit(*examples(2))
    folder = Model.load(tmp_path / "model").folder
    assert folder is not None
    assert folder.go_to(0).knowledge.classes == ()
    assert len(folder.go_to(2).knowledge.classes) == 3
    assert len(folder.go_to(1).knowledge.classes) == 2
    with pytest.raises(MisuseError, match=r"no state 7 to go to in .*\. There are: 0, 1, 2\."):
        folder.go_to(7)


def test_merged_classes_answer_as_if_they_had_been_taught_as_one_and_undo_parts_them():
    model = classifier().fit(*examples(0, 1, 2))
    before = model.predict_proba(examples(0, 1, 2)[0])
    X, y = examples(0, 1, 2)
    model.merge("class-2", "class-0")
    twin = classifier().fit(X, [label.replace("class-2", "class-0") for label in y])
    assert np.allclose(model.predict_proba(X), twin.predict_proba(X), atol=1e-6)
    assert model.history_[-1].known == ("class-2", "class-0")
    assert np.array_equal(model.undo().predict_proba(X), before)
    with pytest.raises(MisuseError, match="one class already"):
        model.merge("class-0", "class-0")


def test_refresh_sees_what_another_process_changed(tmp_path: Path):
    model = taught().save(tmp_path / "model")
    assert model.refresh() is False
    other = ContinualClassifier.load(tmp_path / "model").partial_fit(*examples(4))
    assert "class-4" not in model.classes_.tolist()
    assert model.refresh() is True
    assert same(model, other)


def test_a_lesson_that_is_stopped_before_its_commit_leaves_no_trace(tmp_path: Path):
    classifier().save(tmp_path / "model").partial_fit(*examples(0, 1))
    before = contents(tmp_path / "model")
    model = Model.load(tmp_path / "model")
    lesson = ContinualClassifier.load(tmp_path / "model")._lesson(model, "learn", *examples(2), None)

    def stop() -> None:
        raise Interrupted("stopped.")

    with pytest.raises(Interrupted):
        model.learn(lesson, before_commit=stop)
    assert contents(tmp_path / "model") == before
