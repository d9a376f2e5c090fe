"""A damaged model made whole again: it goes back to the newest state that is whole, and nothing is thrown away."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from pathlib import Path

from fscl.classifier.store.files import Read, own_files, shared_files
from fscl.classifier.store.folder import ModelFolder
from fscl.classifier.store.lock import TIMEOUT
from fscl.classifier.store.manifest import (
    BASE,
    FORMAT,
    STATE_FILES,
    UNKNOWN,
    Manifest,
    StateRecord,
    verify,
    write_manifest,
)
from fscl.classifier.store.sheets import ImageStore, sheet_of
from fscl.classifier.store.states import Content, each_content, needed_by, without_unknown
from fscl.errors import StorageError
from fscl.storage import sync_folder

ASIDE = "damaged"


@dataclass(frozen=True)
class Repaired:
    """What a repair did.

    Attributes:
        problems: a sentence for each file that is damaged or missing.
        n_lost: how many states can no longer be reached.
        went_back: how many calls the present state lies before the one that was damaged; 0 where that is whole.
        aside: where the damaged files are now; None where nothing was wrong.
    """

    problems: tuple[str, ...] = ()
    n_lost: int = 0
    went_back: int = 0
    aside: Path | None = None


def repair_model(folder: Path, *, timeout: float = TIMEOUT) -> Repaired:
    """Go back to the newest whole state of a model, and put what is damaged into its folder `damaged/`.

    Args:
        folder: of the model.
        timeout: seconds to wait while another process changes it.
    """
    model = ModelFolder(folder, timeout=timeout)
    with model.locked() as manifest:
        if manifest.base_file is not None:
            verify(folder / BASE, manifest.base_file)  # without it there is nothing to repair
        every = manifest.model_copy(update={"states": manifest.stored, "undone": (), "ground": ()})
        shared = _damaged_shared(folder, every)
        problems = shared | _damaged_files(folder, every) | _damaged_lesson(model, manifest)
        if not problems:
            return Repaired()
        whole = _whole_states(model, manifest, set(shared))
        if manifest.states and not whole:
            first = next(iter(problems.values()))
            raise StorageError(f"no state of {folder} is whole, and nothing was changed. The first problem: {first}")
        # what was undone builds on the present state, and each on the one before it
        stands = len(whole) == len(manifest.states)
        readable = {record.number for record in _whole_states(model, every, set(shared))} if stands else set()
        undone = tuple(takewhile(lambda record: record.number in readable, manifest.undone))
        numbers = {record.number for record in (*whole, *undone)}
        gone = [record for record in manifest.kept if record.number not in numbers]
        ground = needed_by(whole[0], manifest.ground) if whole else ()
        unused = [*gone, *(record for record in manifest.ground if record not in ground)]
        aside = _put_aside(folder, [*(path for path in problems if path.exists()), *_files_of(folder, unused)])
        kept_last = whole[-1].number if whole else 0
        lost = {str(path.relative_to(folder)) for path in shared if path.parent.name != "images"}
        changes = {
            "states": tuple(whole),
            "undone": undone,
            "ground": ground,
            "begins_empty": manifest.begins_empty and not (manifest.states and manifest.states[0] in gone),
            "lost": tuple(sorted({*manifest.lost, *lost})),
            "format": FORMAT,
        }
        newer = manifest.model_copy(update=changes)
        states = model.as_present(newer, newer.states, model.snapshot(newer))
        write_manifest(folder, newer.model_copy(update={"states": states}))
        sync_folder(folder)
        return Repaired(
            problems=tuple(map(str, problems.values())),
            n_lost=len(gone),
            went_back=sum(record.number > kept_last for record in gone if record in manifest.states),
            aside=aside,
        )


def _damaged_shared(folder: Path, manifest: Manifest) -> dict[Path, StorageError]:
    """Sheets, originals and cached rows that are not what their name says; which states need them, does not matter."""
    files: dict[Path, Read] = {}
    for record in manifest.states:
        with suppress(StorageError):  # the state itself is damaged, and counted there
            files |= shared_files(folder, record)
    return _failures({path: read for path, read in files.items() if str(path.relative_to(folder)) not in manifest.lost})


def _damaged_files(folder: Path, manifest: Manifest) -> dict[Path, StorageError]:
    files = {path: file for record in manifest.states for path, file in own_files(folder, record).items()}
    return _failures({path: partial(verify, path, file) for path, file in files.items()})


def _damaged_lesson(model: ModelFolder, manifest: Manifest) -> dict[Path, StorageError]:
    number = manifest.next_number
    error = _failure(partial(model.journal.read, number)) if model.journal.pending(number) else None
    return {} if error is None else {model.journal.path(number): error}


def _whole_states(model: ModelFolder, manifest: Manifest, damaged: set[Path]) -> list[StateRecord]:
    """The states that can be read, the newest of them proved so; the file that can be computed again does not count."""
    sheets = {path for path in damaged if path.parent.name == "images"}
    whole: list[tuple[StateRecord, Content]] = []
    chain, n_ground = manifest.present_chain, len(manifest.ground)
    for record, content in islice(zip(chain, each_content(model.folder, chain), strict=True), n_ground, None):
        if isinstance(content, Content) and not sheets & set(_sheets(model.images, content)):
            intact = UNKNOWN in record.files and not _failure(
                partial(verify, model.folder / record.folder / UNKNOWN, record.files[UNKNOWN])
            )
            whole.append((record if intact else without_unknown(record), content))
    while whole and _failure(partial(model.state, *whole[-1])) is not None:
        whole.pop()
    return [record for record, _ in whole]


def _sheets(images: ImageStore, content: Content) -> Iterator[Path]:
    names = content.details.get("images")
    for name in names if isinstance(names, list) else []:
        yield images.path(sheet_of(name))


def _files_of(folder: Path, gone: list[StateRecord]) -> list[Path]:
    paths = [folder / record.folder / name for record in gone for name in (*STATE_FILES, UNKNOWN)]
    return [path for path in paths if path.exists()]


def _put_aside(folder: Path, paths: list[Path]) -> Path:
    """Move files to a new folder in `damaged/`, each with the path that it had."""
    number = 1
    while (folder / ASIDE / str(number)).exists():
        number += 1
    aside = folder / ASIDE / str(number)
    aside.mkdir(parents=True)
    for path in dict.fromkeys(paths):
        target = aside / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
    return aside


def _failures(files: Mapping[Path, Callable[[], object]]) -> dict[Path, StorageError]:
    return {path: error for path, read in files.items() if (error := _failure(read)) is not None}


def _failure(read: Callable[[], object]) -> StorageError | None:
    try:
        read()
    except StorageError as error:
        return error
    return None
