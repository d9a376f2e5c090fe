"""A disk that is full after 0 bytes, after 1, after 2, until the call fits: each kind of call, on a small model."""

import random
import shutil
import time
from functools import partial
from pathlib import Path

from fscl import ContinualClassifier, estimator
from fscl.errors import FsclError
from tools.soaking.breaking import ENDED, FullDisk, in_child
from tools.soaking.models import CALLS, MODEL, Chooser, contents, model_task
from tools.soaking.tally import Tally
from tools.soaking.task import Task, files_in, judge

BATCH = 50  # byte counts of one kind before the next has its turn


class EveryByte:
    """A model of rows, which is small, and a call of each kind."""

    def __init__(self, place: Path, tally: Tally) -> None:
        self.tally, self.place = tally, place
        self.root = place / "victim"
        self.root.mkdir()
        estimator._now = lambda: "2020-01-01T00:00:00+00:00"
        chooser = Chooser(random.Random("every byte"), rows=True)
        model = ContinualClassifier(method="prototypes").partial_fit(chooser._examples(2), ["a", "b"])
        model.save(self.root / MODEL).partial_fit(chooser._examples(2), ["a", "c"])
        self.tasks = [self._task(kind, chooser) for kind in CALLS if kind != "reteach"]

    def _task(self, kind: str, chooser: Chooser) -> Task:
        twin = self.place / "twin"
        shutil.copytree(self.root, twin)
        model = ContinualClassifier.load(twin / MODEL)
        call = chooser._lesson(1) if kind == "learn" else getattr(chooser, f"_{kind}")(model, ["a", "b", "c"], 2)
        before = contents(twin / MODEL)
        call(model)
        task = model_task(kind, "rows", call, before, contents(twin / MODEL))
        shutil.rmtree(twin)
        return task

    def run(self, until: float) -> None:
        """From where the last round was."""
        while time.monotonic() < until:
            for task in self.tasks:
                self._some(task, until)

    def _some(self, task: Task, until: float) -> None:
        name, before = f"bytes {task.kind}", files_in(self.root)
        begin, notes = self.tally.places.get(name, 0), self.place / "notes"
        notes.write_text("0")
        in_child(partial(self._refused, task, range(begin, begin + BATCH), before, notes, until))
        n_refused = int(notes.read_text())
        self.tally.counts[task.kind].update(full=n_refused, before=n_refused)
        self.tally.places[name] = begin + n_refused
        if n_refused == BATCH or time.monotonic() > until:
            return
        breaking, pristine = FullDisk(begin + n_refused), self.place / "pristine"
        _write(pristine, before)
        shutil.rmtree(self.root)
        shutil.copytree(pristine, self.root)
        code = in_child(partial(task.call, self.root), breaking)
        judge(task, self.root, breaking, code, self.tally)
        shutil.rmtree(self.root)
        pristine.rename(self.root)
        self.tally.places[name] += 1
        if code == ENDED:
            self.tally.places[name] = 0
            self.tally.sweeps["bytes"] += 1

    def _refused(self, task: Task, counts: range, before: dict[str, bytes | None], notes: Path, until: float) -> None:
        """In a process of its own: how many byte counts, one after another, were too few and left all as it was."""
        for tried, n_bytes in enumerate(counts, start=1):
            FullDisk(n_bytes).begin()
            try:
                task.call(self.root)
                return
            except FsclError:
                FullDisk(2**62).begin()
            if files_in(self.root) != before or time.monotonic() > until:
                return
            notes.write_text(str(tried))


def _write(root: Path, files: dict[str, bytes | None]) -> None:
    for name, content in {"": None, **files}.items():
        if content is None:
            (root / name).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if content is not None:
            (root / name).write_bytes(content)
