"""Whether every file of a model is what it should be, and what lies there besides."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fscl.classifier.store.cached import CachedRows, file_of
from fscl.classifier.store.folder import BASE, READ_ATTEMPTS, ModelFolder
from fscl.classifier.store.manifest import FileRecord, Manifest, read_manifest, verify
from fscl.classifier.store.sheets import ImageStore, sheet_of
from fscl.classifier.store.states import read_details
from fscl.classifier.store.sweep import strays
from fscl.errors import ModelBusy, StorageError


@dataclass(frozen=True)
class Checked:
    """What a check found.

    Attributes:
        n_files, n_bytes: the files that the model names and their bytes, `model.json` included.
        problems: a sentence for each file that is not what it should be.
        waiting: whether a lesson waits in the journal.
        strays: what a killed process left, and the next change sweeps up.
    """

    n_files: int
    n_bytes: int
    problems: tuple[str, ...]
    waiting: bool
    strays: tuple[Path, ...]


def check_model(folder: Path) -> Checked:
    """Verify every file of every state; where a writer moves on meanwhile, from the start."""
    for _ in range(READ_ATTEMPTS):
        manifest = read_manifest(folder)
        found = _checked(folder, manifest)
        if not found.problems or read_manifest(folder).seal == manifest.seal:
            return found
    raise ModelBusy(f"{folder} is being changed all the time; try again.")


def _checked(folder: Path, manifest: Manifest) -> Checked:
    images, cached = ImageStore(folder / "images"), CachedRows(folder / "cache")
    paths, problems = [folder / "model.json"], []
    contents: dict[Path, Callable[[], bytes]] = {}
    for path, record in _recorded(folder, manifest):
        paths.append(path)
        try:
            verify(path, record)
        except StorageError as error:
            problems.append(str(error))
    for state in manifest.kept:
        try:
            details = read_details(folder, state)
            contents |= {images.path(name): partial(images.content, name) for name in map(sheet_of, details["images"])}
            rows = map(file_of, details.get("cached", []))
            contents |= {cached.path(name): partial(cached.content, name) for name in rows}
            contents |= {
                images.originals.path(name): partial(images.originals.content, name)
                for name in details.get("originals", [])
                if name
            }
        except (StorageError, KeyError, TypeError) as error:
            if str(error) not in problems:
                problems.append(str(error))
    for path, content in contents.items():
        try:
            paths.append(path)
            content()
        except StorageError as error:
            problems.append(str(error))
    model = ModelFolder(folder)
    if not problems:
        try:
            model.read()
        except StorageError as error:
            problems.append(str(error))
    left: tuple[Path, ...] = ()
    waiting = model.journal.pending(manifest.next_number)
    n_bytes = 0
    try:
        if waiting:
            model.journal.read(manifest.next_number)
        left = () if problems else tuple(strays(folder, manifest))
        n_bytes = sum(path.stat().st_size for path in paths if path.is_file())
    except StorageError as error:
        problems.append(str(error))
    except OSError as error:
        problems.append(f"{folder} cannot be read: {error.strerror or error}.")
    return Checked(len(paths), n_bytes, tuple(problems), waiting, left)


def _recorded(folder: Path, manifest: Manifest) -> list[tuple[Path, FileRecord]]:
    found = [] if manifest.base_file is None else [(folder / BASE, manifest.base_file)]
    for state in manifest.kept:
        found += [(folder / state.folder / Path(name).name, record) for name, record in state.files.items()]
    return found
