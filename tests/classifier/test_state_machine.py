"""Any calls in any order, with crashes, reloads and a second handle among them, against what should be.

For the store that is a classifier in memory, which keeps its states as values and shares no code with it; for the
classifier, how many examples of which class there are after each call, counted here.
"""

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fscl import ContinualClassifier, estimator
from fscl.classifier.store.check import check_model
from fscl.classifier.store.repair import repair_model
from fscl.errors import FsclError
from tools.soaking.breaking import BeforeChange, in_child

LABELS = st.sampled_from(["oak", "elm", "مرحبا", "桦树", "a/b", "👩\u200d👧"])
SEEDS = st.integers(0, 30)
PROBE = np.random.default_rng(99).normal(size=(5, 3))


def rows(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(2, 3))


class Folder(RuleBasedStateMachine):
    """A classifier in a folder beside its twin in memory."""

    @initialize(keep=st.sampled_from([None, None, 2]), method=st.sampled_from(["prototypes", "discriminant"]))
    def begin(self, keep: int | None, method: str) -> None:
        self.now, estimator._now = estimator._now, lambda: "2020-01-01T00:00:00+00:00"
        self.place = Path(tempfile.mkdtemp())
        self.folder = self.place / "model"
        self.twin = ContinualClassifier(method=method, keep_states=keep).fit(rows(1000), ["elm", "oak"])
        ContinualClassifier(method=method, keep_states=keep).fit(rows(1000), ["elm", "oak"]).save(self.folder)
        self.model = ContinualClassifier.load(self.folder)
        self.other = ContinualClassifier.load(self.folder)
        self.counts: list[Counter[str]] = [Counter(), Counter(["elm", "oak"])]  # after each call that can be undone

    def both(self, call: Any, count: Callable[[Counter[str]], object] | None = None) -> bool:
        """Make a call on both: they change alike, or refuse alike. `count` says what it does to the number of examples."""
        outcomes = []
        for each in (self.twin, self.model):
            try:
                call(each)
                outcomes.append("")
            except FsclError as error:
                outcomes.append(type(error).__name__)
        assert outcomes[0] == outcomes[1]
        if outcomes[0] == "" and count is not None:
            after = self.counts[-1].copy()
            count(after)
            self.counts.append(+after)
        return outcomes[0] == ""

    def label_of(self, number: int) -> str | None:
        """The class of a stored example, before a call."""
        return next((str(each.label) for each in self.twin.examples_ if each.number == number), None)

    @rule(label=LABELS, seed=SEEDS)
    def learn(self, label: str, seed: int) -> None:
        self.both(lambda each: each.partial_fit(rows(seed), [label] * 2), lambda count: count.update([label] * 2))

    @rule(label=LABELS, seed=SEEDS, new=st.booleans())
    def correct(self, label: str, seed: int, new: bool) -> None:
        if len(self.twin.classes_):
            self.both(lambda each: each.correct(rows(seed)[0], label, new=new), lambda count: count.update([label]))

    @rule(old=LABELS, new=LABELS)
    def rename(self, old: str, new: str) -> None:
        if len(self.twin.classes_):
            self.both(lambda each: each.rename(old, new), lambda count: count.update({new: count.pop(old)}))

    @rule(label=LABELS)
    def forget(self, label: str) -> None:
        if len(self.twin.classes_) < 2:
            return
        if self.both(lambda each: each.forget(label), lambda count: count.pop(label)):
            self.counts = self.counts[-1:]  # there is no way back

    @rule(number=st.integers(1, 8))
    def remove(self, number: int) -> None:
        if len(self.twin.classes_):
            label = self.label_of(number)
            self.both(lambda each: each.remove(number), lambda count: count.subtract([label]))

    @rule(number=st.integers(1, 8), label=LABELS, new=st.booleans())
    def move(self, number: int, label: str, new: bool) -> None:
        if len(self.twin.classes_):
            before = self.label_of(number)
            self.both(
                lambda each: each.move(number, label, new=new), lambda count: count.update({before: -1, label: 1})
            )

    @rule(n_calls=st.integers(1, 3))
    def undo(self, n_calls: int) -> None:
        if self.both(lambda each: each.undo(n_calls)):
            del self.counts[-n_calls:]

    @rule()
    def load(self) -> None:
        self.model = ContinualClassifier.load(self.folder)

    @rule()
    def change_hands(self) -> None:
        """From here on the other handle writes, which has not seen what this one did."""
        self.model, self.other = self.other, self.model
        self.model._model.refresh()

    @rule()
    def copy(self) -> None:
        self.model.save(self.place / f"copy-{random.randrange(10**9)}")
        self.folder = self.model._model.folder.folder
        self.other = ContinualClassifier.load(self.folder)

    @precondition(lambda self: hasattr(os, "fork"))
    @rule(label=LABELS, seed=SEEDS, place=st.integers(0, 50))
    def crash(self, label: str, seed: int, place: int) -> None:
        """A lesson by another process that dies before one of its file changes; then the lesson is made sure of."""
        n_calls = len(self.model.history_)
        in_child(
            lambda: ContinualClassifier.load(self.folder).partial_fit(rows(seed), [label] * 2), BeforeChange(place)
        )
        self.model = ContinualClassifier.load(self.folder)
        self.model.recover()
        if len(self.model.history_) == n_calls:
            self.model.partial_fit(rows(seed), [label] * 2)
        self.twin.partial_fit(rows(seed), [label] * 2)
        self.counts.append(self.counts[-1] + Counter([label] * 2))

    @rule()
    def repair(self) -> None:
        """Nothing is damaged, so nothing is lost."""
        assert repair_model(self.folder).problems == ()

    @invariant()
    def they_are_the_same(self) -> None:
        assert Counter(str(each.label) for each in self.twin.examples_) == self.counts[-1]
        for each in (self.model, ContinualClassifier.load(self.folder)):
            assert each.history_ == self.twin.history_
            assert each.examples_ == self.twin.examples_
            assert each.classes_.tolist() == self.twin.classes_.tolist()
            if len(self.twin.classes_):
                assert np.array_equal(each.predict_proba(PROBE), self.twin.predict_proba(PROBE))
                assert each.explain(PROBE[0]).unknown_score == self.twin.explain(PROBE[0]).unknown_score
        found = check_model(self.folder)
        assert (found.problems, found.waiting) == ((), False)

    def teardown(self) -> None:
        if hasattr(self, "place"):
            estimator._now = self.now
            shutil.rmtree(self.place)


Folder.TestCase.settings = settings(
    max_examples=8,
    stateful_step_count=10,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # a failure is not shrunk: that takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.slow
class TestFolder(Folder.TestCase):
    """What hypothesis runs."""
