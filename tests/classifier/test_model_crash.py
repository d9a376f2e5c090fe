"""A real process that teaches is killed at random moments: the model is that before or after the call, never between."""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fscl import ContinualClassifier
from fscl.classifier.store.check import check_model
from tests.classifier.models import POOL, classifier, examples

N_KILLS = 60
N_CLASSES = 12
PROBE = POOL.images[:24, 0].numpy()


def lesson(number: int) -> tuple[np.ndarray, list[str]]:
    """New classes at first, then more examples of them."""
    return examples(number % N_CLASSES, n=1, start=number // N_CLASSES)


class Child:
    """A process of its own that works until it is killed, and what it says through a pipe."""

    def __init__(self, work: Callable[[Path, int], None], folder: Path) -> None:
        reading, writing = os.pipe()
        self.number = os.fork()
        if self.number == 0:
            try:
                os.close(reading)
                work(folder, writing)
            finally:
                os._exit(1)
        os.close(writing)
        self.pipe = os.fdopen(reading, "rb", buffering=0)

    def kill(self) -> bytes:
        """What it had said that was not read yet."""
        os.kill(self.number, signal.SIGKILL)
        os.waitpid(self.number, 0)
        with self.pipe:
            return self.pipe.read()


def teach_for_ever(folder: Path, acknowledged: int) -> None:
    """In a process of its own: load, and teach lesson after lesson; a byte in the pipe for each that was learned."""
    model = ContinualClassifier.load(folder)
    model.recover()
    while True:
        model.partial_fit(*lesson(len(model.history_)))
        os.write(acknowledged, b".")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, so that a killed process costs no imports")
@pytest.mark.parametrize("method", ["prototypes", "tsc"])
def test_a_process_killed_at_any_moment_loses_nothing_that_was_acknowledged(method: str, tmp_path: Path):
    chance = random.Random(f"kill {method}")
    folder, n_kills = tmp_path / "model", N_KILLS if method == "prototypes" else N_KILLS // 4
    settings = {"keep_states": 3, "settings": {"embedding_steps": 1} if method == "tsc" else None}
    classifier(method, **settings).save(folder)
    never_killed, n_states, cut_short, moments = classifier(method, **settings), 0, 0, []
    for _ in range(n_kills):
        child = Child(teach_for_ever, folder)
        n_acknowledged = len(child.pipe.read(1)) if chance.random() < 0.5 else 0  # from there on within a later call
        time.sleep(chance.random() * 0.06)
        n_acknowledged += len(child.kill())
        # what is on disk is whole, and is the model after some number of lessons, bit for bit
        found = check_model(folder)
        assert found.problems == ()
        cut_short += found.waiting
        model = ContinualClassifier.load(folder)
        n_learned = len(model.history_)
        assert n_learned >= n_states + n_acknowledged
        while n_states < n_learned:
            never_killed.partial_fit(*lesson(n_states))
            n_states += 1
        moments.append(n_learned)
        if n_learned:
            assert np.array_equal(model.predict_proba(PROBE), never_killed.predict_proba(PROBE))
    last = ContinualClassifier.load(folder)
    waiting = last.recover()
    if waiting:
        never_killed.partial_fit(*lesson(n_states))
    assert len(last.history_) == n_states + waiting
    assert np.array_equal(last.predict_proba(PROBE), never_killed.predict_proba(PROBE))
    last.rename("class-0", "swept")
    assert check_model(folder).strays == ()
    assert cut_short > 0, "no kill fell between journal and commit: the moments are badly chosen"
    assert len(set(moments)) > 5


def change_for_ever(folder: Path, acknowledged: int) -> None:
    """In a process of its own: every kind of change, round and round, beside a class that stays."""
    model = ContinualClassifier.load(folder)
    model.recover()
    while True:
        for label in [each for each in model.classes_ if each != "class-0"]:
            model.forget(label)
        model.partial_fit(*examples(1))
        model.rename("class-1", "renamed")
        model.partial_fit(*examples(2))
        model.undo()
        model.forget("renamed")
        os.write(acknowledged, b".")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, so that a killed process costs no imports")
def test_a_process_killed_while_it_renames_undoes_or_forgets_leaves_a_whole_model(tmp_path: Path):
    chance, folder = random.Random("kill changes"), tmp_path / "model"
    classifier().partial_fit(*examples(0)).save(folder)
    child, start = Child(change_for_ever, folder), time.monotonic()
    child.pipe.read(1)
    a_round = time.monotonic() - start  # on this machine, as busy as it is
    child.kill()
    seen = set()
    for _ in range(N_KILLS // 2):
        child = Child(change_for_ever, folder)
        time.sleep(chance.random() * a_round)
        child.kill()
        assert check_model(folder).problems == ()
        known = ContinualClassifier.load(folder).classes_.tolist()
        assert known in (["class-0"], ["class-0", "class-1"], ["class-0", "renamed"], ["class-0", "class-2", "renamed"])
        seen.add(tuple(known))
    assert len(seen) > 1, "every kill fell on the same state: the moments are badly chosen"
    last = ContinualClassifier.load(folder)
    last.recover()
    for label in [each for each in last.classes_ if each != "class-0"]:
        last.forget(label)
    last.rename("class-0", "all that is left")
    assert check_model(folder).strays == ()
    (sheet,) = (folder / "images").iterdir()
    with Image.open(sheet) as image:
        stored = np.asarray(image).reshape(-1, 16, 16)
    assert np.array_equal(np.sort(stored, axis=0), np.sort(examples(0)[0], axis=0))  # no pixel of a forgotten class


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, so that a writer costs no imports")
def test_readers_and_checks_see_whole_models_while_another_process_writes(tmp_path: Path):
    folder = tmp_path / "model"
    classifier(keep_states=0).partial_fit(*examples(0)).save(folder)
    child = Child(change_for_ever, folder)
    try:
        child.pipe.read(1)  # one whole round is behind it
        until, n_read = time.monotonic() + 3, 0
        while time.monotonic() < until:
            assert "class-0" in ContinualClassifier.load(folder).classes_
            assert check_model(folder).problems == ()
            n_read += 1
    finally:
        child.kill()
    assert n_read > 10
