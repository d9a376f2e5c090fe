"""A model is a folder that is never half-written.

model.json           what the model is: settings, states, and the fingerprint of every file; replaced in one piece, last
base.safetensors     the network it began with
states/000001/ …     a state for each call that can be undone, the present one last
images/<sha256>.png  the stored examples, as the network sees them, those of a lesson on one sheet
originals/           the same pictures as they were given, at most 512 pixels a side, unless the settings say no
cache/               what the frozen part of the network makes of them, where a method keeps it
journal/             a lesson that is being learned
lock, writer         held by the one process that writes, and its number

A lesson is written to the journal and flushed, then learned, then committed by replacing model.json. A process that is
killed leaves the state before or after; a lesson in the journal is completed by the next writer. Readers take no lock:
they read model.json and what it names, and start again if a writer has moved on meanwhile.
"""

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from fscl.classifier.knowledge import Lesson
from fscl.classifier.labels import plain_labels
from fscl.classifier.store.cached import CachedRows
from fscl.classifier.store.journal import Journal
from fscl.classifier.store.lock import TIMEOUT, writing
from fscl.classifier.store.manifest import (
    NAME,
    FileRecord,
    Manifest,
    StateRecord,
    new_manifest,
    read_manifest,
    record_of,
    verify,
    write_manifest,
)
from fscl.classifier.store.originals import OriginalStore
from fscl.classifier.store.sheets import ImageStore
from fscl.classifier.store.states import read_state, write_state
from fscl.classifier.store.sweep import FOLDERS, has_strays, sweep
from fscl.classifier.teacher import Snapshot, Teacher
from fscl.errors import FsclError, MisuseError, ModelBusy, StorageError
from fscl.meta.shipped import load_base
from fscl.nets.network import Network
from fscl.nets.precomputed import precomputed_features
from fscl.storage import sync_folder

BASE = "base.safetensors"
READ_ATTEMPTS = 50


