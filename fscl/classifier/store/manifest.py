"""`model.json`: which states a model has, and the fingerprint of every file.

It is written last, in one piece, and so decides what the model is: files that it does not name are not part of it.
"""

import hashlib
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fscl.classifier.settings import ClassifierSettings, first_fault
from fscl.errors import StorageError
from fscl.storage import digest, read_json, write_json

FORMAT = 3  # of 1 every state was whole; of 2 none built on one that cannot be gone to
READABLE = (1, 2, FORMAT)
MAX_FILE_BYTES = 4 * 2**30
MAX_NUMBER = 2**53  # what every reader of JSON can hold
NAME = "model.json"
BASE = "base.safetensors"
STATE_FILES = ("learner.safetensors", "state.json")
UNKNOWN = "unknown.safetensors"  # of the present state alone: it can be computed again

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class FileRecord(BaseModel):
    """What a file must be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: Sha256
    n_bytes: Annotated[int, Field(ge=0, le=MAX_FILE_BYTES)]


class StateRecord(BaseModel):
    """One state: the files in `states/<number>/`.

    Attributes:
        parent: the state before it, if the files hold only what differs from that one; None if they hold all of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: Annotated[int, Field(ge=1, le=MAX_NUMBER)]
    files: dict[str, FileRecord]
    parent: int | None = None

    @property
    def folder(self) -> str:
        """Its folder in the model's."""
        return f"states/{self.number:06}"


class Manifest(BaseModel):
    """What `model.json` says.

    Attributes:
        row_width: numbers in a row, for a model of rows; None for one of pictures.
        base_file: the base network, for a model of pictures.
        next_number: of the next state; numbers are never used twice.
        begins_empty: whether the first state kept is that of the first call, so that undoing it leaves an empty model.
        states: those that can be gone back to, the present one last.
        ground: those before them that cannot be gone back to any more, and that the first of `states` builds on: a whole
            one, and what differs from there on. Empty unless `keep_states` has dropped some.
        lost: files that were damaged, and that `fscl repair` has put aside; the model does without them.
        undone: those that `undo` took back and `redo` brings again, the next one first; the next change drops them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int
    fscl: str
    settings: ClassifierSettings
    row_width: Annotated[int, Field(ge=1)] | None
    base_file: FileRecord | None
    next_number: Annotated[int, Field(ge=1, le=MAX_NUMBER)]
    begins_empty: bool
    states: tuple[StateRecord, ...]
    undone: tuple[StateRecord, ...] = ()
    ground: tuple[StateRecord, ...] = ()
    lost: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _states_follow_one_another(self) -> "Manifest":
        before: int | None = None
        for state in self.stored:
            if state.number <= (before or 0) or state.number >= self.next_number:
                raise ValueError(f"state {state.number} is out of order")
            if state.parent is not None and state.parent != before:
                raise ValueError(f"state {state.number} builds on state {state.parent}, which is not the one before it")
            before = state.number
        return self

    @property
    def kept(self) -> tuple[StateRecord, ...]:
        """Every state that can be gone to."""
        return (*self.states, *self.undone)

    @property
    def stored(self) -> tuple[StateRecord, ...]:
        """Every state whose files belong to the model."""
        return (*self.ground, *self.kept)

    @property
    def present_chain(self) -> tuple[StateRecord, ...]:
        """What the present state, which is the last of them, can be read from."""
        return (*self.ground, *self.states)

    @property
    def identity(self) -> str:
        """A fingerprint of what never changes: another one is another model."""
        base = None if self.base_file is None else self.base_file.sha256
        return digest([self.settings.model_dump(mode="json"), self.row_width, base])

    @property
    def seal(self) -> str:
        """A fingerprint of all of it."""
        return digest(self.model_dump(mode="json"))

    @property
    def n_undoable(self) -> int:
        """How many calls can be undone."""
        earlier = len(self.states) if self.begins_empty else max(0, len(self.states) - 1)
        return earlier if self.settings.keep_states is None else min(earlier, self.settings.keep_states)


def new_manifest(settings: ClassifierSettings, *, row_width: int | None, base_file: FileRecord | None) -> Manifest:
    """That of a model that has learned nothing."""
    return Manifest(
        format=FORMAT,
        fscl=version("fscl"),
        settings=settings,
        row_width=row_width,
        base_file=base_file,
        next_number=1,
        begins_empty=True,
        states=(),
    )


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Make it so: the folder is this from now on."""
    manifest = manifest.model_copy(update={"format": FORMAT})
    write_json(folder / NAME, "model", {**manifest.model_dump(mode="json"), "seal": manifest.seal})


def read_manifest(folder: Path) -> Manifest:
    """What the folder is, or why it cannot be read."""
    path = folder / NAME
    try:
        there = path.is_file() and not path.is_symlink()
    except OSError as error:  # too long a name
        raise StorageError(f"{str(folder)[:100]}… cannot be read: {error.strerror or error}.") from error
    if not there:
        raise StorageError(f"{folder} is not a model: it has no {NAME}. `fscl new {folder}` makes one.")
    content = read_json(path, "model")
    found, seal = content.get("format"), content.pop("seal", None)
    if found not in READABLE:
        raise StorageError(
            f"{path} has format {found}, written by fscl {content.get('fscl', 'of an unknown version')}; this is fscl "
            f"{version('fscl')}, which reads formats up to {FORMAT}. Use the fscl that wrote it."
        )
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        where, _, rule = first_fault(error)
        raise StorageError(f"{path} is not a whole model: {where}: {rule}. Restore it from a copy.") from error
    if digest(content) != seal:  # of what was read: a version that knows fewer settings has sealed fewer
        raise StorageError(f"{path} was altered after it was written: its seal does not match. Restore it from a copy.")
    return manifest


def record_of(path: Path) -> FileRecord:
    """The fingerprint of a file."""
    with path.open("rb") as file:
        return FileRecord(sha256=hashlib.file_digest(file, "sha256").hexdigest(), n_bytes=path.stat().st_size)


def verify(path: Path, record: FileRecord) -> Path:
    """The path, if the file is there, is a plain one, and is what the record says."""
    try:
        return _verified(path, record)
    except OSError as error:  # it may go while it is being read: a writer moves on
        raise StorageError(f"{path} cannot be read: {error.strerror or error}. Restore it from a copy.") from error


def _verified(path: Path, record: FileRecord) -> Path:
    if path.is_symlink() or not path.is_file():
        what = "is a link" if path.is_symlink() else "is missing"
        raise StorageError(f"{path} {what}, but belongs to the model. Restore it from a copy.")
    size = path.stat().st_size
    if size != record.n_bytes:
        raise StorageError(f"{path} has {size:,} bytes and should have {record.n_bytes:,}. Restore it from a copy.")
    if record_of(path).sha256 != record.sha256:
        raise StorageError(
            f"{path} was altered after it was written: its SHA-256 does not match. Restore it from a copy."
        )
    return path
