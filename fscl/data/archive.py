"""Foreign archives and folders, read safely.

An archive is read in place, never unpacked; one with an entry whose path leaves its folder, that is a link, damaged or too
large is refused, and the entry named.
"""

import hashlib
import os
import stat
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from fscl.data.limits import DAMAGE, DRAWINGS, Files, Limits, leaves_folder
from fscl.data.tarball import TAR_ENDINGS, open_tar
from fscl.errors import DataError

ARCHIVE_ENDINGS = (".zip", *TAR_ENDINGS)


@contextmanager
def open_files(source: Path, limits: Limits = DRAWINGS) -> Iterator[Files]:
    """The files of a zip or tar archive, or of an unpacked folder, by their path in it: each a function that reads it.

    A folder's own name starts the paths, as it does in an archive made of it. Every path is checked before any is given. An
    archive's files come in its own order: a compressed tar is read in no other without starting again.
    """
    with ExitStack() as stack:
        try:
            if source.is_dir():
                files: Files = {
                    name: partial(_read_file, source, name, limits) for name in _folder_files(source, limits)
                }
            elif source.stat().st_size > limits.whole_bytes:
                raise DataError(f"{source} is refused: it has over {limits.whole_bytes:,} bytes.")
            elif source.name.lower().endswith(TAR_ENDINGS):
                files = stack.enter_context(open_tar(source, limits))
            else:
                archive = stack.enter_context(_open_zip(source, limits))
                entries = [entry for entry in archive.infolist() if not entry.is_dir()]
                files = {entry.filename: partial(_read_entry, source, archive, entry) for entry in entries}
        except OSError as error:
            raise DataError(f"{source} cannot be read ({error.strerror}).") from error
        yield files


def _open_zip(source: Path, limits: Limits) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(source)
    except DAMAGE as error:
        raise DataError(f"{source} is refused: it is not a whole zip archive ({error}).") from error
    try:
        _check_entries(source, archive.infolist(), limits)
    except DataError:
        archive.close()
        raise
    return archive


def fingerprint(source: Path, limits: Limits = DRAWINGS) -> str:
    """A hash of an archive's bytes, or of the names, sizes and times of a folder's files."""
    sha = hashlib.sha256()
    try:
        if not source.is_dir():
            with source.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        for name, entry in _folder_files(source, limits).items():
            status = entry.stat()
            sha.update(f"{name}|{status.st_size}|{status.st_mtime_ns}\n".encode(errors="surrogateescape"))
    except OSError as error:
        raise DataError(f"{source} cannot be read ({error.strerror}).") from error
    return sha.hexdigest()


def _check_entries(source: Path, entries: Sequence[zipfile.ZipInfo], limits: Limits) -> None:
    if len(entries) > limits.entries:
        raise DataError(f"{source} is refused: it has {len(entries):,} entries; at most {limits.entries:,} are read.")
    if sum(entry.file_size for entry in entries) > limits.whole_bytes:
        raise DataError(f"{source} is refused: unpacked it would have over {limits.whole_bytes:,} bytes.")
    seen: set[str] = set()
    for entry in entries:
        problem = _entry_problem(entry, limits)
        if problem is None and entry.filename in seen:
            problem = "is there twice"
        if problem is not None:
            raise DataError(f"{source} is refused: its entry {entry.orig_filename!r} {problem}.")
        seen.add(entry.filename)


def _entry_problem(entry: zipfile.ZipInfo, limits: Limits) -> str | None:
    if leaves_folder(entry.orig_filename):  # `filename` is already cut at a NUL
        return "has a path that leaves its folder"
    if stat.S_ISLNK(entry.external_attr >> 16):
        return "is a link"
    if entry.flag_bits & 0x1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is encrypted, or compressed in an unusual way"
    if entry.file_size > limits.entry_bytes:
        return f"would have {entry.file_size:,} bytes, over the {limits.entry_bytes:,} that are read"
    return None


def _read_entry(source: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    try:
        return archive.read(entry)  # checks the CRC, and never gives more than the size in the entry
    except DAMAGE as error:
        raise DataError(f"{source} is refused: its entry {entry.filename!r} is damaged ({error}).") from error


def _folder_files(folder: Path, limits: Limits) -> dict[str, os.DirEntry[str]]:
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
        if len(files) > limits.entries:
            raise DataError(f"{folder} is refused: it has more than the {limits.entries:,} files that are read.")
    return dict(sorted(files.items()))


def _read_file(folder: Path, name: str, limits: Limits) -> bytes:
    path = folder.parent / name
    try:
        if path.is_file() and path.stat().st_size <= limits.entry_bytes:
            return path.read_bytes()
    except OSError as error:
        raise DataError(f"{folder} is refused: its entry {name!r} cannot be read ({error.strerror}).") from error
    raise DataError(f"{folder} is refused: its entry {name!r} is no file of at most {limits.entry_bytes:,} bytes.")
