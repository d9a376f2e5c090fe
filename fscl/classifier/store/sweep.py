"""What lies in a model's folder and is not part of it: left by a process that was killed, or by states that were dropped."""

import shutil
from pathlib import Path

from fscl.classifier.store.cached import CachedRows, file_of
from fscl.classifier.store.journal import Journal
from fscl.classifier.store.manifest import Manifest
from fscl.classifier.store.sheets import ImageStore, sheet_of
from fscl.classifier.store.states import read_details

# in the order in which they are swept: a state that is left over tells the next writer that sweeping is not done
FOLDERS = ("journal", "images", "originals", "cache", "states")


def has_strays(folder: Path, manifest: Manifest) -> bool:
    """Whether a killed process left something: a state that is not the model's, a lesson, a file half written."""
    named = {record.folder.removeprefix("states/") for record in manifest.kept}
    states = {path.name for path in _listed(folder / "states")}
    places = (folder, *(folder / name for name in ("images", "originals", "cache", "journal")))
    parts = any(path.name.endswith(".part") for place in places for path in _listed(place))
    return states != named or bool(Journal(folder / "journal").entries()) or parts


def strays(folder: Path, manifest: Manifest) -> list[Path]:
    """What is not part of the model; a lesson that waits in the journal is."""
    images, cached = ImageStore(folder / "images"), CachedRows(folder / "cache")
    kept = {folder / record.folder for record in manifest.kept}
    for record in manifest.kept:
        details = read_details(folder, record)
        kept |= {images.path(sheet_of(name)) for name in details["images"]}
        kept |= {cached.path(file_of(name)) for name in details.get("cached", [])}
        kept |= {images.originals.path(name) for name in details.get("originals", []) if name}
    journal = Journal(folder / "journal")
    if journal.pending(manifest.next_number):
        kept.add(journal.path(manifest.next_number))
        kept |= {images.originals.path(name) for name in journal.read(manifest.next_number)[1] if name}
    found = [path for path in _listed(folder) if path.name.startswith(".") and path.name.endswith(".part")]
    found += [path for name in FOLDERS for path in _listed(folder / name)]
    return [path for path in found if path not in kept]


def sweep(folder: Path, manifest: Manifest) -> None:
    """Delete what is not part of the model; links are deleted, never followed."""
    for path in strays(folder, manifest):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _listed(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []
