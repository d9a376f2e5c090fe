"""What lies in a model's folder and is not part of it: left by a process that was killed, or by states that were dropped.

Only what this package writes is ever deleted: a file that somebody put there, whatever its place, stays.
"""

import re
from contextlib import suppress
from pathlib import Path

from fscl.classifier.store.files import shared_files
from fscl.classifier.store.journal import Journal
from fscl.classifier.store.manifest import STATE_FILES, UNKNOWN, Manifest
from fscl.classifier.store.originals import OriginalStore

# in the order in which they are swept: a state that is left over tells the next writer that sweeping is not done
FOLDERS = ("journal", "images", "originals", "cache", "states")

_PART = re.compile(r"\..+\.[0-9a-f]{8}\.part|rows\.part")  # what `write_bytes` has not finished
OURS = {
    "journal": re.compile(r"\d{6,}\.safetensors"),
    "images": re.compile(r"[0-9a-f]{64}\.png"),
    "originals": re.compile(r"[0-9a-f]{64}\.(png|jpg)"),
    "cache": re.compile(r"[0-9a-f]{64}\.safetensors"),
    "states": re.compile(r"\d{6,}"),
}
IN_STATE = (*STATE_FILES, UNKNOWN)


def has_strays(folder: Path, manifest: Manifest) -> bool:
    """Whether a killed process left something: a state that is not the model's, a lesson, a file half written."""
    # what the present state alone has may be left in the one that was present before: the one before it, or one undone
    others = (*manifest.states[-2:-1], *manifest.undone)
    return bool(
        _stray_states(folder, manifest)
        or Journal(folder / "journal").entries()
        or _parts(folder)
        or any((folder / record.folder / UNKNOWN).exists() for record in others)
    )


def strays(folder: Path, manifest: Manifest) -> list[Path]:
    """What is not part of the model, and was written by this package; a lesson that waits in the journal is part of it."""
    kept = {path for record in manifest.stored for path in shared_files(folder, record)}
    journal, originals = Journal(folder / "journal"), OriginalStore(folder / "originals")
    if journal.pending(manifest.next_number):
        kept.add(journal.path(manifest.next_number))
        kept |= {originals.path(name) for name in journal.read(manifest.next_number)[1] if name}
    found = _parts(folder)
    for name in FOLDERS[:-1]:
        found += [path for path in _listed(folder / name) if OURS[name].fullmatch(path.name) and not _is_folder(path)]
    for record in manifest.stored:
        inside = [path for path in _listed(folder / record.folder) if _is_ours(path)]
        found += [path for path in inside if path.name not in record.files]
    return [*(path for path in found if path not in kept), *_stray_states(folder, manifest)]


def sweep(folder: Path, manifest: Manifest) -> None:
    """Delete what is not part of the model; links are deleted, never followed."""
    for path in strays(folder, manifest):
        delete(path)


def delete(path: Path) -> None:
    """Delete a file of a model, or the folder of a state; what somebody else put into that stays."""
    if not _is_folder(path):
        path.unlink(missing_ok=True)
        return
    for inner in _listed(path):
        if _is_ours(inner):
            inner.unlink(missing_ok=True)
    with suppress(OSError):  # not empty: there is something in it that is not ours
        path.rmdir()


def _stray_states(folder: Path, manifest: Manifest) -> list[Path]:
    """Folders of states that are not the model's; one with nothing of ours in it, and something else, is somebody's own."""
    named = {record.folder.removeprefix("states/") for record in manifest.stored}
    found = [
        path for path in _listed(folder / "states") if path.name not in named and OURS["states"].fullmatch(path.name)
    ]
    inside = {path: _listed(path) for path in found}
    return [path for path in found if not inside[path] or any(map(_is_ours, inside[path]))]


def _parts(folder: Path) -> list[Path]:
    """Files that were not written to their end."""
    places = [folder, *(folder / name for name in FOLDERS)]
    return [path for place in places for path in _listed(place) if _is_part(path)]


def _is_ours(path: Path) -> bool:
    return (path.name in IN_STATE or _is_part(path)) and not _is_folder(path)


def _is_part(path: Path) -> bool:
    return _PART.fullmatch(path.name) is not None and not _is_folder(path)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _listed(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []
