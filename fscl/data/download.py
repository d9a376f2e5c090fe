"""Where data files are looked for, how they are fetched, and how a foreign archive is read.

A download is whole and has the right checksum, or is not there at all. An archive is read in place, never unpacked; one
with an entry whose path leaves its folder, that is a link, damaged or too large is refused, and the entry named.
"""

import hashlib
import logging
import os
import stat
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from fscl.errors import DataError
from fscl.storage import cache_folder

TIMEOUT = 30  # seconds without a byte
MAX_ARCHIVE_BYTES = 256 * 2**20
MAX_ENTRIES = 100_000
MAX_ENTRY_BYTES = 2**20
_CHUNK = 64 * 1024  # bytes
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, ValueError, OverflowError)

Files = Mapping[str, Callable[[], bytes]]


def data_folders() -> list[Path]:
    """The folders in which data is looked for, in order: `FSCL_DATA` if it is set, then the user's cache."""
    given = os.environ.get("FSCL_DATA")
    return [*([Path(given)] if given else []), cache_folder() / "data"]


def find_in_data_folders(candidates: Sequence[str | Path], *, first: Path | None = None) -> Path | None:
    """The first path that exists, trying every candidate in one data folder before the next.

    Args:
        candidates: paths relative to a data folder.
        first: a folder to try before the others.
    """
    for folder in [*([first] if first else []), *data_folders()]:
        for candidate in candidates:
            if (folder / candidate).exists():
                return folder / candidate
    return None


def download(url: str, *, md5: str, folder: Path, filename: str, progress: bool = True) -> Path:
    """Fetch a file into `folder`, unless it is there already with the right checksum.

    It is written under another name and takes its own only when it is whole and its checksum is right.

    Args:
        url: where it comes from.
        md5: the checksum it must have.
        folder: where it goes; made if needed.
        filename: what it is called there.
        progress: show a bar on stderr, if that is a terminal.
    """
    import pooch  # slow to import, and rarely needed
    from requests import RequestException

    shown = progress and sys.stderr.isatty()
    try:
        with _quiet(pooch.get_logger()), closing(_Bar(filename)) if shown else nullcontext() as bar:
            downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=_CHUNK, timeout=TIMEOUT)
            return Path(pooch.retrieve(url, f"md5:{md5}", fname=filename, path=folder, downloader=downloader))
    except RequestException as error:
        problem = _network_problem(error)
    except OSError as error:
        problem = f"cannot write to {folder} ({error.strerror or error})"
    except ValueError as error:
        if "hash" not in str(error):
            raise
        problem = f"what came has another checksum than md5 {md5}, so it was not kept"
    raise DataError(
        f"cannot fetch {filename} from {url}: {problem}. Try again, put the file at {folder / filename} by hand, "
        "or set FSCL_DATA to a folder that has the data."
    )


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


def _network_problem(error: Exception) -> str:
    from requests import exceptions

    if isinstance(error, exceptions.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}".rstrip()
    if isinstance(error, exceptions.Timeout):
        return f"no answer within {TIMEOUT} s"
    if isinstance(error, exceptions.ChunkedEncodingError):
        return "the connection broke before the file was whole"
    if isinstance(error, exceptions.ConnectionError):
        return "no connection to the server"
    return f"the request failed ({type(error).__name__})"


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Bar:
    """A rich progress bar with the four names by which pooch drives one."""

    def __init__(self, label: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._task = self._progress.add_task(label, total=None)
        self._progress.start()

    @property
    def total(self) -> float | None:
        return self._progress.tasks[0].total

    @total.setter
    def total(self, n_bytes: float) -> None:
        self._progress.update(self._task, total=n_bytes or None)  # 0 is "unknown" in pooch, None in rich

    def update(self, n_bytes: float) -> None:
        self._progress.advance(self._task, n_bytes)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.stop()