class ModelFolder:
    """A model on disk: read by anyone at any time, changed by one process at a time.

    Args:
        folder: where it is.
        timeout: seconds that a change waits for another process to end its own.
    """

    def __init__(self, folder: Path, *, timeout: float = TIMEOUT) -> None:
        self.folder = folder
        self.timeout = timeout
        self.images = ImageStore(folder / "images")
        self.cached = CachedRows(folder / "cache")
        self.journal = Journal(folder / "journal")
        self._teacher: Teacher | None = None
        self.base_record: FileRecord | None = None  # of the base that was read
        self._last: tuple[str, Snapshot] | None = None  # what was read or written last, under its seal

    @classmethod
    def create(
        cls,
        folder: Path,
        teacher: Teacher,
        states: Sequence[Snapshot],
        *,
        originals: OriginalStore | None = None,
        timeout: float = TIMEOUT,
    ) -> "ModelFolder":
        """A new model with these states, the present one last, and their originals; all of it appears at once."""
        check_free(folder)
        part = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
        try:
            part.mkdir(parents=True)
            _write_new(part, teacher, states, originals)
            part.replace(folder)
        except OSError as error:
            raise StorageError(f"cannot write {folder}: {error.strerror or error}. Nothing was written.") from error
        finally:
            shutil.rmtree(part, ignore_errors=True)
        with _after_the_fact(folder):
            sync_folder(folder.parent)
        return cls(folder, timeout=timeout)

    # reading

    def read(self) -> Snapshot:
        """The present state, of one moment, whatever a writer does meanwhile."""
        return self.read_named()[1]

    def read_named(self) -> tuple[Manifest, Snapshot]:
        """The same, with the manifest that names it."""
        manifest = read_manifest(self.folder)
        for _ in range(READ_ATTEMPTS):
            try:
                return manifest, self.snapshot(manifest)
            except StorageError:
                newer = read_manifest(self.folder)
                if newer.seal == manifest.seal:
                    raise
                manifest = newer
        raise ModelBusy(f"{self.folder} is being changed all the time; try again.")

    def snapshot(self, manifest: Manifest) -> Snapshot:
        """The present state of a manifest."""
        if self._last is not None and self._last[0] == manifest.seal:
            return self._last[1]
        snapshot = self._read(manifest.states[-1]) if manifest.states else self.teacher(manifest).empty()
        self._last = manifest.seal, snapshot
        return snapshot

    def states(self) -> list[Snapshot]:
        """Every state that `undo` can reach, the present one last; where the model began empty, that first."""
        with self._locked():
            manifest = read_manifest(self.folder)
            found = [self._read(record) for record in manifest.states]
            return [self.teacher(manifest).empty(), *found] if manifest.begins_empty else found

    def teacher(self, manifest: Manifest | None = None) -> Teacher:
        """How it learns; read once, since it never changes."""
        if self._teacher is None:
            manifest = manifest or read_manifest(self.folder)
            if manifest.row_width is not None:
                network: Network = precomputed_features(manifest.row_width)
            elif manifest.base_file is not None:
                network = load_base(verify(self.folder / BASE, manifest.base_file))
            else:
                raise StorageError(f"{self.folder / NAME} names neither a base nor the width of rows.")
            self._teacher = Teacher(network, manifest.settings)
            self.base_record = manifest.base_file
        return self._teacher

    def _read(self, record: StateRecord) -> Snapshot:
        teacher = self.teacher()
        channels, image_size = teacher.network.picture_shape or (1, 1)  # rows are on no sheet
        return teacher.snapshot(
            *read_state(self.folder, record, self.images, self.cached, image_size=image_size, channels=channels)
        )

    def n_bytes(self) -> int:
        """Bytes of everything in the folder."""
        total = 0
        for where, _, names in os.walk(self.folder):
            for name in names:
                with suppress(FileNotFoundError):  # a writer moves on meanwhile
                    status = os.lstat(Path(where) / name)
                    total += status.st_size if stat.S_ISREG(status.st_mode) else 0
        return total

    # changing

    def teach(self, lesson: Lesson, *, before_commit: Callable[[], None] | None = None) -> Snapshot:
        """Learn a lesson: journal, learn, commit.

        Args:
            lesson: what to learn.
            before_commit: called when it is learned and not yet written; what it raises leaves the model as it was.
        """
        with self._writing() as manifest:
            before = self.snapshot(manifest)
            plain_labels(lesson.labels, before.knowledge.classes if lesson.call != "fit" else ())
            with self._or_as_before():
                self.journal.write(manifest.next_number, lesson, self._keep_originals(manifest.next_number, lesson))
                after = self.teacher().learned(before, lesson)
                if before_commit is not None:
                    before_commit()
                return self._commit(manifest, after)

    def _keep_originals(self, number: int, lesson: Lesson) -> list[str]:
        if not lesson.originals:
            return []
        # if the process is killed before the journal has the lesson, this tells the next writer to sweep
        (self.folder / "states" / f"{number:06}").mkdir(exist_ok=True)
        return self.images.originals.write(lesson.examples, lesson.originals)

    def change(self, made: Callable[[Teacher, Snapshot], Snapshot], *, final: bool = False) -> Snapshot:
        """Commit what `made` makes of the present state; `final` removes every earlier one, and all that they held."""
        with self._writing() as manifest:
            after = made(self.teacher(), self.snapshot(manifest))
            with self._or_as_before():
                return self._commit(manifest, after, final=final)

    def undo(self, n_calls: int) -> Snapshot:
        """Go back by so many calls. A lesson that was cut short counts as one."""
        with self._locked():
            manifest = read_manifest(self.folder)
            pending = self.journal.pending(manifest.next_number)
            if n_calls > manifest.n_undoable + pending:
                able = manifest.n_undoable + pending
                raise MisuseError(
                    f"{n_calls} {'call' if n_calls == 1 else 'calls'} cannot be undone in {self.folder}: {able} can "
                    "(no state is kept from before a forget, or beyond keep_states)."
                )
            return self._gone_to(manifest, len(manifest.states) - (n_calls - pending))

    def redo(self, n_calls: int) -> Snapshot:
        """Bring back so many calls that were undone. A lesson that was cut short is completed, and leaves none."""
        with self._writing() as manifest:
            if not 1 <= n_calls <= len(manifest.undone):
                raise MisuseError(
                    f"{n_calls} {'call' if n_calls == 1 else 'calls'} cannot be done again in {self.folder}: "
                    f"{len(manifest.undone)} can (the first change after an undo drops what was undone)."
                )
            return self._gone_to(manifest, len(manifest.states) + n_calls)

    def go_to(self, number: int) -> Snapshot:
        """Undo or redo to the state of this number, of those that are kept; 0 is the empty model."""
        with self._writing() as manifest:
            numbers = [*([0] if manifest.begins_empty else []), *(record.number for record in manifest.kept)]
            if number not in numbers:
                listed = ", ".join(map(str, numbers))
                raise MisuseError(f"there is no state {number} to go to in {self.folder}. There are: {listed}.")
            return self._gone_to(manifest, numbers.index(number) + (not manifest.begins_empty))

    def _gone_to(self, manifest: Manifest, n_states: int) -> Snapshot:
        """The first `n_states` of those that are kept; the rest waits to be done again."""
        every = manifest.kept
        # with the next number a lesson that waits is none any more: both are dropped at once
        pending = self.journal.pending(manifest.next_number)
        changed = {
            "states": every[:n_states],
            "undone": every[n_states:],
            "next_number": manifest.next_number + pending,
        }
        manifest = manifest.model_copy(update=changed)
        try:
            write_manifest(self.folder, manifest)
        except OSError as error:
            raise StorageError(
                f"cannot write to {self.folder}: {error.strerror or error}. The model is as it was before the call."
            ) from error
        with _after_the_fact(self.folder):
            sync_folder(self.folder)
            self.journal.clear()
            sweep(self.folder, manifest)
        return self.snapshot(manifest)

    def waiting(self) -> bool:
        """Whether a lesson that was written down waits to be learned."""
        return self.journal.pending(read_manifest(self.folder).next_number)

    def complete(self) -> Snapshot:
        """Learn a lesson that a killed process left in the journal, and sweep up after it."""
        with self._writing() as manifest:
            return self.snapshot(manifest)

    @contextmanager
    def _writing(self) -> Iterator[Manifest]:
        """The lock, and the folder as the last writer would have left it."""
        with self._locked():
            manifest = read_manifest(self.folder)
            if self.journal.pending(manifest.next_number):
                manifest = self._completed(manifest)
            elif has_strays(self.folder, manifest):
                sweep(self.folder, manifest)
            yield manifest

    def _completed(self, manifest: Manifest) -> Manifest:
        try:
            lesson, originals = self.journal.read(manifest.next_number)
            self.images.originals.remember(lesson.examples, originals)
            self._commit(manifest, self.teacher().learned(self.snapshot(manifest), lesson))
        except OSError as error:
            raise StorageError(
                f"a lesson that was cut short waits in {self.folder} and cannot be completed: {error.strerror or error}. "
                "It is not lost."
            ) from error
        except FsclError as error:
            raise type(error)(
                f"a lesson that was cut short cannot be completed: {error} Drop it with `fscl undo {self.folder}`."
            ) from error
        return read_manifest(self.folder)

    def _commit(self, manifest: Manifest, after: Snapshot, *, final: bool = False) -> Snapshot:
        record = write_state(self.folder, manifest.next_number, after, self.images, self.cached, anew=final)
        states = (record,) if final else (*manifest.states, record)
        keep = manifest.settings.keep_states
        shortened = final or (keep is not None and len(states) > keep + 1)
        if keep is not None:
            states = states[max(0, len(states) - keep - 1) :]
        dropped = shortened or bool(manifest.undone)
        changed = {"states": states, "undone": (), "next_number": record.number + 1}
        newer = manifest.model_copy(update={**changed, "begins_empty": manifest.begins_empty and not shortened})
        write_manifest(self.folder, newer)
        self._last = newer.seal, after
        with _after_the_fact(self.folder):
            sync_folder(self.folder)
            self.journal.clear()
            if dropped:
                sweep(self.folder, newer)
        return after

    @contextmanager
    def _or_as_before(self) -> Iterator[None]:
        """What fails leaves no trace; a process that is killed has no time for this, and its lesson is completed."""
        try:
            yield
        except BaseException as error:
            with suppress(OSError, FsclError):
                self.journal.clear()
                sweep(self.folder, read_manifest(self.folder))
            if isinstance(error, OSError):
                raise StorageError(
                    f"cannot write to {self.folder}: {error.strerror or error}. The model is as it was before the call."
                ) from error
            raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if not (self.folder / NAME).is_file():
            read_manifest(self.folder)  # says what is wrong
        for name in FOLDERS:
            if (self.folder / name).is_symlink():
                raise StorageError(
                    f"{self.folder / name} is a link; nothing outside the model's folder is written. Delete it."
                )
        with writing(self.folder, timeout=self.timeout):
            yield


def check_free(folder: Path) -> None:
    """Refuse a folder that cannot become a new model's."""
    if folder.name in ("", ".."):
        raise MisuseError(f"{folder} is a place and no name; give the model a name of its own, such as my-model.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MisuseError(f"{folder} is there already, and not empty; give the model a name of its own.")


@contextmanager
def _after_the_fact(folder: Path) -> Iterator[None]:
    """For what comes after a commit: its failure does not take the change back, and must not say so."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{folder} was changed as asked, but what follows failed: {error.strerror or error}. It is a whole model; the "
            "next change sweeps up."
        ) from error


def _write_new(
    folder: Path, teacher: Teacher, states: Sequence[Snapshot], originals: OriginalStore | None = None
) -> None:
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
    records = tuple(write_state(folder, number, each, store, cached) for number, each in enumerate(written, start=1))
    changes = {"states": records, "next_number": len(records) + 1, "begins_empty": begins_empty}
    write_manifest(folder, manifest.model_copy(update=changes))
    for name in (*FOLDERS, "."):
        sync_folder(folder / name)
