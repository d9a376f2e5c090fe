"""What a learner has computed of stored examples: written once, read when needed, verified, and gone with its examples."""

import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fscl import ContinualClassifier
from fscl.classifier.store.cached import CachedRows, file_of
from fscl.classifier.store.check import check_model
from fscl.classifier.store.manifest import read_manifest, record_of, write_manifest
from fscl.classifier.store.states import read_content
from fscl.continual.tail.codes import Body
from fscl.errors import StorageError
from tests.classifier.models import POOL, classifier, contents, examples
from tests.classifier.test_model_crash import Child

SETTINGS = {"steps": 4, "learning_rate": 5e-3, "views": 2}
PROBE = POOL.images[:24, 0].numpy()
ROWS = {"codes": torch.arange(12.0).reshape(6, 2), "whole": torch.arange(6).half()}


def tail(**parameters: Any) -> ContinualClassifier:
    return classifier("tsc_tail", settings=SETTINGS, **parameters)


@pytest.fixture
def model(tmp_path: Path) -> ContinualClassifier:
    return tail().partial_fit(*examples(0, 1)).save(tmp_path / "model")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "model" / "cache"


def names_in(state: Path) -> list[str]:
    """The names of the cached rows of a state, whether it is stored whole or not."""
    states = read_manifest(state.parent.parent).stored
    number = [record.number for record in states].index(int(state.name))
    return list(read_content(state.parent.parent, states[: number + 1]).details["cached"])


