"""Foreign archives and folders, read safely.

An archive is read in place, never unpacked; one with an entry whose path leaves its folder, that is a link, damaged or too
large is refused, and the entry named.
"""

import hashlib
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from fscl.errors import DataError

MAX_ARCHIVE_BYTES = 256 * 2**20
MAX_ENTRIES = 100_000
MAX_ENTRY_BYTES = 2**20
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, ValueError, OverflowError)

Files = Mapping[str, Callable[[], bytes]]


@contextmanager
def open_files(source: Path) -> Iterator[Files]:
    """The files of a zip archive, or of an unpacked folder, by their path in it: each a function that reads it.

    A folder's own name starts the paths, as it does in an archive made of it. Every path is checked before any is given.
    """
    with ExitStack() as stack:
        try:
            if source.is_dir():
                files = {name: partial(_read_file, source, name) for name in _folder_files(source)}
            else:
                archive = stack.enter_context(_open_archive(source))
                entries = [entry for entry in archive.infolist() if not entry.is_dir()]
                files = {entry.filename: partial(_read_entry, source, archive, entry) for entry in entries}
        except OSError as error:
            raise DataError(f"{source} cannot be read ({error.strerror}).") from error
        yield files


def _open_archive(source: Path) -> zipfile.ZipFile:
    if source.stat().st_size > MAX_ARCHIVE_BYTES:
        raise DataError(f"{source} is refused: it has over {MAX_ARCHIVE_BYTES:,} bytes.")
    try:
        archive = zipfile.ZipFile(source)
    except _DAMAGE as error:
        raise DataError(f"{source} is refused: it is not a whole zip archive ({error}).") from error
    try:
        _check_entries(source, archive.infolist())
    except DataError:
        archive.close()
        raise
    return archive


def fingerprint(source: Path) -> str:
    """A hash of an archive's bytes, or of the names, sizes and times of a folder's files."""
    sha = hashlib.sha256()
    try:
        if not source.is_dir():
            with source.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        for name, entry in _folder_files(source).items():
            status = entry.stat()
            sha.update(f"{name}|{status.st_size}|{status.st_mtime_ns}\n".encode(errors="surrogateescape"))
    except OSError as error:
        raise DataError(f"{source} cannot be read ({error.strerror}).") from error
    return sha.hexdigest()


def _check_entries(source: Path, entries: Sequence[zipfile.ZipInfo]) -> None:
    if len(entries) > MAX_ENTRIES:
        raise DataError(f"{source} is refused: it has {len(entries):,} entries; at most {MAX_ENTRIES:,} are read.")
    if sum(entry.file_size for entry in entries) > MAX_ARCHIVE_BYTES:
        raise DataError(f"{source} is refused: unpacked it would have over {MAX_ARCHIVE_BYTES:,} bytes.")
    seen: set[str] = set()
    for entry in entries:
        problem = _entry_problem(entry)
        if problem is None and entry.filename in seen:
            problem = "is there twice"
        if problem is not None:
            raise DataError(f"{source} is refused: its entry {entry.orig_filename!r} {problem}.")
        seen.add(entry.filename)


def _entry_problem(entry: zipfile.ZipInfo) -> str | None:
    name = entry.orig_filename  # `filename` is already cut at a NUL
    parts = name.removesuffix("/").split("/")
    if "\\" in name or "\0" in name or ":" in parts[0] or not {"", ".", ".."}.isdisjoint(parts):
        return "has a path that leaves its folder"
    if stat.S_ISLNK(entry.external_attr >> 16):
        return "is a link"
    if entry.flag_bits & 0x1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is encrypted, or compressed in an unusual way"
    if entry.file_size > MAX_ENTRY_BYTES:
        return f"would have {entry.file_size:,} bytes, over the {MAX_ENTRY_BYTES:,} that are read"
    return None


def _read_entry(source: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    try:
        return archive.read(entry)  # checks the CRC, and never gives more than the size in the entry
    except _DAMAGE as error:
        raise DataError(f"{source} is refused: its entry {entry.filename!r} is damaged ({error}).") from error


def _folder_files(folder: Path) -> dict[str, os.DirEntry[str]]:
    """The files under a folder by their path in it, sorted; links, which may lead out of it, are refused."""
    files: dict[str, os.DirEntry[str]] = {}
    waiting = [(folder.name, str(folder))]
    while waiting:
        prefix, where = waiting.pop()
        with os.scandir(where) as entries:
            for entry in entries:
                name = f"{prefix}/{entry.name}"
                if entry.is_symlink():
                    raise DataError(f"{folder} is refused: its entry {name!r} is a link.")
                if entry.is_dir():
                    waiting.append((name, entry.path))
                else:
                    files[name] = entry
        if len(files) > MAX_ENTRIES:
            raise DataError(f"{folder} is refused: it has more than the {MAX_ENTRIES:,} files that are read.")
    return dict(sorted(files.items()))


def _read_file(folder: Path, name: str) -> bytes:
    path = folder.parent / name
    try:
        if path.is_file() and path.stat().st_size <= MAX_ENTRY_BYTES:
            return path.read_bytes()
    except OSError as error:
        raise DataError(f"{folder} is refused: its entry {name!r} cannot be read ({error.strerror}).") from error
    raise DataError(f"{folder} is refused: its entry {name!r} is no file of at most {MAX_ENTRY_BYTES:,} bytes.")
