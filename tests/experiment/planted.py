"""Code that runs at the start of every worker process: nothing else reaches into a spawned one."""

import os
from pathlib import Path

import pytest

from tests.conftest import ROOT

KILLS = """
from pathlib import Path
from signal import SIGKILL

import fscl.experiment.executors.executor as executor

compute, notes = executor.compute, Path({notes!r})

def dies_in_the_middle(order, cell, on_task, begun):
    def after_task(tick):
        on_task(tick)
        name = f"{{cell.method}}-{{cell.sequence}}"
        if name in {cells!r} and len(list(notes.glob(name + ".*"))) < {times}:
            (notes / f"{{name}}.{{os.getpid()}}").touch()
            os.kill(os.getpid(), SIGKILL)
    return compute(order, cell, after_task, begun)

executor.compute = dies_in_the_middle
"""

STARTS = """
log = os.open({log!r}, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

import fscl.experiment.executors.executor as executor

compute = executor.compute

def noted(order, cell, on_task, begun):
    os.write(log, b"a cell began\\n")
    {then}
    return compute(order, cell, on_task, begun)

executor.compute = noted
"""

AUDIT = """
log = os.open({log!r}, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
CHANGES = {{"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}}

def audit(event, args):
    if event == "open":
        path, mode, flags = args
        writes = any(letter in (mode or "") for letter in "wax+") or (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes and isinstance(path, str):
            os.write(log, f"{{path}}\\n".encode())
    elif event in CHANGES:
        os.write(log, f"{{args[0]}}\\n".encode())

sys.addaudithook(audit)
os.write(log, b"a worker began\\n")
"""


def plant(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have worker processes run `code` before anything else, for the rest of the test."""
    folder.mkdir(exist_ok=True)
    start = 'import os, sys\nif "spawn_main" in " ".join(sys.orig_argv):\n'
    indented = "".join(f"    {line}" for line in code.splitlines(keepends=True))
    (folder / "sitecustomize.py").write_text(start + indented)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]))


def plant_at_start_of_cells(then: str, log: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a line to `log` at the start of every cell, and then run the statement `then`."""
    plant(STARTS.format(log=str(log), then=then), folder, monkeypatch)


def plant_kills(cells: list[str], times: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Kill (SIGKILL) the process of these cells, "method-sequence", after their first task, so many times each.

    The folder returned has a file for each death.
    """
    notes = folder / "deaths"
    notes.mkdir(parents=True)
    plant(KILLS.format(notes=str(notes), cells=cells, times=times), folder, monkeypatch)
    return notes
