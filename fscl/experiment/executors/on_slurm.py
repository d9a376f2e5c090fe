"""Cells as one job array of SLURM, by submitit. Jobs and driver meet in a folder that all machines share.

A job leaves there how far it is and what it could go on from; the driver reads that, and alone writes the run directory.
A job that SLURM stops (preempted, or out of time) is queued again by submitit and goes on; one that dies is sent again.
"""

import math
import os
import pickle
import platform
import secrets
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fscl.errors import MisuseError, RunError
from fscl.experiment.config import Config
from fscl.experiment.executors.executor import Begun, OnTick, Outcome, Tell, attempt, sendable
from fscl.experiment.plan import Cell, Finished, Order, Tick
from fscl.storage import cache_folder, write_bytes

MOST_IN_ARRAY = 1000
MOST_JOBS = 256  # of an array at a time, unless --workers says otherwise
SECONDS_BETWEEN_LOOKS = {"slurm": 5.0, "local": 0.2}
SECONDS_BETWEEN_TICKS = 5.0


class SlurmArray:
    """The jobs of a SLURM cluster.

    Args:
        folder: that all machines share; without it, one in the cache folder (`FSCL_CACHE`).
        cluster: "local" runs the jobs as processes of this machine, to try things.
    """

    def __init__(self, folder: Path | None = None, *, cluster: Literal["slurm", "local"] = "slurm") -> None:
        self._folder, self._cluster = folder, cluster

    def workers_for(self, config: Config, workers: int | None) -> int:
        """By default as many as SLURM lets run, up to a limit."""
        _import_submitit()
        if self._cluster == "slurm" and shutil.which("sbatch") is None:
            raise MisuseError(
                "--executor slurm sends jobs with sbatch, which is not here. Start the command on a machine that can submit "
                "jobs, or take --executor local."
            )
        return workers or MOST_JOBS

    def compute(
        self, order: Order, cells: Sequence[Cell], workers: int, on_tick: OnTick, begun: Begun, tell: Tell
    ) -> Generator[tuple[Cell, Outcome], None, None]:
        """Every cell with its outcome, as they finish."""
        folder = (self._folder or cache_folder() / "slurm") / secrets.token_hex(6)
        write_bytes(folder / "order.pickle", pickle.dumps(order))
        for cell in cells:
            if (start := begun(cell)) is not None:
                write_bytes(_begun_path(folder, cell), start)
        jobs = _Jobs(order, folder, self._cluster, workers)
        tell(f"{len(cells)} jobs are sent to SLURM; they meet in {folder}.")
        try:
            jobs.send(cells)
            yield from jobs.outcomes(on_tick)
        finally:
            jobs.cancel()
        if not jobs.died:
            shutil.rmtree(folder, ignore_errors=True)


class _Jobs:
    """The driver's side of the jobs."""

    def __init__(self, order: Order, folder: Path, cluster: str, workers: int) -> None:
        resources, device = order.config.run.resources, order.config.device
        self._folder, self._retries = folder, resources.retries
        self._pause = SECONDS_BETWEEN_LOOKS[cluster]
        self._executor = _import_submitit().AutoExecutor(
            folder=folder / "jobs", cluster=cluster, slurm_max_num_timeout=1000
        )
        try:
            self._executor.update_parameters(
                name=f"fscl-{order.config.name}",
                timeout_min=math.ceil(60 * resources.hours),
                mem_gb=resources.memory_gb,
                cpus_per_task=math.ceil(resources.num_cpus),
                gpus_per_node=math.ceil(resources.gpus_on(device)),
                tasks_per_node=1,
                slurm_array_parallelism=workers,
                slurm_additional_parameters=dict(resources.slurm),
            )
        except (ValueError, NameError, TypeError) as error:
            raise MisuseError(f"submitit refuses run.resources: {' '.join(str(error).split())[:300]}") from error
        self._running: dict[Any, Cell] = {}
        self._seen: dict[Cell, Tick] = {}
        self.died: Counter[Cell] = Counter()

    def send(self, cells: Sequence[Cell]) -> None:
        """Submit cells as one array; more of them where there are more cells than an array of SLURM takes by default."""
        parts = [cells[first : first + MOST_IN_ARRAY] for first in range(0, len(cells), MOST_IN_ARRAY)]
        try:
            jobs = [
                job
                for part in parts
                for job in self._executor.submit_array([CellJob(str(self._folder), cell) for cell in part])
            ]
        except Exception as error:  # sbatch says in its own ways what it does not like
            last = str(error).strip().splitlines()[-1:]
            raise RunError(
                f"SLURM does not take the jobs: {' '.join(last)}. run.resources has the options of sbatch."
            ) from error
        self._running |= dict(zip(jobs, cells, strict=True))

    def outcomes(self, on_tick: OnTick) -> Generator[tuple[Cell, Outcome], None, None]:
        while self._running:
            done = [job for job in self._running if job.done()]
            for job, cell in self._running.items():
                tick = _tick_of(self._folder, cell) if job not in done else None
                if tick is not None and tick != self._seen.get(cell):
                    self._seen[cell] = tick
                    saved = _begun_path(self._folder, cell)
                    on_tick(cell, replace(tick, begun=saved.read_bytes()) if saved.exists() else tick)
            for job in done:
                cell = self._running.pop(job)
                outcome = self._outcome(job, cell)
                if outcome is not None:
                    yield cell, outcome
            if self._running and not done:
                time.sleep(self._pause)

    def _outcome(self, job: Any, cell: Cell) -> Outcome | None:
        """What a job gave; None if it died and is sent again."""
        submitit = _import_submitit()
        try:
            answer = job.result()
        except submitit.core.utils.UncompletedJobError as error:
            self.died[cell] += 1
            if self.died[cell] <= self._retries:
                self.send([cell])
                return None
            log = f"{job.paths.stderr} has what it wrote"
            return RunError(f"{cell} ended its job {self.died[cell]} times ({_first_line(error)}); {log}.")
        if isinstance(answer, _Fault):
            raise answer.error
        found: Outcome = answer
        return found

    def cancel(self) -> None:
        """Stop what runs or waits."""
        for job in self._running:
            with suppress(Exception):  # it may have ended, and SLURM may not answer
                job.cancel(check=False)
        self._running.clear()


