"""One learner for a command, and one copy of every example, in memory and on disk."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fscl import ContinualClassifier
from fscl.classifier.store.manifest import read_manifest
from fscl.cli import main
from fscl.continual.learner import ContinualLearner
from fscl.storage import load_tensors
from fscl.testing import POOL
from tests.classifier.models import BASE, classifier, examples
from tests.continual.quick import quick


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A line for every learner that is made."""
    made: list[str] = []
    original = ContinualLearner.__init__

    def spy(self: ContinualLearner, *arguments: Any, **named: Any) -> None:
        made.append(type(self).__name__)
        original(self, *arguments, **named)

    monkeypatch.setattr(ContinualLearner, "__init__", spy)
    return made


@contextmanager
def so_many(built: list[str], n: int) -> Iterator[None]:
    built.clear()
    yield
    assert len(built) == n, built


@pytest.mark.parametrize("method", ["tsc", "prototypes"])
def test_a_command_builds_one_learner_or_none(
    method: str, built: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fscl(*arguments: object) -> None:
        monkeypatch.setattr(sys, "argv", ["fscl", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code

    model, photo = tmp_path / "model", tmp_path / "photos" / "class-2" / "0.png"
    classifier(method).partial_fit(*examples(0, 1)).save(model)
    photo.parent.mkdir(parents=True)
    Image.fromarray(POOL.of_class(2)[0, 0].numpy()).save(photo)
    commands: list[tuple[int, tuple[object, ...]]] = [
        (1, ("learn", model, tmp_path / "photos")),
        (1, ("predict", model, photo)),
        (1, ("correct", model, photo, "class-2")),
        (0, ("rename", model, "class-1", "one")),
        (0, ("undo", model)),
        (1, ("forget", model, "class-1")),
    ]
    for n, command in commands:
        with so_many(built, n):
            fscl(*command)


def test_a_call_builds_one_learner_and_asking_and_undoing_none(built: list[str]):
    model = classifier("tsc")
    calls: list[tuple[int, Callable[[], object]]] = [
        (1, lambda: model.partial_fit(*examples(0, 1))),
        (1, lambda: model.partial_fit(*examples(2))),
        (0, lambda: model.predict_proba(examples(0)[0])),
        (0, lambda: model.explain(examples(0)[0][0])),
        (0, model.undo),
        (0, lambda: model.predict(examples(0)[0])),
        (0, lambda: model.rename("class-1", "one").predict(examples(0)[0])),
        (1, lambda: model.forget("one").predict(examples(0)[0])),
        (1, lambda: model.fit(*examples(3, 4))),
    ]
    for n, call in calls:
        with so_many(built, n):
            call()


def stored(model: ContinualClassifier) -> tuple[Any, Any]:
    snapshot = model._model.snapshot
    return snapshot.knowledge.examples, snapshot.learner.state().examples


@pytest.mark.parametrize("call", ["learn", "forget", "load", "undo"])
def test_the_examples_that_a_learner_replays_are_the_stored_ones_themselves(call: str, tmp_path: Path):
    model = classifier("tsc", memory_bytes=7 * (16 * 16 + 8)).partial_fit(*examples(0, 1)).partial_fit(*examples(2))
    if call == "forget":
        model.forget("class-1")
    elif call == "undo":
        model.undo()
    elif call == "load":
        model.save(tmp_path / "model")
        model = ContinualClassifier.load(tmp_path / "model")
    known, replayed = stored(model)
    assert known.images.data_ptr() == replayed.images.data_ptr()
    assert known.labels.tolist() == replayed.labels.tolist()


@pytest.mark.parametrize("method", ["tsc", "replay", "sequential", "prototypes", "neighbour"])
def test_no_example_is_in_a_folder_twice(method: str, tmp_path: Path):
    settings = quick(method, steps=2)
    model = classifier(method, settings=settings).partial_fit(*examples(0, 1)).save(tmp_path / "model")
    model.partial_fit(*examples(2, 0, start=3))
    for state in read_manifest(tmp_path / "model").states:
        tensors, _ = load_tensors(tmp_path / "model" / state.folder / "learner.safetensors", "classifier-tensors")
        pictures = [name for name, tensor in tensors.items() if tensor.ndim == 4 and tensor.shape[-1] == 16]
        assert pictures == []
    n_stored = 0
    for path in (tmp_path / "model" / "images").iterdir():
        with Image.open(path) as sheet:
            n_stored += sheet.height // 16
    assert n_stored == 12


def test_rows_are_written_once_though_they_are_their_own_features(tmp_path: Path):
    rows = np.random.default_rng(0).normal(size=(6, 4))
    model = ContinualClassifier(method="tsc").fit(rows, list("aabbcc")).forget("b").save(tmp_path / "model")
    (state,) = read_manifest(tmp_path / "model").states
    tensors, _ = load_tensors(tmp_path / "model" / state.folder / "learner.safetensors", "classifier-tensors")
    large = [name for name, tensor in tensors.items() if tensor.shape == (4, 4)]
    assert [name for name in large if not name.startswith("unknown/")] == ["rows"]
    assert np.array_equal(ContinualClassifier.load(tmp_path / "model").predict_proba(rows), model.predict_proba(rows))


def test_what_is_generated_is_no_example_and_is_kept_with_the_learner(tmp_path: Path):
    model = (
        classifier("tsc_gr", settings=quick("tsc_gr", steps=2)).partial_fit(*examples(0, 1)).save(tmp_path / "model")
    )
    known, replayed = stored(model)
    assert len(known) == 6
    assert replayed is None
    again = ContinualClassifier.load(tmp_path / "model")
    for each in (model, again):
        each._model.folder = None
        each.partial_fit(*examples(2))
    X = POOL.images[:20, 0].numpy()
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


def test_a_memory_that_the_settings_bound_is_all_that_is_stored():
    model = ContinualClassifier(
        BASE, "tsc", settings={"embedding_steps": 2, "memory": {"kind": "bounded", "per_class": 2}}
    )
    model.partial_fit(*examples(0, 1)).partial_fit(*examples(2, 0, start=3))
    assert model.memory_.per_class == {"class-0": 2, "class-1": 2, "class-2": 2}
    none = ContinualClassifier(BASE, "tsc", settings={"embedding_steps": 2, "memory": "none", "regulariser": "none"})
    assert none.partial_fit(*examples(0, 1)).memory_.n_examples == 6  # nothing is replayed, and answers are explained


def test_a_snapshot_and_what_it_knows_are_shown_in_a_line():
    snapshot = classifier("tsc").partial_fit(*examples(0, 1))._model.snapshot
    assert repr(snapshot) == "<Snapshot of <Knowledge: 2 classes, 6 stored examples, 1 calls>>"
