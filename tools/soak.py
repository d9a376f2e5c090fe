"""Kills a process that changes a model, over and over, and compares what is left with a twin that was never killed.

    python tools/soak.py --minutes 120 --folder /tmp/soak     about two hours; the same command goes on after a stop
    make soak MINUTES=5

A round is a model of one method and some forty calls: learn, correct, rename, remove, move, forget, undo. Each call is made
by a process of its own that is killed with SIGKILL: at a random moment, or (once a round for every kind of call) before each
file that it opens for writing, flushes, renames or removes, in turn. The model must then be whole, and be the twin before or
after the call, bit for bit; a lesson that waits in the journal must be completed to the twin's bits by the next writer. What
was not done is then done, and the round goes on. At the end a table says what was found; the exit code is 1 where anything
was lost.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fscl import ContinualClassifier, configure_process, estimator
from fscl.classifier.store.check import check_model
from fscl.classifier.store.manifest import read_manifest
from fscl.classifier.store.states import Content, read_contents
from fscl.testing import POOL, small_base

N_STEPS = 40
N_CLASSES = 12
N_IN_POOL = 20
OPEN_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.link")
CALLS = ("learn", "correct", "rename", "remove", "move", "forget", "undo")
FAILED, KILLED = 3, -signal.SIGKILL
METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("prototypes", {}),
    ("tsc", {"settings": {"embedding_steps": 1}}),
    ("tsc_tail", {"settings": {"steps": 2, "learning_rate": 5e-3, "views": 2}}),
    ("discriminant", {"keep_states": 3}),
    ("prototypes", {"memory_bytes": 20 * (16 * 16 + 8)}),
)
FOUND = {
    "random": "killed at a random moment",
    "placed": "killed before a file change",
    "ended": "ended before the kill",
    "before": "found: before the call",
    "waiting": "found: waiting, completed to the bit",
    "after": "found: after the call",
    "lost": "**lost**",
    "half": "**half states**",
    "error": "**tracebacks**",
}

Call = Callable[[ContinualClassifier], object]


@dataclass
class Tally:
    """What was found so far: for each kind of call, how often."""

    rounds: int = 0
    seconds: float = 0.0
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {call: Counter() for call in CALLS})
    problems: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "Tally":
        """What an earlier run of the same folder found."""
        if not path.is_file():
            return cls()
        stored = json.loads(path.read_text())
        counts = {call: Counter(stored["counts"].get(call, {})) for call in CALLS}
        return cls(stored["rounds"], stored["seconds"], counts, stored["problems"])

    def write(self, path: Path) -> None:
        """Keep it; in one piece, since this process may be killed, too."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(vars(self)))
        part.replace(path)

    def table(self) -> str:
        """As Markdown."""
        heads = ["call", *FOUND.values()]
        rows = [[call, *(str(counts[what]) for what in FOUND)] for call, counts in self.counts.items()]
        total = sum(self.counts.values(), Counter())
        rows.append(["all", *(str(total[what]) for what in FOUND)])
        lines = ["| " + " | ".join(row) + " |" for row in [heads, ["---"] * len(heads), *rows]]
        return "\n".join([f"{self.rounds} rounds, {self.seconds / 60:.0f} minutes", "", *lines])


def choose(model: ContinualClassifier, n_undoable: int, chance: random.Random) -> tuple[str, Call]:
    """A call that can be made in this state, with everything about it decided."""
    classes = [str(label) for label in model.classes_]
    if len(classes) < 2:
        return "learn", lesson(len(classes), chance)
    labels = [str(each.label) for each in model.examples_]
    plenty = [each for each in model.examples_ if labels.count(str(each.label)) > 1]
    kind = chance.choices(CALLS, weights=(6, 2, 2, 2, 2, 1, 2))[0]
    if kind == "rename":
        old, new = chance.choice(classes), f"name-{chance.randrange(10**9)}"
        return kind, lambda model: model.rename(old, new)
    if kind in ("remove", "move") and plenty:
        example, other = chance.choice(plenty), chance.choice(classes)
        if kind == "remove" or other == example.label:
            return "remove", lambda model: model.remove(example.number)
        return kind, lambda model: model.move(example.number, other)
    if kind == "correct":
        picture, label = picture_of(chance), chance.choice(classes)
        return kind, lambda model: model.correct(picture, label)
    if kind == "forget" and len(classes) > 2:
        gone = chance.choice(classes)
        return kind, lambda model: model.forget(gone)
    if kind == "undo" and n_undoable > 0:
        return kind, lambda model: model.undo()
    return "learn", lesson(chance.randrange(N_CLASSES), chance)


