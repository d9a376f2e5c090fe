"""A run directory: everything that was asked, and everything that came out. Reports read nothing else.

run.json             the resolved configuration, versions, seed, hashes of data, base and streams
base.safetensors     the base network that every method started from
streams/000.json …   the sequences of tasks
cells.jsonl          one line for each finished cell (method × sequence), appended as it finishes: result and cost
files/METHOD-000/    what each cell leaves besides: confusions.json (which classes were taken for which most often, with some
                     of the images), pictures of its method, and in observed/ what observers saw
unfinished/          what cells that were computed in part go on from; gone when they are finished
observed/NAME.json   what an observer saw of the training of the base
results.json         at the end: the results alone, in the order of the plan; equal bits for equal runs
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from fscl.errors import OtherRun, RunError, StorageError
from fscl.experiment.plan import Cell, Finished
from fscl.experiment.versions import CPU, MUST_NOT_MIX, that_must_not_mix
from fscl.storage import (
    canonical_json,
    digest,
    read_json,
    sync_file_system,
    sync_folder,
    sync_folders,
    write_bytes,
    write_json,
)

WATCHING = ("probe", "observe")  # sections of a configuration that look on, and change nothing
OBSERVED = "observed"
FLUSH_TOGETHER = 8  # cells; so many are flushed with the whole file system, fewer file by file


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

    def file_path(self, cell: Cell, name: str) -> Path:
        """Where a file of a cell is."""
        place = f"{cell.method}-{cell.sequence:03d}/{name}"
        return self.folder / "files" / place.replace(":", "+")  # of references; no file has a colon everywhere

    def unfinished_path(self, cell: Cell) -> Path:
        """What a cell that was computed in part goes on from."""
        return self.folder / "unfinished" / f"{cell.method}-{cell.sequence:03d}.safetensors".replace(":", "+")

    def unfinished(self, cell: Cell) -> bytes | None:
        """The bytes of that, if there are any; who goes on from them checks them."""
        path = self.unfinished_path(cell)
        return path.read_bytes() if path.exists() else None

    def observed_path(self, observer: str) -> Path:
        """What an observer saw of the training of the base."""
        return self.folder / OBSERVED / f"{observer.replace(':', '+')}.json"

    def begin(self, about: Mapping[str, Any]) -> None:
        """Write what this run is, or check that the run begun here is the same."""
        if not self.about_path.exists():
            self.refuse_strays()
            write_json(self.about_path, "run", about)
            sync_folder(self.folder)  # before anything else: files that nobody can name are refused
            with suppress(OSError):  # who may not read the folder above can run all the same
                sync_folder(self.folder.parent)
            return
        changed = first_difference(read_json(self.about_path, "run"), about)
        if changed is not None:
            key, old, new = changed
            if key == f"versions.{CPU}":
                raise OtherRun(
                    f"{self.folder} holds a run begun on another kind of processor: {old}, but now it is {new}. The last "
                    "bits of its results would differ; continue it on the same kind, or use another folder with --out."
                )
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

    def append(self, cell: Cell, finished: Finished) -> None:
        """Add a finished cell, on disk when this returns: first its files, so that a cell in the list has them."""
        self.append_all([(cell, finished)])

    def append_all(self, batch: Sequence[tuple[Cell, Finished]]) -> None:
        """Add finished cells, on disk when this returns: first their files, so that a cell in the list has them.

        A disk takes milliseconds for each flush. Many cells at once are flushed together, which makes hundreds of them a
        second into thousands.
        """
        flush_each = len(batch) < FLUSH_TOGETHER or sys.platform == "win32"
        for cell, finished in batch:
            for name, content in finished.files.items():
                path = self.file_path(cell, _checked_name(name))
                if flush_each:
                    write_bytes(path, content)
                    sync_folders(path.parent, up_to=self.folder)
                else:  # a kill may leave a part of it, but no line that says that the cell is finished
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
        if not flush_each:
            sync_file_system(self.folder)
        identity, is_new = self._identity(), not self.cells_path.exists()
        with self.cells_path.open("ab") as file:
            file.write(b"".join(_line(identity, *one) for one in batch))
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync_folder(self.folder)  # its name
        for cell, _ in batch:
            self.unfinished_path(cell).unlink(missing_ok=True)

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

    def files_of(self, cell: Cell) -> dict[str, bytes]:
        """The files that a cell has left, by name."""
        folder = self.file_path(cell, "")
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}

    def take_over(self, other: "RunRecord", plan: list[Cell]) -> int:
        """Copy from another run the cells of `plan` that would come out the same here; how many there were.

        A run that was also probed or observed serves one that does not ask for it, and a method serves another of the same
        settings: `joint` is `fsw` with β = 0 and k = all.
        """
        mine, theirs, done, finished = self.about(), other.about(), self.cells(), other.cells()
        _refuse_other_cpu(other.folder, theirs, mine)
        taken: list[tuple[Cell, Finished]] = []
        for cell in plan:
            source = None if cell in done else _same_cell(theirs, mine, cell, finished)
            if source is None:
                continue
            has_probe, is_observed = (bool(mine["config"].get(key)) for key in WATCHING)
            unasked = () if has_probe else ("probes", "probe_seconds")
            result, cost = (
                {key: value for key, value in finished[source][part].items() if key not in unasked}
                for part in ("result", "cost")
            )
            files = {
                name: content
                for name, content in other.files_of(source).items()
                if is_observed or not name.startswith(f"{OBSERVED}/")
            }
            taken.append((cell, Finished(result, cost, files)))
        if taken:
            self.append_all(taken)
        return len(taken)

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
        sync_folder(self.folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One writer at a time; a second one is refused at once."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / ".lock", timeout=0)
            lock.acquire()
        except Timeout as error:
            raise RunError(f"another process is running in {self.folder}. Wait for it, or use --out.") from error
        except OSError as error:
            raise RunError(
                f"cannot write to {self.folder}: {error.strerror}. Name another folder with --out."
            ) from error
        try:
            yield
        finally:
            lock.release()


def _line(identity: str, cell: Cell, finished: Finished) -> bytes:
    """A finished cell in the list, sealed to its run."""
    entry = {"method": cell.method, "sequence": cell.sequence, "result": finished.result, "cost": finished.cost}
    return canonical_json({**entry, "digest": digest([identity, entry])}).encode() + b"\n"


def _checked_name(name: str) -> str:
    """A file of a cell stays in the cell's own folder."""
    parts = PurePosixPath(name).parts
    if not 0 < len(parts) <= 2 or PurePosixPath(name).is_absolute() or ".." in parts or "\\" in name:
        raise RunError(
            f"a cell has left a file named {name!r}, but a name is like 'picture.png' or 'folder/picture.png'."
        )
    return name


