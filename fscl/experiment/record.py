"""A run directory: everything that was asked, and everything that came out. Reports read nothing else.

run.json             the resolved configuration, versions, seed, hashes of data, base and streams
base.safetensors     the base network that every method started from
streams/000.json …   the sequences of tasks
cells.jsonl          one line for each finished cell (method × sequence), appended as it finishes: result and cost
confused/NAME.json   for each cell: which classes were taken for which most often, with some of the images
inspected/NAME.json  with an [inspect] section: what was seen inside a method on the first sequence (meta-training.json: of
                     the training of the base)
generated/NAME.png   for a method that replays generated images: some of them, beside the shots they came from
results.json         at the end: the results alone, in the order of the plan; equal bits for equal runs
"""

import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from fscl.errors import OtherRun, RunError, StorageError
from fscl.storage import canonical_json, digest, read_json, try_lock, write_bytes, write_json

WATCHERS = ("probe", "inspect")  # sections that look on, and change nothing
ARITHMETIC = "2"  # raised by every change that alters the last bits of results; 2: the first block by patches
MUST_NOT_MIX = ("fscl", "torch", "arithmetic")  # results of different versions of these do not belong in one table


@dataclass(frozen=True)
class Cell:
    """One method on one sequence."""

    method: str
    sequence: int


class _DataAbout(BaseModel):
    pool: str
    hash: str
    classes: int


class _BaseAbout(BaseModel):
    hash: str
    spec: dict[str, Any]
    origin: str
    summary: str


class _About(BaseModel):
    config: dict[str, Any]
    versions: dict[str, str]
    data: _DataAbout
    base: _BaseAbout
    streams: list[str]


