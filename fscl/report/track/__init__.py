"""A run directory as trackers want it. A run knows nothing of trackers: what it has finished is exported afterwards.

A finished cell never changes, so a tracker gets each of them once, under a name that is the same every time. A kill in the
middle of an export leaves a part that the next export replaces.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from fscl.errors import RunError, unknown_name
from fscl.experiment.record import RunRecord
from fscl.report.results import read_results
from fscl.report.track.cells import TrackedRun, tracked_run
from fscl.report.track.to_mlflow import to_mlflow
from fscl.report.track.to_tensorboard import to_tensorboard
from fscl.report.track.to_wandb import to_wandb

Tracker = Callable[[TrackedRun, str | None, Path], tuple[int, str]]
"""Called with a run, the store that was asked for, and the folder to use without one; how many cells were new, and where."""

TRACKERS: dict[str, Tracker] = {"tensorboard": to_tensorboard, "mlflow": to_mlflow, "wandb": to_wandb}


@dataclass(frozen=True)
class Tracked:
    """What an export did.

    Attributes:
        n_new: cells that the tracker did not have.
        n_cells: finished cells of the run.
        place: where they are.
    """

    n_new: int
    n_cells: int
    place: str


def track_run(record: RunRecord, tracker: str, store: str | None = None) -> Tracked:
    """Export what a run has finished, and a tracker has not.

    Args:
        tracker: "tensorboard", "mlflow" or "wandb".
        store: a folder; for mlflow also the address of a server or database. Without it, a folder in the run directory.
    """
    if tracker not in TRACKERS:
        raise unknown_name("tracker", tracker, TRACKERS)
    run = tracked_run(read_results(record))
    folder = record.folder / "tracked"
    folder.mkdir(exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            n_new, place = TRACKERS[tracker](run, store, folder / tracker)
    except Timeout as error:
        raise RunError(f"another process exports {record.folder}; wait for it.") from error
    return Tracked(n_new, len(run.cells), place)