def _refuse_other_cpu(folder: Path, theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    old, new = (about["versions"].get(CPU) for about in (theirs, mine))
    if None not in (old, new) and old != new:
        raise OtherRun(
            f"the cells of {folder} were computed on another kind of processor: {old}, but this run is on {new}. Their last "
            "bits would differ; leave out --reuse, or run on the same kind."
        )


def _same_cell(theirs: Mapping[str, Any], mine: Mapping[str, Any], cell: Cell, finished: Iterable[Cell]) -> Cell | None:
    """The finished cell of another run that has all that `cell` would have in this one, if there is one."""
    wanted = _depends_on(mine, cell)
    if wanted is None or any(
        (asked := mine["config"].get(key)) and asked != theirs["config"].get(key) for key in WATCHING
    ):
        return None
    known = set(finished)
    methods = [cell.method] if wanted["settings"] is None else [cell.method, *theirs["config"]["settings"]]
    candidates = (Cell(method, cell.sequence) for method in methods)
    return next((one for one in candidates if one in known and _depends_on(theirs, one) == wanted), None)


def _depends_on(about: Mapping[str, Any], cell: Cell) -> dict[str, Any] | None:
    """All that a cell's result depends on; None for a sequence that the run does not have."""
    config, streams = about["config"], about["streams"]
    if cell.sequence >= len(streams):
        return None
    # what these decide for the cell is in the settings of its method, and in the hashes
    apart = ("name", "run", "stream", "base", "settings", "chosen_by", *WATCHING)
    rest = {key: value for key, value in config.items() if key not in apart and value is not None}
    return {
        "config": rest,
        "settings": config["settings"].get(cell.method),
        "versions": that_must_not_mix(about["versions"]),
        "data": about["data"]["hash"],
        "base": [about["base"]["hash"], about["base"]["spec"]],  # the same weights may be frozen or not
        "stream": streams[cell.sequence],
    }


def first_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The key in which two descriptions differ, and both values; versions that change no result aside."""
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
