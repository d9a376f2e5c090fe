"""Meta-training as work for executors: a base is trained wherever one has room, and its checkpoints come back as bytes.

Who computes it writes into a folder of its own that is gone afterwards. The driver keeps the checkpoints, so that a training
whose process or machine dies goes on elsewhere, with the same bits at the end.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fscl.data.catalogue import DataSpec
from fscl.data.pool import Splits
from fscl.errors import Divergence, Interrupted, RunError, StorageError
from fscl.experiment.base import train_and_test
from fscl.experiment.cell import load_here, refuse_other_data, refuse_other_versions
from fscl.experiment.config import Config
from fscl.experiment.plan import Cell, Finished, Order, Tick
from fscl.experiment.progress import Reporter, Stage
from fscl.experiment.versions import versions
from fscl.nets.sources import network_from_bytes
from fscl.process import configure_process
from fscl.storage import read_json, tensors_from_bytes, write_bytes, write_json

CHECKPOINT, NETWORK, START = "meta-training.safetensors", "network.safetensors", "start.safetensors"
ASKED, FAILED = "asked.json", "failed.json"
SECONDS_BETWEEN_LOOKS = 0.2  # at the checkpoint of a team


class Trained(Cell):
    """The training of one base, as work for an executor; `method` is the name of the base."""

    def __str__(self) -> str:
        return f"the training of {self.method}"


@dataclass(frozen=True)
class Training:
    """What a base is trained from.

    Attributes:
        processes: how many share the work, under torchrun.
        start: the file of the network that training starts from, where `base.start` names one.
        train, validation: content hashes of the classes that it is trained and chosen on.
    """

    config: Config
    processes: int
    train: str
    validation: str
    start: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class TrainingOrder(Order):
    """The bases of an order, by name; its configuration is that of one of them."""

    trainings: Mapping[str, Training] = field(default_factory=dict)

    @property
    def pools(self) -> list[tuple[DataSpec, str, str]]:
        """The data that who trains must have: a set, a side of it, and the content hash of that side."""
        return [
            (training.config.base_side, side, content_hash)
            for training in self.trainings.values()
            for side, content_hash in (("train", training.train), ("validation", training.validation))
        ]


def make_training(config: Config, processes: int, start: bytes | None, splits: Splits) -> Training:
    """A training of these classes; `start` is the file that `base.start` stands for, if it is none of the package."""
    return Training(config, processes, splits.train.content_hash, splits.validation.content_hash, start)


def training_order(trainings: Mapping[str, Training], save_every: float) -> TrainingOrder:
    """What an executor needs to train these bases, each of them as one cell."""
    first = next(iter(trainings.values()))
    most = max(training.processes for training in trainings.values())
    resources = first.config.run.resources
    resources = resources.model_copy(update={"num_cpus": max(resources.num_cpus, most)})
    config = first.config.model_copy(update={"run": first.config.run.model_copy(update={"resources": resources})})
    return TrainingOrder(
        config=config,
        base=b"",
        streams=(),
        data_hash=first.train,
        base_data_hash=None,
        versions=versions(config.device),
        save_every=save_every,
        compute=train,
        trainings=trainings,
    )


def train(order: Order, cell: Cell, on_part: Callable[[Tick], None], begun: bytes | None) -> Finished:
    """Meta-train and test the base of a cell; ticks bring its checkpoints."""
    assert isinstance(order, TrainingOrder)  # `training_order` makes no other with this function
    configure_process()
    refuse_other_versions(order)
    training = order.trainings[cell.method]
    splits = load_here(training.config.base_side)
    refuse_other_data(splits.train, training.train)
    refuse_other_data(splits.validation, training.validation)
    began = time.monotonic()
    with TemporaryDirectory(prefix="fscl-training-") as name:
        folder = Path(name)
        if begun is not None and _is_whole(begun):
            write_bytes(folder / CHECKPOINT, begun)
        watch = _Watch(folder / CHECKPOINT, order.save_every, training.config.base.train.steps, on_part)
        try:
            _train_here(training, folder, watch) if training.processes == 1 else _train_in_team(training, folder, watch)
        except Interrupted:
            watch.look(at_once=True)  # what it saved as it stopped
            raise
        content, about = _named_start(training, (folder / NETWORK).read_bytes(), folder)
    result = {key: about[key] for key in ("summary", "best_step", "validation_accuracy", "test")}
    return Finished(result, {"seconds": time.monotonic() - began}, {NETWORK: content})


def _is_whole(checkpoint: bytes) -> bool:
    try:
        tensors_from_bytes(Path(CHECKPOINT), "meta-training checkpoint", checkpoint)
    except StorageError:
        return False
    return True


def _placed(training: Training, folder: Path) -> Config:
    """The configuration with the network to start from in a file of this machine."""
    if training.start is None:
        return training.config
    write_bytes(folder / START, training.start)
    base = training.config.base.model_copy(update={"start": str(folder / START)})
    return training.config.model_copy(update={"base": base})


def _named_start(training: Training, content: bytes, folder: Path) -> tuple[bytes, dict[str, Any]]:
    """The file of the network and what it says of itself, which names no folder of this machine."""
    network, about = network_from_bytes(Path(NETWORK), content)
    if training.start is None:
        return content, about
    about = {**about, "start": training.config.base.start}
    network.save(folder / NETWORK, about)
    return (folder / NETWORK).read_bytes(), about


def _train_here(training: Training, folder: Path, watch: "_Watch") -> None:
    train_and_test(_placed(training, folder), folder, _Watching(watch))


def _train_in_team(training: Training, folder: Path, watch: "_Watch") -> None:
    """Under torchrun, in processes that end when this one does: they notice that their input ends."""
    write_json(folder / ASKED, "training", {"config": _placed(training, folder).resolved()})
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(training.processes)]
    command = [sys.executable, *launcher, "-m", "fscl.experiment.team_member", str(folder)]
    with (folder / "log").open("wb") as log:
        team = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        try:
            while team.poll() is None:
                watch.look()
                time.sleep(SECONDS_BETWEEN_LOOKS)
        finally:
            assert team.stdin is not None
            team.stdin.close()
            team.wait()
    watch.look()
    if team.returncode == 0:
        return
    if (folder / FAILED).exists():
        failed = read_json(folder / FAILED, "failure")
        raise (Divergence if failed["error"] == "Divergence" else RunError)(failed["message"])
    last = (folder / "log").read_text("utf-8", errors="replace").strip().splitlines()[-1:]
    raise RunError(
        f"the {training.processes} processes of a training ended with exit code {team.returncode}: {' '.join(last)}"
    )


class _Watch:
    """Tells how far a training is, and brings its newest checkpoint, not more often than asked for."""

    def __init__(self, path: Path, every: float, steps: int, tell: Callable[[Tick], None]) -> None:
        self._path, self._every, self._steps, self._tell = path, every, steps, tell
        self._seen: tuple[int, int] | None = None
        self._sent = time.monotonic()
        self._told = -1
        self._accuracy = 0.0

    def look(self, step: int | None = None, *, at_once: bool = False) -> None:
        """See whether there is a new checkpoint; `step`: how many are done, where that is known."""
        begun, is_due = None, at_once or time.monotonic() - self._sent >= self._every
        if is_due and self._path.exists() and self._is_new():
            begun = self._path.read_bytes()
            _, details = tensors_from_bytes(self._path, "meta-training checkpoint", begun)
            step = max(step or 0, int(details["step"]))
            self._accuracy, self._sent = max(float(details["best_accuracy"]), 0.0), time.monotonic()
        if begun is not None or (step is not None and step > self._told):
            self._told = step or 0
            self._tell(Tick(self._told, self._accuracy, begun))

    def _is_new(self) -> bool:
        status = self._path.stat()
        now = (status.st_mtime_ns, status.st_ino)
        if now == self._seen:
            return False
        self._seen = now
        return True


class _Watching(Reporter):
    """Looks at the checkpoint after each step, instead of showing anything."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__(quiet=True)
        self._watch = watch

    @contextmanager
    def stage(self, title: str) -> Iterator[Stage]:
        """A stage that shows nothing; that of meta-training is watched."""
        with super().stage(title) as stage:
            yield _WatchedStage(stage, self._watch) if title.startswith("Meta-training") else stage


class _WatchedStage(Stage):
    def __init__(self, stage: Stage, watch: _Watch) -> None:
        self._stage, self._watch = stage, watch

    def update(self, done: float, total: float, note: str = "") -> None:
        """After a step."""
        self._watch.look(int(done))
