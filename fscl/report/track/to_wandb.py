"""Weights & Biases: a project for each configuration by name, and in it a run for each cell, grouped by method.

Nothing leaves the machine unless `WANDB_MODE=online` says so; `wandb sync` uploads later what was written offline.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from fscl.errors import MisuseError, RunError
from fscl.report.track.cells import TrackedCell, TrackedRun
from fscl.storage import read_json, write_json

LEDGER = "exported.json"  # the cells that are whole, because W&B cannot be asked offline


def to_wandb(run: TrackedRun, store: str | None, usual: Path) -> tuple[int, str]:
    """Log the cells that the folder has not; how many were new, and the folder."""
    wandb = _wandb()
    folder = (usual if store is None else Path(store)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    mode = os.environ.get("WANDB_MODE", "offline")
    ledger = folder / LEDGER
    there = set(read_json(ledger, "exported cells")["cells"]) if ledger.exists() else set()
    n_new = 0
    for cell in run.cells:
        if _key(cell, mode) in there:
            continue
        for left in (folder / "wandb").glob(f"*run-*-{cell.key}"):  # by an export that was killed
            shutil.rmtree(left)
        try:
            _log(wandb, run, cell, folder, mode)
        except wandb.errors.Error as error:
            raise RunError(f"W&B refused {cell.name}: {str(error).splitlines()[0]}") from error
        there.add(_key(cell, mode))
        write_json(ledger, "exported cells", {"cells": sorted(there)})
        n_new += 1
    return n_new, str(folder)


def _wandb() -> Any:
    try:
        import wandb
    except ImportError as error:
        raise MisuseError("--to wandb needs its package: python -m pip install wandb.") from error
    return wandb


def _key(cell: TrackedCell, mode: str) -> str:
    return f"{mode} {cell.key}"


def _log(wandb: Any, run: TrackedRun, cell: TrackedCell, folder: Path, mode: str) -> None:
    config = {**run.config, "sequence": cell.sequence, **run.about}
    settings = wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True)
    made = wandb.init(
        project=run.name,
        id=cell.key,
        name=cell.name,
        group=cell.method,
        config={**config, **{f"settings.{path}": value for path, value in cell.settings.items()}},
        dir=str(folder),
        mode=mode,
        resume="allow",
        reinit="create_new",
        settings=settings,
    )
    for step in sorted({step for points in cell.curves.values() for step in points}):
        made.log({name: points[step] for name, points in cell.curves.items() if step in points}, step=step)
    made.summary.update(cell.figures)
    made.finish()
