"""One stored picture removed or moved, lessons on trial, and a name that is not known."""

from pathlib import Path

import numpy as np
import pytest

from fscl import ContinualClassifier
from fscl.classifier.changes import StoredExample
from fscl.classifier.trial import ClassChange, Trial
from fscl.classifier.words import event_line, trial_lines
from fscl.errors import MisuseError
from tests.classifier.models import classifier, contents, examples, same


def in_folder(tmp_path: Path, method: str = "prototypes") -> ContinualClassifier:
    return classifier(method).fit(*examples(0, 1)).save(tmp_path / "model")


@pytest.mark.parametrize("method", ["prototypes", "neighbour", "tsc"])
def test_a_removed_picture_is_as_if_it_had_never_been_taught(method: str):
    X, y = examples(0, 1)
    without = classifier(method).fit(np.delete(X, 2, 0), y[:2] + y[3:])
    model = classifier(method).fit(X, y).remove(3)
    np.testing.assert_array_equal(model.predict_proba(X), without.predict_proba(X))
    assert model.memory_.per_class == {"class-0": 2, "class-1": 3}
    assert "removed 1 example of class-0; 2 classes" in event_line(model.history_[-1])
    model.undo()
    np.testing.assert_array_equal(model.predict_proba(X), classifier(method).fit(X, y).predict_proba(X))


def test_a_moved_picture_is_as_if_it_had_been_taught_so():
    X, y = examples(0, 1)
    meant = classifier().fit(X, ["class-0", "class-0", "class-1", *y[3:]])
    model = classifier().fit(X, y).move(3, "class-1")
    np.testing.assert_allclose(model.predict_proba(X), meant.predict_proba(X), atol=1e-6)
    assert [each.label for each in model.examples_].count("class-1") == 4
    assert "moved 1 example of class-0 to class-1; 2 classes" in event_line(model.history_[-1])


def test_a_picture_moves_to_a_new_class_only_when_told_so():
    model = classifier().fit(*examples(0, 1))
    with pytest.raises(MisuseError, match=r"Did you mean 'class-1'\?.* say so: new=True, or --new"):
        model.move(1, "clas-1")
    assert len(model.history_) == 1
    assert model.move(1, "other", new=True).classes_.tolist() == ["class-0", "class-1", "other"]


def test_examples_are_found_by_their_number_or_by_a_source_of_their_own():
    model = classifier().fit(*examples(0, 1))
    assert model.examples_[0] == StoredExample(1, "class-0", "")
    for number in (0, 7, -1):
        with pytest.raises(MisuseError, match="numbered from 1 to 6"):
            model.remove(number)
    with pytest.raises(MisuseError, match="no stored example came from"):
        model.remove("class-0/1.png")
    with pytest.raises(MisuseError, match="6 stored examples came from ''; name one by its number: 1, 2"):
        model.remove("")


def test_the_only_picture_of_a_class_is_not_removed_but_its_class_forgotten():
    model = classifier().fit(*examples(0, 1, n=1))
    with pytest.raises(MisuseError, match="only stored example of class 'class-0'; forget the class instead"):
        model.remove(1)
    with pytest.raises(MisuseError, match="rename the class or forget it"):
        model.move(1, "class-1")
    with pytest.raises(MisuseError, match="is of class 'class-0' already"):
        model.move(1, "class-0")


def test_removing_and_moving_are_transactions(tmp_path: Path):
    model = in_folder(tmp_path)
    whole = ContinualClassifier.load(tmp_path / "model")
    model.remove(1).move(1, "class-1")
    assert same(ContinualClassifier.load(tmp_path / "model"), model)
    assert [event.call for event in model.history_] == ["fit", "remove", "move"]
    model.undo(2)
    assert same(ContinualClassifier.load(tmp_path / "model"), whole)


def test_a_dry_run_says_what_the_lesson_does_and_writes_nothing(tmp_path: Path):
    model = in_folder(tmp_path)
    before = contents(tmp_path / "model")
    X, _ = examples(0)
    trial = model.dry_run(X, ["twin"] * 3)  # the pictures of class-0 under another name
    assert contents(tmp_path / "model") == before
    assert len(model.history_) == 1
    assert [each.label for each in trial.suffers] == ["class-0"]
    assert trial.gains == ()
    model.partial_fit(X, ["twin"] * 3)
    assert {each.label: each.after for each in trial.classes} == model.class_accuracy_
    assert trial.after == model.estimated_accuracy_
    lines = trial_lines(trial)
    assert lines[1].startswith("suffers: class-0, 100.0 % before, ")
    assert lines[-1].startswith("new: twin, estimated accuracy ")


def test_a_dry_run_names_who_gains_and_who_suffers_the_most_first():
    changes = [("a", 0.5, 0.75), ("b", 0.5, 1.0), ("c", 0.5, 0.25), ("d", 1.0, 1.0), ("e", None, 1.0)]
    trial = Trial(0.6, 0.7, tuple(ClassChange(*change, new=False) for change in changes))
    assert [each.label for each in trial.gains] == ["b", "a"]
    assert [each.label for each in trial.suffers] == ["c"]
    assert trial_lines(trial) == [
        "estimated accuracy: 60.0 % before, 70.0 % after",
        "gains: b, 50.0 % before, 100.0 % after",
        "gains: a, 50.0 % before, 75.0 % after",
        "suffers: c, 50.0 % before, 25.0 % after",
    ]


def test_a_dry_run_needs_no_model_yet():
    trial = classifier().dry_run(*examples(0, 1))
    assert trial.before is None
    assert [each.new for each in trial.classes] == [True, True]


def test_a_misspelt_correction_makes_no_class():
    model = classifier().fit(*examples(0, 1))
    X, _ = examples(0, start=5)
    with pytest.raises(MisuseError, match=r"no class 'clas-0' was learned. Did you mean 'class-0'\?"):
        model.correct(X[0], "clas-0")
    assert len(model.history_) == 1
    assert "clas-0" in model.correct(X[0], "clas-0", new=True).classes_
