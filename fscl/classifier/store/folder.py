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

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from fscl.classifier.knowledge import Lesson
from fscl.classifier.labels import plain_labels
from fscl.classifier.store.cached import CachedRows
from fscl.classifier.store.creating import write_new_model
from fscl.classifier.store.failures import after_the_fact, not_written
from fscl.classifier.store.journal import Journal
from fscl.classifier.store.lock import TIMEOUT, writing
from fscl.classifier.store.manifest import (
    BASE,
    FORMAT,
    NAME,
    UNKNOWN,
    FileRecord,
    Manifest,
    StateRecord,
    read_manifest,
    verify,
    write_manifest,
)
from fscl.classifier.store.originals import OriginalStore
from fscl.classifier.store.sheets import ImageStore
from fscl.classifier.store.size import bytes_in
from fscl.classifier.store.states import (
    Content,
    content_of,
    n_changes,
    needed_by,
    read_content,
    read_contents,
    read_state,
    with_unknown,
    without_unknown,
    write_state,
)
from fscl.classifier.store.sweep import FOLDERS, has_strays, sweep
from fscl.classifier.store.whole import check_lesson
from fscl.classifier.teacher import Snapshot, Teacher
from fscl.errors import FsclError, MisuseError, ModelBusy, ModelReplaced, StorageError
from fscl.meta.shipped import load_base
from fscl.nets.network import Network
from fscl.nets.precomputed import precomputed_features
from fscl.storage import sync_folder

