"""A run directory: everything that was asked, and everything that came out. Reports read nothing else.

run.json             the resolved configuration, versions, seed, hashes of data, base and streams
base.safetensors     the base network that every method started from
streams/000.json …   the sequences of tasks
cells.jsonl          one line for each finished cell (method × sequence), appended as it finishes: result and cost
results.json         at the end: the results alone, in the order of the plan; equal bits for equal runs
"""

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fscl.errors import RunError, StorageError
from fscl.storage import canonical_json, digest, read_json, write_bytes, write_json

MUST_NOT_MIX = ("fscl", "torch")  # results of different versions of these do not belong in one table


@dataclass(frozen=True)
class Cell:
    """One method on one sequence."""

    method: str
    sequence: int

    @property
    def key(self) -> str:
        return f"{self.method}/{self.sequence}"


@dataclass(frozen=True)
class RunRecord:
    """A run directory."""

    folder: Path

    @property
    def network_path(self) -> Path:
        return self.folder / "base.safetensors"

    @property
    def checkpoint_path(self) -> Path:
        return self.folder / "meta-training.safetensors"

    @property
    def cells_path(self) -> Path:
        return self.folder / "cells.jsonl"

    @property
    def results_path(self) -> Path:
        return self.folder / "results.json"

    def stream_path(self, sequence: int) -> Path:
        return self.folder / "streams" / f"{sequence:03d}.json"

    def begin(self, about: Mapping[str, Any]) -> None:
        """Write what this run is, or check that the run begun here is the same."""
        path = self.folder / "run.json"
        if not path.exists():
            write_json(path, "run", about)
            return
        before = read_json(path, "run")
        changed = _first_difference(before, about)
        if changed is not None:
            key, old, new = changed
            raise RunError(
                f"{self.folder} holds a run with {key} = {old!r}, but now it is {new!r}. Use the old value, or another "
                "folder with --out."
            )

    def about(self) -> dict[str, Any]:
        """What `begin` wrote."""
        path = self.folder / "run.json"
        if not path.exists():
            raise RunError(f"{self.folder} is not a run directory: it has no run.json. `fscl run` makes one.")
        return read_json(path, "run")

    def append(self, cell: Cell, result: Mapping[str, Any], cost: Mapping[str, Any]) -> None:
        """Add a finished cell, on disk when this returns."""
        line = canonical_json(
            {"method": cell.method, "sequence": cell.sequence, "digest": digest(result), "result": result, "cost": cost}
        )
        with self.cells_path.open("ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def cells(self) -> dict[Cell, dict[str, Any]]:
        """The finished cells. A last line that is not whole is passed over, so that its cell runs again."""
        path = self.cells_path
        if not path.exists():
            return {}
        whole = path.read_text("utf-8").rpartition("\n")[0]
        found: dict[Cell, dict[str, Any]] = {}
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                entry = json.loads(line)
                sound = entry["digest"] == digest(entry["result"])
                cell = Cell(entry["method"], entry["sequence"])
            except (ValueError, KeyError, TypeError) as error:
                raise StorageError(f"{path}, line {number} is not a finished cell ({error}).") from error
            if not sound:
                raise StorageError(f"{path}, line {number} was altered: its digest does not match its result.")
            found[cell] = entry
        return found

    def drop_torn_line(self) -> None:
        """Cut off a last line that a kill left unfinished. For the process that holds the lock alone."""
        if self.cells_path.exists():
            whole, newline, torn = self.cells_path.read_bytes().rpartition(b"\n")
            if torn:
                write_bytes(self.cells_path, whole + newline)

    def finish(self, plan: list[Cell]) -> None:
        """Write the results alone, in the order of the plan."""
        cells = self.cells()
        entries = [{"method": c.method, "sequence": c.sequence, "result": cells[c]["result"]} for c in plan]
        write_json(self.results_path, "results", {"cells": entries})

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One writer at a time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as file:
            if not _lock(file.fileno()):
                raise RunError(f"another process is running in {self.folder}. Wait for it, or use --out.")
            yield


def _lock(descriptor: int) -> bool:
    """Take the lock until the file is closed or the process dies; False where another process holds it."""
    if sys.platform == "win32":
        import msvcrt

        lock: Callable[[], object] = partial(msvcrt.locking, descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        lock = partial(fcntl.flock, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        lock()
    except OSError:
        return False
    return True


def versions() -> dict[str, str]:
    """What made the results."""
    packages = {name: version(name) for name in ("fscl", "torch", "numpy", "pillow")}
    return {**packages, "python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}


def _first_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    old, new = dict(_flat("", before)), dict(_flat("", now))
    for key in sorted(old.keys() | new.keys()):
        package = key.removeprefix("versions.")
        if key.startswith("versions.") and package not in MUST_NOT_MIX:
            continue
        if old.get(key) != new.get(key):
            return key, old.get(key), new.get(key)
    return None


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    else:
        yield prefix, list(value) if isinstance(value, tuple) else value
