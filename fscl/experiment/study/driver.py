"""Carry out a study: train its bases, then make its runs, by any executor, into one directory.

bases/NAME/   base.json (what it is trained from), meta-training.safetensors (the checkpoint), network.safetensors
runs/NAME/    run directories like any others
index.html    links the reports, and compares across them

A study that was killed is continued by the same call: what is finished is not computed again, the rest has the same bits.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fscl.data.catalogue import recorded
from fscl.device import find_device
from fscl.errors import FsclError, Interrupted, OtherRun, RunError
from fscl.experiment.base import load_side
from fscl.experiment.config import Config
from fscl.experiment.executors import find_executor
from fscl.experiment.executors.executor import Executor
from fscl.experiment.plan import Cell, Finished, Tick
from fscl.experiment.progress import Reporter
from fscl.experiment.record import RunRecord, first_difference
from fscl.experiment.run import SAVE_EVERY, run_experiment
from fscl.experiment.study.spec import Study, StudyBase, StudyRun
from fscl.experiment.training import CHECKPOINT, NETWORK, Trained, Training, make_training, training_order
from fscl.experiment.versions import versions
from fscl.experiment.writing import disk_errors
from fscl.meta.shipped import shipped_bases
from fscl.process import configure_process
from fscl.storage import read_json, write_bytes, write_json

OnRun = Callable[[RunRecord], None]
"""Called with the directory of a run that is finished."""


@dataclass(frozen=True)
class StudyRecord:
    """The directory of a study."""

    folder: Path

    def base_folder(self, name: str) -> Path:
        return self.folder / "bases" / name

    def network_path(self, name: str) -> Path:
        return self.base_folder(name) / NETWORK

    def run(self, name: str) -> RunRecord:
        return RunRecord(self.folder / "runs" / name)

    def locked(self) -> AbstractContextManager[None]:
        """One writer at a time."""
        return RunRecord(self.folder).locked()

    def begin_base(self, base: StudyBase, about: dict[str, Any]) -> None:
        """Write what a base is trained from, or check that the one begun here is the same."""
        path = self.base_folder(base.name) / "base.json"
        if not path.exists():
            write_json(path, "base of a study", about)
        changed = first_difference(read_json(path, "base of a study"), about)
        if changed is not None:
            key, old, new = changed
            raise OtherRun(
                f"{path.parent} holds a base with {key} = {old!r}, but now it is {new!r}. Use the old value, another name, "
                "or another folder with --out."
            )


def run_study(
    study: Study,
    folder: Path,
    *,
    workers: int | None = None,
    executor: str | Executor = "local",
    reporter: Reporter | None = None,
    on_run: OnRun | None = None,
    save_every: float = SAVE_EVERY,
) -> StudyRecord:
    """Do what is not yet done of a study, and return its record.

    What fails leaves the rest to be done; the error comes at the end.

    Args:
        workers: how many cells, or bases, are computed at a time; without it, the executor decides.
        executor: where, as for a run.
        on_run: called after each run.
        save_every: seconds of training that a kill may cost, or the steps between two validations if these take longer.
    """
    configure_process()
    for config in (*(base.config for base in study.bases), *(run.config for run in study.runs)):
        find_device(config.device)  # one that is not here is refused before anything is written
    chosen = find_executor(executor) if isinstance(executor, str) else executor
    reporter, record = reporter or Reporter(quiet=True), StudyRecord(folder)
    with record.locked():
        failures = _Bases(study, record, chosen, workers, reporter, save_every).train()
        for run in study.runs:
            if run.after in failures:
                reporter.warn(f"{run.name} needs the base {run.after}, which could not be trained.")
                continue
            try:
                found = run_experiment(
                    _with_base(run, record),
                    record.run(run.name).folder,
                    workers=workers,
                    executor=chosen,
                    reporter=reporter,
                )
            except Interrupted:
                raise
            except FsclError as error:
                failures[run.name] = error
                reporter.warn(f"{run.name}: {error}")
                continue
            if on_run is not None:
                on_run(found)
    if failures:
        name, failure = next(iter(failures.items()))
        raise RunError(
            f"{len(failures)} parts of the study {study.name} failed; the others are done, and the same command goes on. "
            f"The first, {name}, said: {failure}"
        )
    return record


def _with_base(run: StudyRun, record: StudyRecord) -> Config:
    """The configuration of a run with the file of its base."""
    if run.after is None:
        return run.config
    base = run.config.base.model_copy(update={"use": str(record.network_path(run.after))})
    return run.config.model_copy(update={"base": base})


class _Bases:
    """The bases of a study, which are trained as many at a time as can be."""

    def __init__(
        self,
        study: Study,
        record: StudyRecord,
        executor: Executor,
        workers: int | None,
        reporter: Reporter,
        save_every: float,
    ) -> None:
        self._record, self._executor, self._workers, self._reporter = record, executor, workers, reporter
        self._save_every = save_every
        self._left = list(study.bases)
        self._failures: dict[str, FsclError] = {}

    def train(self) -> dict[str, FsclError]:
        """Train those that are not; why some could not be, by name."""
        while self._left:
            lost = [base for base in self._left if base.after in self._failures]
            for base in lost:
                self._failures[base.name] = RunError(f"{base.after}, which it starts from, could not be trained.")
            waiting = {base.name for base in self._left if base not in lost}
            ready = [base for base in self._left if base.name in waiting and base.after not in waiting]
            self._train_together(ready)
            self._left = [base for base in self._left if base.name in waiting and base not in ready]
        return self._failures

    def _train_together(self, bases: list[StudyBase]) -> None:
        trainings = {}
        for base in bases:
            training = self._training(base)
            self._record.begin_base(base, _about(base.config, training))
            if not self._record.network_path(base.name).exists():
                trainings[base.name] = training
        if not trainings:
            return
        order = training_order(trainings, self._save_every)
        cells: list[Cell] = [Trained(name, 0) for name in trainings]
        workers = min(self._executor.workers_for(order.config, self._workers), len(cells))
        n_steps = sum(training.config.base.train.steps for training in trainings.values())
        with self._reporter.stage(f"Training {len(cells)} bases, {workers} at a time") as stage:
            done = dict.fromkeys(cells, 0)

            def tell(cell: Cell, tick: Tick) -> None:
                if tick.begun is not None:
                    with disk_errors(self._record.folder):
                        write_bytes(self._checkpoint(cell), tick.begun)
                done[cell] = tick.n_done
                stage.update(sum(done.values()), n_steps, f"{cell.method}: step {tick.n_done}")

            try:
                outcomes = self._executor.compute(order, cells, workers, tell, self._begun, self._reporter.warn)
                with closing(outcomes):
                    for cell, outcome in outcomes:
                        self._note(cell, outcome)
            except KeyboardInterrupt as error:
                raise Interrupted(
                    "stopped; the newest checkpoints are kept, and the same command continues."
                ) from error

    def _training(self, base: StudyBase) -> Training:
        splits = load_side(base.config.base_side, self._reporter)
        start = base.config.base.start
        if start is None or start in shipped_bases():
            content = None
        else:
            path = Path(start) if base.after is None else self._record.network_path(base.after)
            try:
                content = path.read_bytes()
            except OSError as error:
                raise RunError(f"cannot read {path}, which {base.name} starts from: {error.strerror}.") from error
        return make_training(base.config, base.processes, content, splits)

    def _checkpoint(self, cell: Cell) -> Path:
        return self._record.base_folder(cell.method) / CHECKPOINT

    def _begun(self, cell: Cell) -> bytes | None:
        path = self._checkpoint(cell)
        return path.read_bytes() if path.exists() else None

    def _note(self, cell: Cell, outcome: Finished | FsclError) -> None:
        if isinstance(outcome, Interrupted):  # by Ctrl-C, which a training hears itself
            raise KeyboardInterrupt
        if not isinstance(outcome, Finished):
            self._failures[cell.method] = outcome
            self._reporter.warn(f"{cell}: {outcome}")
            return
        with disk_errors(self._record.folder):
            for name, content in outcome.files.items():
                write_bytes(self._record.base_folder(cell.method) / name, content)
        self._checkpoint(cell).unlink(missing_ok=True)
        self._reporter.say(f"{cell.method}: {outcome.result['summary']}")


def _about(config: Config, training: Training) -> dict[str, Any]:
    """All that a base depends on."""
    resolved = config.resolved()
    return {
        **{key: resolved[key] for key in ("seed", "device", "autocast", "base")},
        "data": {**recorded(config.base_side), "train": training.train, "validation": training.validation},
        "versions": versions(config.device),
    }
