"""Event files for TensorBoard: a folder for each cell, and one for the mean of each method.

A folder is written aside and renamed, so that one that is there is whole.
"""

import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fscl.errors import MisuseError
from fscl.report.track.cells import Curves, TrackedRun


def to_tensorboard(run: TrackedRun, store: str | None, usual: Path) -> tuple[int, str]:
    """Write the cells that are not there, and every mean anew; how many were new, and the folder."""
    writer = _writer()
    folder = usual if store is None else Path(store)
    place = folder / f"{run.name}-{run.key[:8]}"
    n_new = 0
    for cell in run.cells:
        target = place / _folder(cell.method) / f"sequence-{cell.sequence:03d}"
        if not target.exists():
            _write(writer, target, cell.curves, {**cell.figures}, {"settings": cell.settings})
            n_new += 1
    for method, curves in run.means.items():
        _write(writer, place / _folder(method) / "mean", curves, {}, {"run": run.config, "about": run.about})
    return n_new, str(folder)


def _writer() -> Callable[[str], Any]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MisuseError("--to tensorboard needs its package: python -m pip install tensorboard.") from error
    return SummaryWriter


def _write(
    writer: Callable[[str], Any],
    target: Path,
    curves: Curves,
    figures: dict[str, float],
    texts: dict[str, dict[str, Any]],
) -> None:
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    aside.mkdir(parents=True)
    try:
        events = writer(str(aside))
        last = max((step for points in curves.values() for step in points), default=0)
        for name, points in curves.items():
            for step, value in points.items():
                events.add_scalar(name, value, step)
        for name, value in figures.items():
            events.add_scalar(f"end/{name}", value, last)
        for name, values in texts.items():
            events.add_text(name, "\n".join(f"    {key} = {value}" for key, value in values.items()))
        events.close()
        if target.exists():
            shutil.rmtree(target)
        aside.rename(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _folder(method: str) -> str:
    return method.replace(":", "+")  # of references; no file has a colon everywhere
