"""A bad bit costs what it must and no more: the newest whole state is gone back to, and damaged files are kept."""

import sys
from pathlib import Path

import numpy as np
import pytest

from fscl import ContinualClassifier
from fscl.classifier.store.check import check_model
from fscl.classifier.store.manifest import UNKNOWN, read_manifest
from fscl.classifier.store.repair import repair_model
from fscl.cli import main
from fscl.errors import StorageError
from tests.classifier.models import POOL, asked, classifier, contents, examples

PROBE = POOL.images[:24, 0].numpy()


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    classifier().partial_fit(*examples(0, 1)).partial_fit(*examples(2)).partial_fit(*examples(3)).save(
        tmp_path / "model"
    )
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["state.json", "learner.safetensors"])
def test_a_bad_bit_in_the_newest_state_costs_that_state(name: str, folder: Path, capsys: pytest.CaptureFixture[str]):
    expected = classifier().partial_fit(*examples(0, 1)).partial_fit(*examples(2)).predict_proba(PROBE)
    path = folder / "states" / "000003" / name
    flip(path)
    damaged = path.read_bytes()
    with pytest.raises(StorageError, match=rf"{name} .*`fscl repair {folder}` go back to the newest whole state"):
        ContinualClassifier.load(folder)
    sys.argv = ["fscl", "repair", str(folder)]
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    said = capsys.readouterr().out
    assert f"{name} was altered" in said
    assert "lost: the last 1 call\n" in said
    assert "learned 3 examples of class-2" in said
    assert np.array_equal(ContinualClassifier.load(folder).predict_proba(PROBE), expected)
    assert (folder / "damaged" / "1" / "states" / "000003" / name).read_bytes() == damaged
    assert check_model(folder).problems == ()
    model = ContinualClassifier.load(folder).partial_fit(*examples(3))
    assert model.undo(2).classes_.tolist() == ["class-0", "class-1"]
    assert (folder / "damaged" / "1" / "states" / "000003" / name).read_bytes() == damaged  # nothing sweeps it


def test_a_bad_bit_in_what_can_be_computed_again_costs_nothing(folder: Path):
    before = asked(ContinualClassifier.load(folder))
    flip(folder / "states" / "000003" / UNKNOWN)
    done = repair_model(folder)
    assert (done.n_lost, done.went_back, len(done.problems)) == (0, 0, 1)
    assert asked(ContinualClassifier.load(folder)) == before
    assert check_model(folder).problems == ()


def test_a_bad_bit_in_the_newest_sheet_costs_the_states_that_show_it(folder: Path):
    model = ContinualClassifier.load(folder)
    before = set((folder / "images").iterdir())
    model.partial_fit(*examples(4))
    model.rename("class-4", "four")
    (sheet,) = set((folder / "images").iterdir()) - before
    flip(sheet)
    done = repair_model(folder)
    assert (done.n_lost, done.went_back) == (2, 2)
    assert ContinualClassifier.load(folder).classes_.tolist() == ["class-0", "class-1", "class-2", "class-3"]
    assert check_model(folder).problems == ()


def test_a_bad_bit_in_an_original_costs_that_original_alone(tmp_path: Path):
    model = classifier().save(tmp_path / "model")
    model.partial_fit(*examples(0, 1))
    original = next((tmp_path / "model" / "originals").iterdir())
    flip(original)
    assert len(check_model(tmp_path / "model").problems) == 1
    done = repair_model(tmp_path / "model")
    assert (done.n_lost, len(done.problems)) == (0, 1)
    assert check_model(tmp_path / "model").problems == ()
    model = ContinualClassifier.load(tmp_path / "model").partial_fit(*examples(2))
    assert check_model(tmp_path / "model").problems == ()
    assert len(model.reteach(tmp_path / "again", method="neighbour").classes_) == 3


def test_a_bad_bit_in_an_earlier_state_leaves_the_present_one(tmp_path: Path):
    folder = tmp_path / "model"
    model = classifier(keep_states=5).save(folder)  # with a bound on the states, each stands alone
    for label in range(3):
        model.partial_fit(*examples(label))
    flip(folder / "states" / "000002" / "state.json")
    done = repair_model(folder)
    assert (done.n_lost, done.went_back) == (1, 0)
    again = ContinualClassifier.load(folder)
    assert len(again.classes_) == 3
    assert again.undo().classes_.tolist() == ["class-0"]


def test_a_damaged_lesson_in_the_journal_is_put_aside(folder: Path):
    (folder / "journal" / "000004.safetensors").write_bytes(b"half")
    with pytest.raises(StorageError):
        ContinualClassifier.load(folder).partial_fit(*examples(4))
    repair_model(folder)
    assert (folder / "damaged" / "1" / "journal" / "000004.safetensors").read_bytes() == b"half"
    assert len(ContinualClassifier.load(folder).partial_fit(*examples(4)).classes_) == 5


def test_where_nothing_is_whole_nothing_is_changed(folder: Path):
    for state in (folder / "states").iterdir():
        flip(state / "learner.safetensors")
    before = contents(folder)
    with pytest.raises(StorageError, match=r"no state of .* is whole, and nothing was changed"):
        repair_model(folder)
    assert contents(folder) == before


def test_a_whole_model_is_left_alone(folder: Path):
    before = contents(folder)
    assert repair_model(folder).problems == ()
    assert contents(folder) == before
    assert len(read_manifest(folder).states) == 3