def picture_of(chance: random.Random) -> np.ndarray:
    return POOL.images[chance.randrange(len(POOL.images)), 0].numpy()


def lesson(number: int, chance: random.Random) -> Call:
    pictures = np.stack([picture_of(chance) for _ in range(2)])
    return lambda model: model.partial_fit(pictures, [f"class-{number}"] * 2)


def in_child(folder: Path, call: Call, *, stop_before: int | None, seconds: float | None) -> int:
    """Make a call in a process of its own, which is killed before its n-th file change, or after some seconds.

    The exit code: 0 where it ended, FAILED where it raised, KILLED.
    """
    child = os.fork()
    if child == 0:
        code = FAILED
        try:
            sys.stderr.flush()
            if stop_before is not None:
                kill_before(stop_before)
            call(ContinualClassifier.load(folder))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_before(number: int) -> None:
    """From now on the n-th change of a file, from 0, is not made: the process dies before it."""
    left, fsync = [number], os.fsync

    def changing() -> None:
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in CHANGES or (event == "open" and arguments[2] and arguments[2] & OPEN_TO_WRITE):
            changing()

    def flushed(descriptor: int) -> None:
        changing()
        fsync(descriptor)

    sys.addaudithook(hook)
    os.fsync = flushed


def contents(folder: Path, *, all_states: bool = False) -> list[Content]:
    """What the states of a model hold; the present one alone, or all that can be gone back to."""
    states = read_manifest(folder).states
    found = list(read_contents(folder, states))
    return found if all_states else found[-1:]


def same(one: list[Content], other: list[Content]) -> bool:
    """Whether they are equal, bit for bit."""
    return len(one) == len(other) and all(
        a.details == b.details
        and a.tensors.keys() == b.tensors.keys()
        and all(torch.equal(a.tensors[name], b.tensors[name]) for name in a.tensors)
        for a, b in zip(one, other, strict=True)
    )


def answers(folder: Path) -> list[object]:
    """What a model says of some pictures."""
    model = ContinualClassifier.load(folder)
    if len(model.classes_) == 0:
        return []
    return [(each.ranked, each.unknown_score, each.threshold) for each in model.explain_all(POOL.images[:3, 0].numpy())]


