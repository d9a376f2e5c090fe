"""States share what has not changed: bytes grow with the lessons, and every state can be gone back to, bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fscl import ContinualClassifier
from fscl.classifier.store.check import check_model
from fscl.classifier.store.difference import Assembly, apply_edit, changed_rows, difference
from fscl.classifier.store.manifest import UNKNOWN, read_manifest
from fscl.classifier.store.repair import repair_model
from fscl.errors import MisuseError, StorageError
from tests.classifier.models import POOL, asked, classifier, contents, examples

PROBE = POOL.images[:24, 0].numpy()

values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2, allow_subnormal=False) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=1), inner, max_size=3),
    max_leaves=12,
)


@given(values, values)
def test_an_edit_makes_the_new_value_of_the_old_one(old: Any, new: Any):
    assert repr(apply_edit(old, difference(old, new))) == repr(new) or apply_edit(old, difference(old, new)) == new


def test_an_edit_of_a_long_list_is_short():
    assert difference([*range(1000)], [*range(1001)]) == {"keep": 1000, "at": [], "add": [1000]}
    assert difference([1, 2, 3], [1, True, 3]) == {"keep": 3, "at": [[1, True]], "add": []}


@given(st.integers(0, 9), st.integers(0, 9), st.sets(st.integers(0, 8)), st.sampled_from([torch.float32, torch.int64]))
def test_rows_make_the_new_tensor_of_the_old_one(n_old: int, n_new: int, changed: set[int], dtype: torch.dtype):
    old = torch.arange(18).reshape(9, 2).to(dtype)
    new = old.clone()
    for row in changed:
        new[row] += 100
    before, after = {"a": old[:n_old], "gone": old}, {"a": new[:n_new], "b": torch.tensor(1.0)}
    rows, notes = changed_rows(before, after)
    assembly = Assembly()
    assembly.start({}, before)
    assembly.follow(difference({}, {"x": 1}), notes, rows)
    found = assembly.tensors()
    assert found.keys() == after.keys()
    assert all(torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype for name, tensor in after.items())
    assert torch.equal(before["a"], torch.arange(18).reshape(9, 2).to(dtype)[:n_old])  # the old one is untouched


@pytest.mark.parametrize(
    "note", [{"n": 10**12, "at": []}, {"n": 3, "at": [[0, 5]]}, {"n": -1, "at": []}, {"n": 4, "at": [[3, 4]]}, {"n": 2}]
)
def test_rows_that_do_not_fit_are_refused(note: dict[str, Any]):
    assembly = Assembly()
    assembly.start({}, {"a": torch.zeros(2, 2)})
    with pytest.raises(StorageError, match="does not follow from the one before it"):
        assembly.follow({"of": {}, "without": []}, {"a": note}, {"a": torch.zeros(1, 2)})


def test_the_disk_grows_with_the_lessons_and_not_with_their_square(tmp_path: Path):
    model, sizes = classifier().save(tmp_path / "model"), []
    for lesson in range(120):
        model.partial_fit(POOL.images[lesson : lesson + 1, 0].numpy(), [f"class-{lesson % 40}"])
        if lesson + 1 in (40, 80, 120):
            states = (tmp_path / "model" / "states").rglob("*")
            sizes.append(sum(path.stat().st_size for path in states if path.is_file() and path.name != UNKNOWN))
    assert sizes[2] - sizes[1] < 1.6 * (
        sizes[1] - sizes[0]
    )  # 1.0 is linear; it was 1.67 with whole states and 300 lessons
    assert sizes[2] < 120 * 3500
    assert len(list((tmp_path / "model" / "states").rglob(UNKNOWN))) == 1  # of the present state alone


@pytest.mark.parametrize("method", ["prototypes", "tsc", "discriminant"])
def test_every_state_can_be_gone_back_to_bit_for_bit(method: str, tmp_path: Path):
    folder = tmp_path / "model"
    model, seen = classifier(method).save(folder), []

    def look() -> None:
        files = {name: content for name, content in contents(folder).items() if name != "model.json"}
        answers = (model.predict_proba(PROBE), asked(model)) if model.history_ else None
        seen.append((files, answers, model.history_))

    look()
    for call in (
        lambda: model.partial_fit(*examples(0, 1)),
        lambda: model.partial_fit(*examples(2)),
        lambda: model.partial_fit(*examples(0, n=1, start=4)),
        lambda: model.rename("class-1", "one"),
        lambda: model.remove(2),
        lambda: model.move(1, "class-2"),
        lambda: model.correct(PROBE[20], "new", new=True),
    ):
        call()
        look()
    assert any(record.parent is not None for record in read_manifest(folder).states) or method == "tsc"
    assert check_model(folder).problems == ()
    copy = ContinualClassifier.load(folder).save(tmp_path / "copy")
    for files, answers, history in reversed(seen[:-1]):
        for each in (model.undo(), copy.undo()):
            assert each.history_ == history
            if answers is not None:
                assert np.array_equal(each.predict_proba(PROBE), answers[0])
                assert asked(each) == answers[1]
        assert files.items() <= contents(folder).items()  # what was undone waits for `redo`
        if answers is not None:
            again = ContinualClassifier.load(folder)
            assert np.array_equal(again.predict_proba(PROBE), answers[0])
            assert asked(again) == answers[1]


@pytest.mark.parametrize("keep", [0, 1, 2, 3])
@pytest.mark.parametrize("method", ["prototypes", "discriminant"])
def test_with_a_bound_on_the_states_they_share_too_and_those_that_are_kept_can_be_gone_back_to(
    method: str, keep: int, tmp_path: Path
):
    folder = tmp_path / "model"
    model, seen = classifier(method, keep_states=keep).save(folder), []
    shared = 0
    for lesson in range(12):
        model.partial_fit(POOL.images[lesson : lesson + 1, 0].numpy(), [f"class-{lesson % 4}"])
        seen.append((model.predict_proba(PROBE), model.history_))
        manifest = read_manifest(folder)
        assert len(manifest.states) == min(lesson + 1, keep + 1)
        assert len(manifest.ground) <= keep
        assert len(list((folder / "states").iterdir())) == len(manifest.stored)
        assert manifest.stored[0].parent is None
        shared += manifest.states[-1].parent is not None
        assert check_model(folder).problems == ()
        assert check_model(folder).strays == ()
    assert shared >= 4 or keep == 0
    copy = ContinualClassifier.load(folder).save(tmp_path / "copy")
    for answers, history in reversed(seen[-1 - keep : -1]):
        for each in (model.undo(), copy.undo()):
            assert each.history_ == history
            assert np.array_equal(each.predict_proba(PROBE), answers)
        assert np.array_equal(ContinualClassifier.load(folder).predict_proba(PROBE), answers)
    with pytest.raises(MisuseError, match="beyond keep_states"):
        model.undo()
    model.partial_fit(*examples(5))  # a change after an undo builds on what is there
    assert len(ContinualClassifier.load(folder).classes_) == len(model.classes_)
    assert check_model(folder).problems == ()


def test_a_thousand_corrections_with_a_bound_on_the_states_do_not_fill_a_disk(tmp_path: Path):
    """What the states take grows with what is stored, and not with that times the states that are kept."""
    sizes = {}
    for keep in (None, 20):
        folder = tmp_path / str(keep)
        model = classifier(keep_states=keep).save(folder)
        for lesson in range(150):
            model.partial_fit(POOL.images[lesson : lesson + 1, 0].numpy(), [f"class-{lesson % 40}"])
        files = [path for path in (folder / "states").rglob("*") if path.is_file()]
        sizes[keep] = sum(path.stat().st_size for path in files)
        present = read_manifest(folder).states[-1]
    whole = 150 * 65 * 4  # bytes of the features alone, of which every whole state has one copy
    assert present.number == 150
    assert sizes[20] < sizes[None]
    assert sizes[20] < 12 * whole  # 21 whole states would take over 21 of them


def test_a_state_that_nobody_can_go_to_is_checked_and_repaired_around(tmp_path: Path):
    folder = tmp_path / "model"
    model = classifier(keep_states=3).partial_fit(POOL.images[20:60, 0].numpy(), ["a", "b"] * 20).save(folder)
    while not (manifest := read_manifest(folder)).ground or manifest.states[-1].parent is not None:
        model.partial_fit(POOL.images[len(model.history_)][None, 0].numpy(), ["a"])
    path = folder / manifest.ground[-1].folder / "state.json"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert len(check_model(folder).problems) > 0
    done = repair_model(folder)
    assert done.went_back == 0
    assert check_model(folder).problems == ()
    assert read_manifest(folder).ground == ()
    assert len(ContinualClassifier.load(folder).partial_fit(*examples(7)).classes_) == 3


def test_numbers_of_states_do_not_end(tmp_path: Path):
    from fscl.classifier.store.manifest import write_manifest

    folder = tmp_path / "model"
    classifier().partial_fit(*examples(0, 1)).save(folder)
    write_manifest(folder, read_manifest(folder).model_copy(update={"next_number": 999_999}))
    model = ContinualClassifier.load(folder).partial_fit(*examples(2)).partial_fit(*examples(3))
    assert [record.number for record in read_manifest(folder).states] == [1, 999_999, 1_000_000]
    assert ContinualClassifier.load(folder).classes_.tolist() == model.classes_.tolist()
    assert check_model(folder).strays == ()
    (folder / "states" / "1000001").mkdir()  # as a process that was killed leaves it
    assert check_model(folder).strays == (folder / "states" / "1000001",)
    assert model.undo(2).classes_.tolist() == ["class-0", "class-1"]