READ_ATTEMPTS = 50
REPAIR = "Or let `fscl repair {}` go back to the newest whole state; it keeps the damaged files."


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
        self._identity: str | None = None  # of the model that the teacher is of
        self._last: tuple[str, Snapshot, Content | None] | None = None  # what was read or written last, under its seal

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
        write_new_model(folder, teacher, states, originals)
        with after_the_fact(folder):
            sync_folder(folder.parent)
        made = cls(folder, timeout=timeout)
        made.teacher()
        return made

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
            except StorageError as error:
                newer = read_manifest(self.folder)
                if newer.seal == manifest.seal:
                    if len(manifest.states) > 1:
                        raise StorageError(f"{error} {REPAIR.format(self.folder)}") from error
                    raise
                manifest = newer
        raise ModelBusy(f"{self.folder} is being changed all the time; try again.")

    def snapshot(self, manifest: Manifest) -> Snapshot:
        """The present state of a manifest."""
        self._check_same_model(manifest)
        if self._last is not None and self._last[0] == manifest.seal:
            return self._last[1]
        self.cached.lost = {Path(name).stem for name in manifest.lost}
        snapshot, content = self.teacher(manifest).empty(), None
        if manifest.states:
            content = read_content(self.folder, manifest.present_chain)
            snapshot = self.state(manifest.states[-1], content)
        self._last = manifest.seal, snapshot, content
        return snapshot

    def states(self) -> list[Snapshot]:
        """Every state that `undo` can reach, the present one last; where the model began empty, that first."""
        with self.locked() as manifest:
            contents = islice(read_contents(self.folder, manifest.present_chain), len(manifest.ground), None)
            found = [self.state(*each) for each in zip(manifest.states, contents, strict=True)]
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
            self._teacher, self._identity = Teacher(network, manifest.settings), manifest.identity
            self.base_record = manifest.base_file
        return self._teacher

    def _check_same_model(self, manifest: Manifest) -> None:
        """A folder may be replaced by another model while we have it open: what is taught here is not for that one."""
        if self._identity is not None and manifest.identity != self._identity:
            raise ModelReplaced(
                f"{self.folder} holds another model now, with another base or other settings than the one that was loaded "
                "from it. Load it again."
            )

    def state(self, record: StateRecord, content: Content) -> Snapshot:
        """The state that a content says; sheets are read."""
        teacher = self.teacher()
        shape = teacher.network.picture_shape
        channels, image_size = shape or (1, 1)  # rows are on no sheet
        knowledge, state = read_state(
            self.folder,
            record,
            content,
            self.images,
            self.cached,
            image_size=image_size,
            channels=channels,
            row_width=teacher.network.n_features if shape is None else None,
        )
        return teacher.snapshot(knowledge, state)

    def n_bytes(self) -> int:
        """Bytes of everything in the folder."""
        return bytes_in(self.folder)

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
        self._mark(number)
        return self.images.originals.write(lesson.examples, lesson.originals)

    def _mark(self, number: int) -> None:
        """If the process is killed before a commit, an empty state tells the next writer to sweep."""
        (self.folder / "states" / f"{number:06}").mkdir(exist_ok=True)

    def change(self, made: Callable[[Teacher, Snapshot], Snapshot], *, final: bool = False) -> Snapshot:
        """Commit what `made` makes of the present state; `final` removes every earlier one, and all that they held."""
        with self._writing() as manifest:
            after = made(self.teacher(), self.snapshot(manifest))
            with self._or_as_before():
                return self._commit(manifest, after, final=final)

    def undo(self, n_calls: int) -> Snapshot:
        """Go back by so many calls. A lesson that was cut short counts as one."""
        with self.locked() as manifest:
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
        every, pending = manifest.kept, self.journal.pending(manifest.next_number)
        # with the next number a lesson that waits is none any more: both are dropped at once
        changed = {
            "states": every[:n_states],
            "undone": every[n_states:],
            "next_number": manifest.next_number + pending,
        }
        there = self.snapshot(manifest.model_copy(update=changed))  # read first: who cannot go there stays
        earlier = max(0, n_states - 1)
        states = (*map(without_unknown, every[:earlier]), *every[earlier:n_states])
        changed["states"] = self.as_present(manifest, states, there)
        changed["undone"] = tuple(map(without_unknown, every[n_states:]))
        newer = manifest.model_copy(update={**changed, "format": FORMAT})
        try:
            write_manifest(self.folder, newer)
        except OSError as error:
            with suppress(OSError, FsclError):
                sweep(self.folder, manifest)
            raise not_written(self.folder, error) from error
        self._last = newer.seal, there, None if self._last is None else self._last[2]
        with after_the_fact(self.folder):
            sync_folder(self.folder)
            self.journal.clear()
            sweep(self.folder, newer)
        return there

    def as_present(
        self, manifest: Manifest, states: tuple[StateRecord, ...], snapshot: Snapshot
    ) -> tuple[StateRecord, ...]:
        """The records of these states, the last of them with what the present state alone has on disk."""
        if not states or UNKNOWN in states[-1].files:
            return states
        try:
            self._mark(manifest.next_number)
            return (*states[:-1], with_unknown(self.folder, states[-1], snapshot.knowledge))
        except OSError:  # a full disk shall not keep anyone from undoing: it is computed when it is asked for
            return states

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
        with self.locked() as manifest:
            if waits := self.journal.pending(manifest.next_number):
                manifest = self._completed(manifest)
            if waits or has_strays(self.folder, manifest):  # what was half written lies in the state that is there now
                sweep(self.folder, manifest)
            yield manifest

    def _completed(self, manifest: Manifest) -> Manifest:
        try:
            lesson, originals = self.journal.read(manifest.next_number)
            check_lesson(lesson.examples, self.teacher(manifest).network)
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
        number, keep = manifest.next_number, manifest.settings.keep_states
        self._mark(number)
        content = content_of(after, self.images, self.cached, anew=final)
        record = write_state(self.folder, number, content, before=self._to_build_on(manifest, final=final))
        record = with_unknown(self.folder, record, after.knowledge)
        states = (record,) if final else (*map(without_unknown, manifest.states), record)
        shortened = final or (keep is not None and len(states) > keep + 1)
        if keep is not None:
            states = states[max(0, len(states) - keep - 1) :]
        dropped = shortened or bool(manifest.undone)
        ground = needed_by(states[0], manifest.present_chain)
        changed = {"states": states, "ground": ground, "undone": (), "next_number": number + 1, "format": FORMAT}
        newer = manifest.model_copy(update={**changed, "begins_empty": manifest.begins_empty and not shortened})
        write_manifest(self.folder, newer)
        self._last = newer.seal, after, content
        with after_the_fact(self.folder):
            sync_folder(self.folder)
            self.journal.clear()
            if dropped:
                sweep(self.folder, newer)
            elif manifest.states:
                (self.folder / manifest.states[-1].folder / UNKNOWN).unlink(missing_ok=True)
        return after

    def _to_build_on(self, manifest: Manifest, *, final: bool) -> tuple[Content, Sequence[StateRecord]] | None:
        """The state of now, for the next one to say only what differs; None where the next one shall stand alone.

        After a `forget` nothing of before may be left. With `keep_states` at most so many in a row say only what differs.
        """
        if final or not manifest.states:
            return None
        keep, chain = manifest.settings.keep_states, manifest.present_chain
        if keep is not None and n_changes(chain) >= keep:
            return None
        self.snapshot(manifest)
        content = None if self._last is None else self._last[2]
        return None if content is None else (content, chain)

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
                raise not_written(self.folder, error) from error
            raise

    @contextmanager
    def locked(self) -> Iterator[Manifest]:
        """The lock, and what the folder is while it is held."""
        if not (self.folder / NAME).is_file():
            read_manifest(self.folder)  # says what is wrong
        for name in FOLDERS:
            if (self.folder / name).is_symlink():
                raise StorageError(
                    f"{self.folder / name} is a link; nothing outside the model's folder is written. Put a folder there."
                )
        with writing(self.folder, timeout=self.timeout):
            manifest = read_manifest(self.folder)
            self._check_same_model(manifest)
            yield manifest
