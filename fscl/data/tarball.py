"""Tar archives, plain or gzipped, read safely and in place.

A tar has no list of its entries: each header is checked as it is met, before what it announces is passed over, so that an
archive that would unpack to far more than it should is refused at its first bad header. A tar that was cut short is known
by its missing end mark, which Python's own reader does not ask for.
"""

import gzip
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from fscl.data.limits import DAMAGE, Files, Limits, leaves_folder
from fscl.errors import DataError

TAR_ENDINGS = (".tar", ".tar.gz", ".tgz")
_DAMAGE = (tarfile.TarError, gzip.BadGzipFile, *DAMAGE)


class _BoundedGzip(gzip.GzipFile):
    """Never gives more at once than an entry may have: long names and such are read whole before they can be judged."""

    most = 0

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= self.most:
            raise OSError(f"it asks for more than {self.most:,} bytes at once")
        return super().read(size)


@contextmanager
def open_tar(source: Path, limits: Limits) -> Iterator[Files]:
    """The files of a tar by their path in it, in its order; see `fscl.data.archive.open_files`."""
    with ExitStack() as stack:
        raw: IO[bytes] = stack.enter_context(source.open("rb"))
        if source.suffix.lower() != ".tar":
            unpacked = stack.enter_context(_BoundedGzip(fileobj=raw, mode="rb"))
            unpacked.most = limits.entry_bytes
            raw = unpacked  # type: ignore[assignment]  # a GzipFile reads, seeks and tells, which is all a tar needs
        try:
            archive = stack.enter_context(tarfile.open(fileobj=raw, mode="r:"))
            entries = _entries(source, archive, raw, limits)
        except _DAMAGE as error:
            raise DataError(f"{source} is refused: it is not a whole tar archive ({error}).") from error
        yield {name: partial(_read, source, archive, entry) for name, entry in entries.items()}


def _entries(source: Path, archive: tarfile.TarFile, raw: IO[bytes], limits: Limits) -> dict[str, tarfile.TarInfo]:
    entries: dict[str, tarfile.TarInfo] = {}
    for number, entry in enumerate(archive, start=1):
        if number > limits.entries:
            raise DataError(f"{source} is refused: it has more than the {limits.entries:,} entries that are read.")
        problem = _problem(entry, limits)
        name = entry.name.removeprefix("./")
        if problem is None and name in entries:
            problem = "is there twice"
        if problem is not None:
            raise DataError(f"{source} is refused: its entry {entry.name!r} {problem}.")
        if archive.offset > limits.whole_bytes:  # where the next header is
            raise DataError(f"{source} is refused: unpacked it would have over {limits.whole_bytes:,} bytes.")
        if entry.isfile():
            entries[name] = entry
    raw.seek(archive.offset)
    if raw.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
        raise tarfile.ReadError(f"no end mark after {len(entries):,} files: it is cut short, or damaged there")
    return entries


def _problem(entry: tarfile.TarInfo, limits: Limits) -> str | None:
    if entry.name != "." and leaves_folder(entry.name.removeprefix("./")):  # `tar -C folder .` starts every name so
        return "has a path that leaves its folder"
    if entry.issym() or entry.islnk():
        return "is a link"
    if not (entry.isdir() or entry.isreg()) or entry.issparse():
        return "is neither a plain file nor a folder"
    if not 0 <= entry.size <= limits.entry_bytes:
        return f"would have {entry.size:,} bytes, over the {limits.entry_bytes:,} that are read"
    return None


def _read(source: Path, archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    try:
        file = archive.extractfile(entry)
        content = b"" if file is None else file.read()
    except _DAMAGE as error:
        raise DataError(f"{source} is refused: its entry {entry.name!r} is damaged ({error}).") from error
    if len(content) != entry.size:
        raise DataError(f"{source} is refused: its entry {entry.name!r} is cut short.")
    return content
