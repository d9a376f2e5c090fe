"""A new model as a folder: written beside its place, and put there in one piece."""

import re
import secrets
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fscl.classifier.store.cached import CachedRows
from fscl.classifier.store.lock import holding, is_abandoned
from fscl.classifier.store.manifest import BASE, StateRecord, new_manifest, record_of, write_manifest
from fscl.classifier.store.originals import OriginalStore
from fscl.classifier.store.sheets import ImageStore
from fscl.classifier.store.states import Content, content_of, n_changes, with_unknown, write_state
from fscl.classifier.store.sweep import FOLDERS
from fscl.classifier.teacher import Snapshot, Teacher
from fscl.errors import MisuseError, StorageError
from fscl.storage import sync_folder


def check_free(folder: Path) -> None:
    """Refuse a folder that cannot become a new model's."""
    if folder.name in ("", ".."):
        raise MisuseError(f"{folder} is a place and no name; give the model a name of its own, such as my-model.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MisuseError(f"{folder} is there already, and not empty; give the model a name of its own.")


def write_new_model(
    folder: Path, teacher: Teacher, states: Sequence[Snapshot], originals: OriginalStore | None = None
) -> None:
    """A new model with these states, the present one last, and their originals; all of it appears at once."""
    check_free(folder)
    part = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    try:
        part.mkdir(parents=True)
        with holding(part, until=time.monotonic()):  # so that no other takes it for abandoned
            _sweep_abandoned(folder)
            _write(part, teacher, states, originals)
            part.replace(folder)
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {error.strerror or error}. Nothing was written.") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _sweep_abandoned(folder: Path) -> None:
    """Delete what processes that were killed while they made a model of this name have left."""
    left = re.compile(rf"\.{re.escape(folder.name)}\.[0-9a-f]{{8}}\.part")
    with suppress(OSError):
        for path in folder.parent.iterdir():
            if left.fullmatch(path.name) and path.is_dir() and not path.is_symlink() and is_abandoned(path):
                shutil.rmtree(path, ignore_errors=True)


def _write(folder: Path, teacher: Teacher, states: Sequence[Snapshot], originals: OriginalStore | None) -> None:
    network, settings = teacher.network, teacher.settings
    for name in FOLDERS:
        (folder / name).mkdir()
    rows = network.picture_shape is None
    if not rows:
        network.save(folder / BASE)
    manifest = new_manifest(
        settings,
        row_width=network.n_features if rows else None,
        base_file=None if rows else record_of(folder / BASE),
    )
    begins_empty = not states or not states[0].knowledge.history
    written = [each for each in states if each.knowledge.history]
    keep = settings.keep_states
    if keep is not None and len(written) > keep + 1:
        written, begins_empty = written[len(written) - keep - 1 :], False
    store, cached = ImageStore(folder / "images"), CachedRows(folder / "cache")
    for each in written if originals is not None and not rows and settings.originals else ():
        if each.knowledge.examples is not None and originals is not None:
            store.originals.take(originals, each.knowledge.examples.images)
    records: list[StateRecord] = []
    before: Content | None = None
    for number, each in enumerate(written, start=1):
        content = content_of(each, store, cached)
        alone = keep is not None and n_changes(records) >= keep
        shared = None if before is None or alone else (before, records)
        records.append(write_state(folder, number, content, before=shared))
        before = content
    if records:
        records[-1] = with_unknown(folder, records[-1], written[-1].knowledge)
    changes = {"states": tuple(records), "next_number": len(records) + 1, "begins_empty": begins_empty}
    write_manifest(folder, manifest.model_copy(update=changes))
    for name in (*FOLDERS, "."):
        sync_folder(folder / name)
