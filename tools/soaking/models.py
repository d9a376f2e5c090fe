"""Calls that change a model, each made in a twin that is never broken, and in a victim that is."""

import random
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fscl import ContinualClassifier, estimator
from fscl.classifier.store.check import check_model
from fscl.classifier.store.folder import ModelFolder
from fscl.classifier.store.manifest import read_manifest
from fscl.classifier.store.states import Content, read_contents
from fscl.testing import POOL, small_base
from tools.soaking.breaking import AtMoment, BeforeChange, FullDisk, NoNewFiles, PowerCut
from tools.soaking.disk import Keep
from tools.soaking.readers import Reader, answer_digest
from tools.soaking.tally import Tally
from tools.soaking.task import Place, Task, Wrong, attempt, attempt_on_copy, next_place

N_STEPS = 40
N_CLASSES = 12
ROW = 3  # numbers in a row
CALLS = ("learn", "correct", "rename", "remove", "move", "forget", "undo", "reteach")
WEIGHTS = (6, 2, 2, 2, 2, 1, 2, 1)
KEEPS: tuple[Keep, ...] = ("nothing", "names", "some")
TRIES = {"change": 8, "power": 2, "names": 1, "bytes": 1}  # to break a call in each way, after it was made in the twin
MODEL, AGAIN = "model", "again"
METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("prototypes", {}),
    ("rows", {}),
    ("tsc", {"settings": {"embedding_steps": 1}}),
    ("tsc_tail", {"settings": {"steps": 2, "learning_rate": 5e-3, "views": 2}}),
    ("discriminant", {"keep_states": 3}),
    ("prototypes", {"memory_bytes": 20 * (16 * 16 + 8)}),
)

Call = Callable[[ContinualClassifier], object]


def contents(folder: Path, *, all_states: bool = False) -> list[Content]:
    """What the states of a model hold; the present one alone, or all that can be gone back to."""
    manifest = read_manifest(folder)
    found = list(read_contents(folder, manifest.present_chain))[len(manifest.ground) :]
    return found if all_states else found[-1:]


def same(one: list[Content], other: list[Content]) -> bool:
    """Whether they are equal, bit for bit."""
    return len(one) == len(other) and all(
        a.details == b.details
        and a.tensors.keys() == b.tensors.keys()
        and all(torch.equal(a.tensors[name], b.tensors[name]) for name in a.tensors)
        for a, b in zip(one, other, strict=True)
    )


def model_task(kind: str, name: str, call: Call, before: list[Content], after: list[Content]) -> Task:
    """A call that changes `model/` in a folder from one content to another."""

    def made(root: Path) -> None:
        call(ContinualClassifier.load(root / MODEL))

    def look(root: Path) -> Place:
        folder = root / MODEL
        found = check_model(folder)
        if found.problems:
            raise Wrong("half", found.problems[0])
        now = contents(folder)
        if same(now, after):
            return "after"
        if not same(now, before):
            raise Wrong("lost", "the model is neither that before the call nor that after it")
        return "waiting" if found.waiting else "before"

    def finish(root: Path, found: Place) -> None:
        if found == "before":
            made(root)
        ModelFolder(root / MODEL).complete()
        left = check_model(root / MODEL)
        if left.problems or left.waiting or left.strays:
            raise Wrong("half", f"{left.problems}, waiting: {left.waiting}, strays: {left.strays}")

    return Task(kind, name, made, look, finish)


def reteach_task(name: str, twin: Path, method: str) -> Task:
    """A new model from what an old one has stored."""
    old = contents(twin / MODEL)

    def made(root: Path) -> None:
        ContinualClassifier.load(root / MODEL).reteach(root / AGAIN, method=method)

    made(twin)
    new = contents(twin / AGAIN, all_states=True)
    shutil.rmtree(twin / AGAIN)

    def look(root: Path) -> Place:
        if not same(contents(root / MODEL), old):
            raise Wrong("lost", "the old model is not what it was")
        if not (root / AGAIN).exists():
            return "before"
        found = check_model(root / AGAIN)
        if found.problems:
            raise Wrong("half", found.problems[0])
        if not same(contents(root / AGAIN, all_states=True), new):
            raise Wrong("lost", "the new model is not that of the twin")
        return "after"

    def finish(root: Path, found: Place) -> None:
        if found == "before":
            made(root)
        left = sorted(path.name for path in root.iterdir() if path.name not in (MODEL, AGAIN))
        if left:
            raise Wrong("half", f"{left[0]} was left")

    return Task("reteach", name, made, look, finish)


