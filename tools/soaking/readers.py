"""A process that reads a model again and again while others change it and are killed: it sees whole states alone."""

import hashlib
import os
import signal
import tempfile
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from fscl import ContinualClassifier
from fscl.classifier.store.check import check_model
from tools.soaking.tally import Tally

PAUSE = 0.5  # seconds between two looks


def answer_digest(folder: Path, asked: np.ndarray) -> str:
    """A fingerprint of what a model says of its past, and of some examples."""
    model = ContinualClassifier.load(folder)
    said: list[object] = [model.history_, model.examples_]
    if len(model.classes_):
        said += [(each.ranked, each.unknown_score, each.threshold) for each in model.explain_all(asked)]
        said.append(model.about()["classes"])
    return hashlib.sha256(repr(said).encode()).hexdigest()


class Reader:
    """It reads while the block lasts."""

    def __init__(self, folder: Path, asked: np.ndarray) -> None:
        self.folder, self.asked = folder, asked
        self.seen: list[str] = []

    def __enter__(self) -> Self:
        self.notes = tempfile.NamedTemporaryFile("r", suffix=".txt")  # closed when the block ends
        self.process = os.fork()
        if self.process == 0:
            try:
                self._read_for_ever(Path(self.notes.name))
            finally:
                os._exit(1)
        return self

    def _read_for_ever(self, notes: Path) -> None:
        while True:
            try:
                found = answer_digest(self.folder, self.asked)
                problems = check_model(self.folder).problems
                line = f"problem {problems[0]!r}" if problems else found
            except Exception:
                line = f"problem {traceback.format_exc()!r}"
            with notes.open("a") as file:
                file.write(f"{line}\n")
            time.sleep(PAUSE)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        self.seen = [line.rstrip("\n") for line in self.notes if line.endswith("\n")]
        self.notes.close()

    def compare(self, states: set[str], tally: Tally) -> None:
        """Every state that was seen is one of these."""
        for line in self.seen:
            tally.looks["looks"] += 1
            if line not in states:
                tally.looks["wrong"] += 1
                tally.problems.append(f"a reader saw what never was: {line}")