@dataclass(frozen=True)
class RunRecord:
    """A run directory."""

    folder: Path

    @property
    def about_path(self) -> Path:
        return self.folder / "run.json"

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

    def sheet_path(self, method: str) -> Path:
        return self.folder / "generated" / f"{method}.png"

    def confused_path(self, cell: Cell) -> Path:
        return self.folder / "confused" / f"{cell.method}-{cell.sequence:03d}.json"

    def inspected_path(self, method: str) -> Path:
        return self.folder / "inspected" / f"{method}.json"

    @property
    def watched_path(self) -> Path:
        return self.inspected_path("meta-training")  # no method is called so

    def begin(self, about: Mapping[str, Any]) -> None:
        """Write what this run is, or check that the run begun here is the same."""
        if not self.about_path.exists():
            self.refuse_strays()
            write_json(self.about_path, "run", about)
            return
        changed = _first_difference(read_json(self.about_path, "run"), about)
        if changed is not None:
            key, old, new = changed
            raise OtherRun(
                f"{self.folder} holds a run with {key} = {old!r}, but now it is {new!r}. Use the old value, or another "
                "folder with --out."
            )

    def refuse_strays(self) -> None:
        """Results of a run that nobody can name any more must not become those of another."""
        strays = [path.name for path in (self.cells_path, self.network_path, self.results_path) if path.exists()]
        if strays and not self.about_path.exists():
            raise RunError(
                f"{self.folder} has {strays[0]} but no run.json, so nobody can tell what was run. Use another folder with "
                "--out, or empty this one."
            )

    def about(self) -> dict[str, Any]:
        """What `begin` wrote."""
        if not self.about_path.exists():
            raise RunError(f"{self.folder} is not a run directory: it has no run.json. `fscl run` makes one.")
        content = read_json(self.about_path, "run")
        try:
            return _About.model_validate(content).model_dump()
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise StorageError(f"{self.about_path} is damaged: {where}: {first['msg']}.") from error

    def append(self, cell: Cell, result: Mapping[str, Any], cost: Mapping[str, Any]) -> None:
        """Add a finished cell, on disk when this returns."""
        entry = {"method": cell.method, "sequence": cell.sequence, "result": result, "cost": cost}
        line = canonical_json({**entry, "digest": digest([self._identity(), entry])})
        with self.cells_path.open("ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def cells(self) -> dict[Cell, dict[str, Any]]:
        """The finished cells. A last line that is not whole is passed over, so that its cell runs again."""
        path = self.cells_path
        if not path.exists():
            return {}
        identity = self._identity()
        whole = path.read_bytes().rpartition(b"\n")[0]
        found: dict[Cell, dict[str, Any]] = {}
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                entry = json.loads(line)
                sealed = entry.pop("digest")
                cell = Cell(str(entry["method"]), int(entry["sequence"]))
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                raise StorageError(f"{path}, line {number} is not a finished cell ({error}).") from error
            if sealed != digest([identity, entry]):
                raise StorageError(
                    f"{path}, line {number} was altered, or belongs to another run: its digest is wrong."
                )
            if cell in found:
                raise StorageError(f"{path}, line {number} repeats {cell.method} on sequence {cell.sequence}.")
            found[cell] = entry
        return found

    def take_over(self, other: "RunRecord", plan: list[Cell]) -> int:
        """Copy from another run the cells of `plan` that would come out the same here; how many there were.

        A run that also probed or inspected serves one that does not ask for it, and a method serves another of the same
        settings: `joint` is `fsw` with β = 0 and k = all.
        """
        about, theirs, done, finished = self.about(), other.about(), self.cells(), other.cells()
        taken = 0
        for cell in plan:
            if cell in done:
                continue
            twin = _twin(theirs, about, cell, finished)
            if twin is None:
                continue
            for mine, their in zip(self.extras(cell), other.extras(twin), strict=True):
                if their.is_file() and (about["config"].get("inspect") or their != other.inspected_path(twin.method)):
                    write_bytes(mine, their.read_bytes())
            unasked = () if about["config"].get("probe") else ("probes", "probe_seconds")
            parts = [finished[twin][part] for part in ("result", "cost")]
            self.append(cell, *({k: v for k, v in part.items() if k not in unasked} for part in parts))
            taken += 1
        return taken

    def extras(self, cell: Cell) -> list[Path]:
        """Where a cell leaves what is no number, if it has any."""
        once = [self.sheet_path(cell.method), self.inspected_path(cell.method)] if cell.sequence == 0 else []
        return [self.confused_path(cell), *once]

    def _identity(self) -> str:
        """What makes this run another than others."""
        about = self.about()
        return digest([about[key] for key in ("config", "data", "base", "streams")])

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
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = (self.folder / ".lock").open("w")
        except OSError as error:
            raise RunError(
                f"cannot write to {self.folder}: {error.strerror}. Name another folder with --out."
            ) from error
        with file:
            if not try_lock(file.fileno()):
                raise RunError(f"another process is running in {self.folder}. Wait for it, or use --out.")
            yield


def _twin(theirs: Mapping[str, Any], mine: Mapping[str, Any], cell: Cell, finished: Iterable[Cell]) -> Cell | None:
    """The finished cell of another run that is all that `cell` would be in this one, if there is one."""
    asked = [mine["config"].get(key) for key in WATCHERS]
    found = [theirs["config"].get(key) for key in WATCHERS]
    wanted = _depends_on(mine, cell)
    if wanted is None or not all(wish is None or wish == there for wish, there in zip(asked, found, strict=True)):
        return None
    known = set(finished)
    names = [cell.method] if wanted["settings"] is None else [cell.method, *theirs["config"]["settings"]]
    twins = (Cell(name, cell.sequence) for name in names)
    return next((twin for twin in twins if twin in known and _depends_on(theirs, twin) == wanted), None)


def _depends_on(about: Mapping[str, Any], cell: Cell) -> dict[str, Any] | None:
    """All that a cell's result depends on; None for a sequence that the run does not have."""
    config, streams = about["config"], about["streams"]
    if cell.sequence >= len(streams):
        return None
    # what these decide for the cell is in the settings of its method, and in the hashes
    apart = ("name", "run", "stream", "base", "settings", *WATCHERS)
    rest = {key: value for key, value in config.items() if key not in apart and value is not None}
    return {
        "config": rest,
        "settings": config["settings"].get(cell.method),
        "versions": {name: about["versions"].get(name) for name in MUST_NOT_MIX},
        "data": about["data"]["hash"],
        "base": about["base"]["hash"],
        "stream": streams[cell.sequence],
    }


def versions() -> dict[str, str]:
    """What made the results."""
    packages = {name: version(name) for name in ("fscl", "torch", "numpy", "pillow")}
    about = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    return {**packages, **about, "arithmetic": ARITHMETIC}


def _first_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    old, new = dict(_flat("", before)), dict(_flat("", now))
    # first what both have: a name that changed says more than the keys that came with it
    for key in sorted(old.keys() | new.keys(), key=lambda key: (key not in old or key not in new, key)):
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