@dataclass
class Chooser:
    """Calls that can be made in a state, with everything about them decided."""

    chance: random.Random
    rows: bool

    def call(self, model: ContinualClassifier, n_undoable: int) -> tuple[str, Call]:
        """One of them."""
        classes = [str(label) for label in model.classes_]
        if len(classes) < 2:
            return "learn", self._lesson(len(classes))
        kind = self.chance.choices(CALLS, weights=WEIGHTS)[0]
        made = getattr(self, f"_{kind}", lambda *_: None)(model, classes, n_undoable)
        return (kind, made) if made is not None else ("learn", self._lesson(self.chance.randrange(N_CLASSES)))

    def _rename(self, model: ContinualClassifier, classes: list[str], n_undoable: int) -> Call:
        old, new = self.chance.choice(classes), f"name-{self.chance.randrange(10**9)}"
        return lambda model: model.rename(old, new)

    def _remove(self, model: ContinualClassifier, classes: list[str], n_undoable: int) -> Call | None:
        example = self._spare(model)
        return None if example is None else lambda model: model.remove(example)

    def _move(self, model: ContinualClassifier, classes: list[str], n_undoable: int) -> Call | None:
        example = self._spare(model)
        if example is None:
            return None
        others = [label for label in classes if label != model.examples_[example - 1].label]
        other = self.chance.choice(others)
        return lambda model: model.move(example, other)

    def _correct(self, model: ContinualClassifier, classes: list[str], n_undoable: int) -> Call:
        example, label = self._examples(1)[0], self.chance.choice(classes)
        return lambda model: model.correct(example, label)

    def _forget(self, model: ContinualClassifier, classes: list[str], n_undoable: int) -> Call | None:
        label = self.chance.choice(classes)
        return None if len(classes) < 3 else lambda model: model.forget(label)

    def _undo(self, model: ContinualClassifier, classes: list[str], n_undoable: int) -> Call | None:
        return None if n_undoable == 0 else lambda model: model.undo()

    def _reteach(self, model: ContinualClassifier, classes: list[str], n_undoable: int) -> Call:
        return lambda model: None  # made apart: it makes another model

    def _spare(self, model: ContinualClassifier) -> int | None:
        labels = [str(each.label) for each in model.examples_]
        spare = [each.number for each in model.examples_ if labels.count(str(each.label)) > 1]
        return self.chance.choice(spare) if spare else None

    def _lesson(self, number: int) -> Call:
        examples = self._examples(2)
        return lambda model: model.partial_fit(examples, [f"class-{number}"] * 2)

    def _examples(self, n: int) -> np.ndarray:
        if self.rows:
            return np.array([[self.chance.gauss(0, 1) for _ in range(ROW)] for _ in range(n)])
        return np.stack([POOL.images[self.chance.randrange(len(POOL.images)), 0].numpy() for _ in range(n)])


class Round:
    """One model, its twin, and the calls that both are put through."""

    def __init__(self, number: int, place: Path, tally: Tally) -> None:
        method, parameters = METHODS[number % len(METHODS)]
        self.rows = method == "rows"
        self.method = "prototypes" if self.rows else method
        self.name, self.tally, self.place = " ".join([method, *parameters]), tally, place
        self.chance = random.Random(f"soak {number}")
        self.chooser = Chooser(self.chance, self.rows)
        self.victim, self.twin = place / "victim", place / "twin"
        self.victim.mkdir()
        if self.rows:
            model = ContinualClassifier(method=self.method, **parameters)
            self._at(0)
            model.partial_fit(self.chooser._examples(2), ["class-0", "class-1"]).save(self.victim / MODEL)
        else:
            ContinualClassifier(small_base(), self.method, **parameters).save(self.victim / MODEL)
        shutil.copytree(self.victim, self.twin)
        self.seen = {answer_digest(self.twin / MODEL, self._asked)}

    @property
    def _asked(self) -> np.ndarray:
        return np.eye(ROW) if self.rows else POOL.images[:3, 0].numpy()

    def run(self, until: float) -> None:
        """Calls until the round is over."""
        with Reader(self.victim / MODEL, self._asked) as reader:
            for step in range(N_STEPS):
                if time.monotonic() > until:
                    break
                self.step(step + 1, until)
        reader.compare(self.seen, self.tally)

    def step(self, number: int, until: float = float("inf"), *, tries: Mapping[str, int] = TRIES) -> None:
        """One call: made in the twin, then broken in copies of the victim, and at last killed in the victim and done."""
        self._at(number)
        twin = ContinualClassifier.load(self.twin / MODEL)
        kind, call = self.chooser.call(twin, read_manifest(self.twin / MODEL).n_undoable)
        if kind == "reteach":
            self._break(reteach_task(self.name, self.twin, self.method), until, tries)
            return
        before, begin = contents(self.twin / MODEL), time.monotonic()
        call(twin)
        duration = time.monotonic() - begin
        self.seen.add(answer_digest(self.twin / MODEL, self._asked))
        task = model_task(kind, self.name, call, before, contents(self.twin / MODEL))
        self._break(task, until, tries)
        attempt(task, self.victim, AtMoment(self.chance.random() * (duration + 0.02)), self.tally)
        self._compare(kind)

    def _break(self, task: Task, until: float, tries: Mapping[str, int]) -> None:
        ways: dict[str, Callable[[Path, int], Any]] = {"change": lambda _, number: BeforeChange(number)}
        ways |= {f"power {keep}": partial(_power, keep=keep, seed=self.chance.random()) for keep in KEEPS}
        ways["names"] = lambda _, number: NoNewFiles(number)
        for key, make in ways.items():
            for _ in range(tries[key.split()[0]]):
                if time.monotonic() < until:
                    next_place(task, self.victim, key, make, self.tally)
        for _ in range(tries["bytes"]):
            if time.monotonic() < until:
                n_bytes = int(self.chance.random() ** 2 * 60_000)
                attempt_on_copy(task, self.victim, lambda _, n=n_bytes: FullDisk(n), self.tally)

    def _compare(self, kind: str) -> None:
        """Every state, and what it answers, against the twin's; where they differ, the victim begins anew as the twin."""
        one, other = self.victim / MODEL, self.twin / MODEL
        alike = same(contents(one, all_states=True), contents(other, all_states=True))
        if not alike or answer_digest(one, self._asked) != answer_digest(other, self._asked):
            self.tally.wrong(kind, "lost", f"{self.name}: its answers, or a state before, differ from the twin's")
            shutil.rmtree(self.victim)
            shutil.copytree(self.twin, self.victim)

    def _at(self, number: int) -> None:
        estimator._now = lambda: f"2020-01-01T00:00:{number:02}+00:00"  # the same time for both


def _power(root: Path, number: int, *, keep: Keep, seed: object) -> PowerCut:
    return PowerCut(number, root, keep, seed)