@dataclass(frozen=True)
class _Fault:
    """An error that nobody expected."""

    error: Exception


@dataclass(frozen=True)
class CellJob:
    """What a job does: one cell of the order that is in the folder."""

    folder: str
    cell: Cell

    def __call__(self) -> Outcome | _Fault:
        folder, node = Path(self.folder), os.environ.get("SLURMD_NODENAME") or platform.node()
        saved = _begun_path(folder, self.cell)
        try:
            # written by the driver, of the same user, where submitit keeps its own pickles
            order: Order = pickle.loads((folder / "order.pickle").read_bytes())  # nosec B301
            ticks = _Ticks(folder, self.cell)
            outcome = attempt(order, self.cell, ticks.tell, saved.read_bytes() if saved.exists() else None)
        except Exception as error:  # the driver must hear of it
            error.add_note(f"On node {node}:\n{traceback.format_exc()}")
            return _Fault(sendable(error))
        if isinstance(outcome, Finished):
            return replace(outcome, cost={**outcome.cost, "node": node})
        return RunError(f"on node {node}: {outcome}")

    def checkpoint(self, *_: Any) -> Any:
        """Called by submitit when SLURM stops the job: the same again, from what is saved."""
        return _import_submitit().helpers.DelayedSubmission(self)


class _Ticks:
    """Leaves in the folder how far a cell is, and not too often."""

    def __init__(self, folder: Path, cell: Cell) -> None:
        self._folder, self._cell, self._last = folder, cell, 0.0

    def tell(self, tick: Tick) -> None:
        if tick.begun is not None:
            write_bytes(_begun_path(self._folder, self._cell), tick.begun)
        if tick.begun is not None or time.monotonic() - self._last >= SECONDS_BETWEEN_TICKS:
            self._last = time.monotonic()
            write_bytes(_tick_path(self._folder, self._cell), pickle.dumps(replace(tick, begun=None)))


def _tick_path(folder: Path, cell: Cell) -> Path:
    return folder / "ticks" / f"{cell.method}-{cell.sequence}.pickle".replace(":", "+")


def _begun_path(folder: Path, cell: Cell) -> Path:
    return folder / "begun" / f"{cell.method}-{cell.sequence}.safetensors".replace(":", "+")


def _tick_of(folder: Path, cell: Cell) -> Tick | None:
    try:
        tick: Tick = pickle.loads(_tick_path(folder, cell).read_bytes())  # by our own job  # nosec B301
    except FileNotFoundError:
        return None
    return tick


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0][:200]


def _import_submitit() -> Any:
    try:
        import submitit
    except ImportError as error:
        raise MisuseError(
            "--executor slurm needs the package submitit: python -m pip install 'fscl[slurm]', here and on every node."
        ) from error
    return submitit
