"""Whether every file of a model is what it should be, and what lies there besides."""

from dataclasses import dataclass
from pathlib import Path

from fscl.classifier.store.files import Read, own_files, shared_files
from fscl.classifier.store.folder import READ_ATTEMPTS, ModelFolder
from fscl.classifier.store.manifest import BASE, NAME, FileRecord, Manifest, read_manifest, verify
from fscl.classifier.store.sweep import FOLDERS, strays
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
    paths, problems = [folder / NAME], []
    for name in FOLDERS:
        if (folder / name).is_symlink():
            problems.append(f"{folder / name} is a link; nothing outside the model's folder is read or written.")
    for path, record in _recorded(folder, manifest):
        paths.append(path)
        try:
            verify(path, record)
        except StorageError as error:
            problems.append(str(error))
    contents, unreadable = _named(folder, manifest)
    problems += [problem for problem in unreadable if problem not in problems]
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


def _named(folder: Path, manifest: Manifest) -> tuple[dict[Path, Read], list[str]]:
    """The files that states name, and how each is read; and what is wrong with states that cannot say which."""
    contents: dict[Path, Read] = {}
    problems = []
    for state in manifest.stored:
        try:
            contents |= shared_files(folder, state)
        except StorageError as error:
            problems.append(str(error))
    aside = {folder / name for name in manifest.lost}
    return {path: content for path, content in contents.items() if path not in aside}, problems


def _recorded(folder: Path, manifest: Manifest) -> list[tuple[Path, FileRecord]]:
    found = [] if manifest.base_file is None else [(folder / BASE, manifest.base_file)]
    for state in manifest.stored:
        found += own_files(folder, state).items()
    return found
