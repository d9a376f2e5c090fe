"""`train` and `run`: broken, and continued by the same command, they end with the bits of a twin that was never broken."""

import random
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from fscl.errors import StorageError
from fscl.experiment import run as running
from fscl.experiment.base import train_and_test
from fscl.experiment.config import Config, make_config
from fscl.experiment.progress import Reporter
from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from fscl.testing import noise_pool
from tools.soaking.breaking import AtMoment, BeforeChange, Breaking, FullDisk, NoNewFiles, PowerCut, WorkerKilled
from tools.soaking.models import KEEPS
from tools.soaking.tally import Tally
from tools.soaking.task import Place, Task, Wrong, attempt, attempt_on_copy, next_place

QUIET = Reporter(quiet=True)
N_CLASSES = {"train": 8, "val": 6, "test": 8}
TINY: Mapping[str, Any] = {
    "name": "soak",
    "base": {
        "network": {"width": 4},
        "train": {
            "steps": 6, "n_way": 3, "n_shot": 1, "n_query": 2, "meta_batch": 1, "validate_every": 2, "validation_way": 3,
            "validation_episodes": 2, "validation_query": 2, "test_episodes": 2,
        },
    },
    "stream": {"n_tasks": 2, "n_way": 2, "n_shot": 2, "n_query": 3},
    "run": {"methods": ["tsc", "replay", "prototypes"], "reference": "replay", "n_sequences": 2},
    "settings": {"all": {"steps": 4}, "tsc": {"embedding_steps": 2}},
}  # fmt: skip


def write_data(folder: Path) -> None:
    """Pictures of noise, a folder a class."""
    for number, (split, n_classes) in enumerate(N_CLASSES.items()):
        pool = noise_pool(n_classes, 8, seed=number)
        for position, name in enumerate(pool.class_names):
            place = folder / split / f"{split}-{name}"
            place.mkdir(parents=True)
            for drawing, image in enumerate(pool.of_class(position)):
                Image.fromarray(image[0].numpy()).save(place / f"{drawing}.png")


def train_task(config: Config, twin: Path) -> Task:
    """A base that is meta-trained."""

    def made(root: Path) -> None:
        with _said():
            train_and_test(config, root / "base", QUIET)

    made(twin)
    wanted = _network(twin)

    def look(root: Path) -> Place:
        if not (root / "base" / "network.safetensors").exists():
            return "before"
        if _network(root) != wanted:
            raise Wrong("lost", "the network is not that of the twin")
        return "after"

    return Task("train", "protonet", made, look, lambda root, found: made(root) if found == "before" else None)


def run_task(config: Config, twin: Path, **how: Any) -> Task:
    """Methods on sequences of tasks."""

    def made(root: Path) -> None:
        running.SAVE_EVERY = 0.0  # a cell that is cut short goes on from its last task
        with _said():
            run_experiment(config, root / "run", reporter=QUIET, **how)

    if not twin.joinpath("run").exists():
        made(twin)
    record = RunRecord(twin / "run")
    wanted, cells = record.results_path.read_bytes(), record.cells()

    def look(root: Path) -> Place:
        found = RunRecord(root / "run")
        if found.results_path.exists():
            if found.results_path.read_bytes() != wanted:
                raise Wrong("lost", "its results are not those of the twin")
            return "after"
        done = found.cells() if found.about_path.exists() else {}
        if any(entry["result"] != cells[cell]["result"] for cell, entry in done.items()):
            raise Wrong("lost", "the result of a cell is not that of the twin")
        return "before"

    def finish(root: Path, found: Place) -> None:
        if found == "before":
            kept = RunRecord(root / "run")
            before = set(kept.cells()) if kept.about_path.exists() else set()
            made(root)
            if not before <= set(kept.cells()):
                raise Wrong("lost", "a finished cell is gone")

    return Task("run", str(how.get("executor", "workers")), made, look, finish)


class Runs:
    """A training and a run, put through everything."""

    def __init__(self, number: int, place: Path, tally: Tally) -> None:
        self.tally, self.place, self.chance = tally, place, random.Random(f"runs {number}")
        write_data(place / "data")
        data = {"name": "folder", "path": str(place / "data"), "image_size": 16}
        self.config = make_config({**TINY, "data": data})
        self.twin, self.victim = place / "twin", place / "victim"
        self.twin.mkdir()
        self.victim.mkdir()

    def run(self, until: float) -> None:
        """Until the round is over."""
        begin = time.monotonic()
        training = train_task(self.config, self.twin)
        seconds = {"train": time.monotonic() - begin}
        begin = time.monotonic()
        alone = run_task(self.config, self.twin, executor="in-process")
        seconds["run"] = time.monotonic() - begin
        crew = run_task(self.config, self.twin, workers=2)
        for _ in range(2):
            attempt_on_copy(
                crew, self.victim, lambda _: WorkerKilled(8 * self.chance.random(), self.chance), self.tally
            )
        while time.monotonic() < until:
            for task in (training, alone):
                for _ in range(8):
                    self._one(task, "change", lambda _, number: BeforeChange(number), until)
                keep = self.chance.choice(KEEPS)
                cut = partial(_power, keep=keep, seed=self.chance.random())
                for _ in range(2):
                    self._one(task, f"power {keep}", cut, until)
                self._one(task, "names", lambda _, number: NoNewFiles(number), until)
                self._many(task, lambda _: FullDisk(int(self.chance.random() ** 2 * 100_000)), until)
                self._killed_again_and_again(task, seconds[task.kind], until)
            self._killed_again_and_again(crew, 8, until)

    def _one(self, task: Task, key: str, make: Callable[[Path, int], Breaking], until: float) -> None:
        if time.monotonic() < until:
            next_place(task, self.victim, key, make, self.tally)

    def _many(self, task: Task, make: Callable[[Path], Breaking], until: float) -> None:
        if time.monotonic() < until:
            attempt_on_copy(task, self.victim, make, self.tally)

    def _killed_again_and_again(self, task: Task, seconds: float, until: float) -> None:
        """Kills of one run, each of the one that went on; only then it may end."""
        root = self.place / "again"
        root.mkdir()
        unfinished = Task(task.kind, task.name, task.call, task.look, lambda *_: None)
        for _ in range(3):
            if time.monotonic() < until:
                _attempt_unfinished(unfinished, root, AtMoment(self.chance.random() * seconds), self.tally)
        attempt(task, root, AtMoment(self.chance.random() * seconds), self.tally)
        shutil.rmtree(root)


def _attempt_unfinished(task: Task, root: Path, breaking: Breaking, tally: Tally) -> None:
    """A kill after which nobody brings the work to its end."""
    looked = Task(task.kind, task.name, task.call, lambda folder: (task.look(folder), "after")[1], task.finish, False)
    attempt(looked, root, breaking, tally)


def _power(root: Path, number: int, *, keep: Any, seed: object) -> PowerCut:
    return PowerCut(number, root, keep, seed)


def _network(root: Path) -> bytes:
    return (root / "base" / "network.safetensors").read_bytes()


class _said:  # noqa: N801 # used as a function
    """An error of the system is one sentence at the command line (`fscl.cli.main`); here it is one of ours."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, OSError):
            raise StorageError(str(error)) from error
