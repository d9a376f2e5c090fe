"""Which files a state of a model names, and how each is read."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from fscl.classifier.store.cached import CachedRows, file_of
from fscl.classifier.store.manifest import FileRecord, StateRecord
from fscl.classifier.store.sheets import ImageStore, sheet_of
from fscl.classifier.store.states import names_in

Read = Callable[[], bytes]


def own_files(folder: Path, record: StateRecord) -> dict[Path, FileRecord]:
    """The files of one state alone, and what each must be."""
    return {folder / record.folder / Path(name).name: file for name, file in record.files.items()}


def shared_files(folder: Path, record: StateRecord) -> dict[Path, Read]:
    """The sheets, cached rows and originals that a state adds to those of the one that it builds on; each read verified."""
    images, cached = ImageStore(folder / "images"), CachedRows(folder / "cache")
    names, originals = names_in(folder, record), images.originals
    return {
        **{images.path(name): partial(images.content, name) for name in map(sheet_of, names["images"])},
        **{cached.path(name): partial(cached.content, name) for name in map(file_of, names["cached"])},
        **{originals.path(name): partial(originals.content, name) for name in names["originals"] if name},
    }