class Round:
    """One model, its twin, and the calls that both are put through."""

    def __init__(self, number: int, place: Path, tally: Tally) -> None:
        method, parameters = METHODS[number % len(METHODS)]
        self.name, self.tally, self.place = f"round {number}, {method}", tally, place
        self.chance = random.Random(f"soak {number}")
        self.victim, self.twin = place / "victim", place / "twin"
        model = ContinualClassifier(small_base(), method, **parameters).save(self.victim)
        del model
        shutil.copytree(self.victim, self.twin)
        self.exhausted: set[str] = set()

    def run(self, until: float) -> bool:
        """Whether the round came to its end in time."""
        for step in range(N_STEPS):
            if time.monotonic() > until:
                return False
            self.step(step, until)
        return True

    def step(self, number: int, until: float = float("inf")) -> None:
        """One call: made in the twin, then killed in the victim, once or at every place, and at last done."""
        estimator._now = lambda: f"2020-01-01T00:00:{number:02}+00:00"  # the same time for both
        twin = ContinualClassifier.load(self.twin)
        kind, call = choose(twin, read_manifest(self.twin).n_undoable, self.chance)
        before = contents(self.twin)
        begin = time.monotonic()
        call(twin)
        duration = time.monotonic() - begin
        after = contents(self.twin)
        if kind not in self.exhausted:
            self.exhausted.add(kind)
            place = 0
            while time.monotonic() < until and self._tried(kind, call, before, after, stop_before=place):
                place += 1
        moment = self.chance.random() * (duration + 0.02)
        copy = Path(shutil.copytree(self.victim, self.place / "copy"))
        self._killed(kind, call, copy, before, after, seconds=moment)
        shutil.rmtree(self.victim)
        copy.rename(self.victim)
        alike = same(contents(self.victim, all_states=True), contents(self.twin, all_states=True))
        if not alike or answers(self.victim) != answers(self.twin):
            self._problem(kind, "lost", "its answers, or a state before, differ from the twin's")
            shutil.rmtree(self.victim)
            shutil.copytree(self.twin, self.victim)

    def _tried(self, kind: str, call: Call, before: list[Content], after: list[Content], *, stop_before: int) -> bool:
        """Whether the call was killed: False once there is no further place to do so."""
        copy = Path(shutil.copytree(self.victim, self.place / "copy"))
        try:
            return self._killed(kind, call, copy, before, after, stop_before=stop_before)
        finally:
            shutil.rmtree(copy)

    def _killed(
        self,
        kind: str,
        call: Call,
        folder: Path,
        before: list[Content],
        after: list[Content],
        *,
        stop_before: int | None = None,
        seconds: float | None = None,
    ) -> bool:
        """Make a call that is killed, look at what is left, and see to it that it is done."""
        counts = self.tally.counts[kind]
        code = in_child(folder, call, stop_before=stop_before, seconds=seconds)
        counts["ended" if code != KILLED else "placed" if seconds is None else "random"] += 1
        if code == FAILED:
            self._problem(kind, "error", "the call itself failed")
        try:
            self._look(kind, call, folder, before, after)
        except Exception:
            self._problem(kind, "error", traceback.format_exc())
            shutil.rmtree(folder)
            shutil.copytree(self.twin, folder)
        return code == KILLED

    def _look(self, kind: str, call: Call, folder: Path, before: list[Content], after: list[Content]) -> None:
        found = check_model(folder)
        if found.problems:
            self._problem(kind, "half", found.problems[0])
        now = contents(folder)
        model = ContinualClassifier.load(folder)
        if same(now, after):
            self.tally.counts[kind]["after"] += 1
        elif not same(now, before):
            self._problem(kind, "lost", "the model is neither that before the call nor that after it")
        elif found.waiting:
            self.tally.counts[kind]["waiting"] += 1
            model.recover()
        else:
            self.tally.counts[kind]["before"] += 1
            call(model)
        if not same(contents(folder), after):
            self._problem(kind, "lost", "the model cannot be brought to where the twin is")
        left = check_model(folder)
        if left.problems or left.waiting:
            self._problem(kind, "half", f"{left.problems}, waiting: {left.waiting}")

    def _problem(self, kind: str, what: str, sentence: str) -> None:
        self.tally.counts[kind][what] += 1
        self.tally.problems.append(f"{self.name}, {kind}: {sentence}")
        print(self.tally.problems[-1], file=sys.stderr)


def soak(folder: Path, minutes: float, *, first_round: int | None = None) -> Tally:
    """Rounds until the time is over; those of an earlier call for the same folder count, too.

    Args:
        folder: where models live while they are killed, and what was found is kept.
        minutes: of this call and those before it.
        first_round: where to begin in a new folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "soak.json"
    tally = Tally.read(path)
    if not path.is_file() and first_round is not None:
        tally.rounds = first_round
    while tally.seconds < 60 * minutes:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(dir=folder) as place:
            Round(tally.rounds, Path(place), tally).run(begin + 60 * minutes - tally.seconds)
        tally.rounds += 1
        tally.seconds += time.monotonic() - begin
        tally.write(path)
    return tally


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "fscl-soak")
    parser.add_argument("--anew", action="store_true", help="forget what earlier runs in the folder found")
    given = parser.parse_args()
    if given.anew:
        (given.folder / "soak.json").unlink(missing_ok=True)
    configure_process()
    tally = soak(given.folder, given.minutes)
    print(tally.table())
    for problem in tally.problems[:20]:
        print(f"- {problem}")
    sys.exit(1 if tally.problems else 0)


if __name__ == "__main__":
    main()