def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pictures pass the frozen part from now on, call by call."""
    found: list[int] = []
    real = Body.codes

    def counted(body: Body, images: torch.Tensor, *args: Any, **kwargs: Any) -> dict[str, torch.Tensor]:
        found.append(len(images))
        return real(body, images, *args, **kwargs)

    monkeypatch.setattr(Body, "codes", counted)
    return found


# the rows alone


def test_rows_that_are_read_are_those_that_were_written(tmp_path: Path):
    names = CachedRows(tmp_path).write(list("abcdef"), ROWS)
    order = [5, 0, 3]
    read = CachedRows(tmp_path).read([list("abcdef")[i] for i in order], [names[i] for i in order])
    assert set(read) == set(ROWS)
    assert len(read) == 2
    assert all(torch.equal(read[name], tensor[order]) for name, tensor in ROWS.items())


def test_a_row_is_written_once_and_only_new_ones_make_a_new_file(tmp_path: Path):
    store = CachedRows(tmp_path)
    first = store.write(list("abc"), {name: tensor[:3] for name, tensor in ROWS.items()})
    assert store.write(list("cab"), {}) == [first[2], first[0], first[1]]  # nothing is looked at
    again = store.write(list("abcdd"), {name: tensor[:5] for name, tensor in ROWS.items()})
    assert again[:3] == first
    assert again[3] == again[4]  # one picture, stored twice
    assert len(list(tmp_path.iterdir())) == 2
    anew = store.write(list("ab"), {name: tensor[:2] for name, tensor in ROWS.items()}, anew=True)
    assert len({file_of(name) for name in anew}) == 1
    assert not {file_of(name) for name in anew} & {file_of(name) for name in again}


def test_a_file_that_is_gone_is_written_again(tmp_path: Path):
    store = CachedRows(tmp_path)
    names = store.write(list("abc"), {name: tensor[:3] for name, tensor in ROWS.items()})
    store.path(file_of(names[0])).unlink()
    assert store.write(list("abc"), {name: tensor[:3] for name, tensor in ROWS.items()}) == names
    assert store.path(file_of(names[0])).is_file()


@pytest.mark.parametrize(
    "name", ["../../secret:0", "/etc/passwd:0", "a" * 64, "a" * 63 + ":0", "A" * 64 + ":0", "a" * 64 + ":-1", 7, None]
)
def test_a_name_that_leads_out_of_the_folder_is_refused_before_anything_is_read(name: Any, tmp_path: Path):
    with pytest.raises(StorageError, match="is not the name of a stored row"):
        CachedRows(tmp_path).read(["a"], [name])


def test_a_row_beyond_its_file_is_refused(tmp_path: Path):
    name = file_of(CachedRows(tmp_path).write(list("abcdef"), ROWS)[0])
    read = CachedRows(tmp_path).read(["a"], [f"{name}:6"])
    with pytest.raises(StorageError, match="does not hold whole rows"):
        read["codes"]


def test_files_of_unlike_rows_are_refused(tmp_path: Path):
    store = CachedRows(tmp_path)
    names = [*store.write(["a"], {"codes": torch.zeros(1, 2)}), *store.write(["b"], {"codes": torch.zeros(1, 3)})]
    with pytest.raises(StorageError, match="does not hold whole rows"):
        CachedRows(tmp_path).read(["a", "b"], names)["codes"]


# in a model


def test_each_lesson_adds_one_file_and_no_row_is_written_twice(model: ContinualClassifier, cache: Path):
    (first,) = cache.iterdir()
    before = first.read_bytes()
    model.partial_fit(*examples(2, 0))  # three of the six are stored already
    assert len(list(cache.iterdir())) == 2
    assert first.read_bytes() == before
    model.rename("class-0", "zero")
    assert len(list(cache.iterdir())) == 2
    states = sorted((cache.parent / "states").iterdir())
    assert names_in(states[0]) == names_in(states[1])[:6]
    assert names_in(states[1])[9:] == names_in(states[1])[:3]  # the repeated pictures have the same rows
    assert names_in(states[2]) == names_in(states[1])


def test_asking_never_reads_the_rows(model: ContinualClassifier, cache: Path):
    again = ContinualClassifier.load(cache.parent)
    expected = model.predict_proba(PROBE)
    shutil.rmtree(cache)
    assert np.array_equal(again.predict_proba(PROBE), expected)
    late = ContinualClassifier.load(cache.parent)  # nor does loading
    assert np.array_equal(late.predict_proba(PROBE), expected)
    assert late.explain(PROBE[0]).label == model.explain(PROBE[0]).label
    late.predict(PROBE, reject=True)


def test_a_loaded_model_goes_on_as_if_never_saved_without_passing_a_stored_picture_again(
    model: ContinualClassifier, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    alone = tail().partial_fit(*examples(0, 1)).partial_fit(*examples(2, start=3))
    again = ContinualClassifier.load(cache.parent)
    passed = computed(monkeypatch)
    again.partial_fit(*examples(2, start=3))
    assert passed == [3]
    assert np.array_equal(again.predict_proba(PROBE), alone.predict_proba(PROBE))


@pytest.mark.parametrize("harm", ["altered", "missing", "link", "cut"])
def test_a_file_that_is_not_what_it_was_is_refused_by_name(
    harm: str, model: ContinualClassifier, cache: Path, tmp_path: Path
):
    (path,) = cache.iterdir()
    content = path.read_bytes()
    path.unlink()
    if harm == "altered":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif harm == "cut":
        path.write_bytes(content[:100])
    elif harm == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        path.symlink_to(tmp_path / "elsewhere")
    rule = "missing or no plain file" if harm in ("missing", "link") else "altered after it was written"
    (problem,) = check_model(cache.parent).problems
    assert path.name in problem
    assert rule in problem
    again, before = ContinualClassifier.load(cache.parent), contents(cache.parent)
    with pytest.raises(StorageError, match=rf"{path.name} .*{rule}"):
        again.partial_fit(*examples(2))
    assert contents(cache.parent) == before
    assert len(ContinualClassifier.load(cache.parent).history_) == 1


@pytest.mark.parametrize("name", ["../images/x:0", "../../outside:0", "0" * 64 + ":x"])
def test_a_model_whose_rows_lead_elsewhere_is_refused(name: str, model: ContinualClassifier, cache: Path):
    folder = cache.parent
    manifest = read_manifest(folder)
    (record,) = manifest.states
    path = folder / record.folder / "state.json"
    details = json.loads(path.read_text())
    details["cached"][0] = name
    path.write_text(json.dumps(details))
    record = record.model_copy(update={"files": {**record.files, "state.json": record_of(path)}})
    write_manifest(folder, manifest.model_copy(update={"states": (record,)}))
    with pytest.raises(StorageError, match="is not the name of a stored row"):
        ContinualClassifier.load(folder).predict(PROBE)
    assert "is not the name of a stored row" in check_model(folder).problems[0]


def test_files_that_no_state_needs_are_swept(tmp_path: Path):
    model = tail(keep_states=1, memory_bytes=6 * (16 * 16 + 8)).save(tmp_path / "model")
    cache = tmp_path / "model" / "cache"
    for label in range(4):
        model.partial_fit(*examples(label))
        needed = {file_of(name) for state in (tmp_path / "model" / "states").iterdir() for name in names_in(state)}
        assert {path.stem for path in cache.iterdir()} == needed
    stray = cache / ("0" * 64 + ".safetensors")
    stray.write_bytes(b"left by nobody")
    assert check_model(tmp_path / "model").strays == (stray,)
    model.partial_fit(*examples(4))
    assert check_model(tmp_path / "model").strays == ()


@pytest.mark.parametrize("heads", [[{"kind": "ridge"}], [{"kind": "plda"}]])  # the second has to learn the others again
def test_rows_of_a_forgotten_class_are_gone_and_no_picture_is_passed_again(
    heads: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    model = classifier("tsc_tail", settings={**SETTINGS, "heads": heads}).partial_fit(*examples(0, 1, 2))
    model.save(tmp_path / "model")
    stored = model._model.snapshot.learner_state()
    assert stored is not None
    assert stored.cached is not None
    kept = torch.cat([stored.cached["whole"][:3], stored.cached["whole"][6:]])
    passed = computed(monkeypatch)
    ContinualClassifier.load(tmp_path / "model").forget("class-1")
    assert passed == []
    (path,) = (tmp_path / "model" / "cache").iterdir()
    (state,) = (tmp_path / "model" / "states").iterdir()
    rows = CachedRows(path.parent).read(["x"] * 6, names_in(state))
    assert torch.equal(rows["whole"], kept)
    file = CachedRows(path.parent).read(["x"] * 6, [f"{path.stem}:{row}" for row in range(6)])
    assert torch.equal(file["whole"].sort(0).values, kept.sort(0).values)  # nothing else is in it
    with pytest.raises(StorageError, match="whole rows"):
        CachedRows(path.parent).read(["x"], [f"{path.stem}:6"])["whole"]
    assert check_model(tmp_path / "model").problems == ()


def test_undo_finds_the_rows_of_before(model: ContinualClassifier, cache: Path):
    expected = model.predict_proba(PROBE)
    before = contents(cache.parent)
    model.partial_fit(*examples(2)).undo()
    after = contents(cache.parent)
    assert {name for name in before if name.startswith("cache")} <= {name for name in after if name.startswith("cache")}
    again = ContinualClassifier.load(cache.parent)
    assert np.array_equal(again.predict_proba(PROBE), expected)
    again.partial_fit(*examples(3))


def change_for_ever(folder: Path, acknowledged: int) -> None:
    """In a process of its own: teach, rename and forget, round and round, beside a class that stays."""
    model = ContinualClassifier.load(folder)
    model.recover()
    while True:
        for label in [each for each in model.classes_ if each != "class-0"]:
            model.forget(label)
        model.partial_fit(*examples(1))
        model.rename("class-1", "renamed")
        os.write(acknowledged, b".")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, so that a killed process costs no imports")
def test_a_process_killed_between_rows_and_commit_leaves_a_whole_model(tmp_path: Path):
    chance, folder = random.Random("kill rows"), tmp_path / "model"
    tail().partial_fit(*examples(0)).save(folder)
    seen = set()
    for _ in range(20):
        child = Child(change_for_ever, folder)
        if chance.random() < 0.5:
            child.pipe.read(1)
        time.sleep(chance.random() * 0.25)
        child.kill()
        assert check_model(folder).problems == ()
        known = ContinualClassifier.load(folder).classes_.tolist()
        assert known in (["class-0"], ["class-0", "class-1"], ["class-0", "renamed"])
        seen.add(tuple(known))
    assert len(seen) > 1, "every kill fell on the same state: the moments are badly chosen"
    last = ContinualClassifier.load(folder)
    last.recover()
    last.partial_fit(*examples(2))
    for label in [each for each in last.classes_ if each != "class-0"]:
        last.forget(label)
    assert check_model(folder).strays == ()
    (path,) = (folder / "cache").iterdir()
    assert len(CachedRows(path.parent).read(["x"] * 3, [f"{path.stem}:{row}" for row in range(3)])["base"]) == 3


@pytest.mark.parametrize("moment", ["rows", "manifest"])
def test_a_change_that_fails_after_its_rows_were_written_leaves_the_model_as_it_was(
    moment: str, model: ContinualClassifier, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    from fscl.classifier.store import cached, folder

    def fails(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    before = contents(cache.parent)
    monkeypatch.setattr(*((cached, "sync_folder") if moment == "rows" else (folder, "write_manifest")), fails)
    with pytest.raises(StorageError, match=r"No space left on device\. The model is as it was before the call"):
        model.partial_fit(*examples(2))
    assert contents(cache.parent) == before
    monkeypatch.undo()
    assert model.partial_fit(*examples(2)).classes_.tolist() == ["class-0", "class-1", "class-2"]
    assert check_model(cache.parent).problems == ()
