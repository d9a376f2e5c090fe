"""What is asked of every foreign archive, whatever its kind: bounded sizes, and no path that leads out of it."""

import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Files = Mapping[str, Callable[[], bytes]]  # by path: a function that reads the file

# what readers of archives raise on damaged ones
DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, ValueError, OverflowError)


@dataclass(frozen=True)
class Limits:
    """How large what is read may be; for an archive `whole_bytes` holds for the file, and for what is packed in it."""

    whole_bytes: int
    entries: int
    entry_bytes: int


DRAWINGS = Limits(whole_bytes=256 * 2**20, entries=100_000, entry_bytes=2**20)
PHOTOS = Limits(whole_bytes=16 * 2**30, entries=250_000, entry_bytes=32 * 2**20)


def leaves_folder(name: str) -> bool:
    """Whether an entry's path could lead out of the folder that it is unpacked in."""
    parts = name.removesuffix("/").split("/")
    return "\\" in name or "\0" in name or ":" in parts[0] or not {"", ".", ".."}.isdisjoint(parts)
