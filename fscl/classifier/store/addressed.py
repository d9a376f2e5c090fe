"""Files that are named by the SHA-256 of their content."""

import hashlib
from pathlib import Path

from fscl.errors import StorageError


def verified_content(path: Path, *, max_bytes: int, what: str) -> bytes:
    """The content of a plain file, if its name says what it holds.

    Args:
        path: its stem is the SHA-256 of its content.
        max_bytes: more are not read.
        what: such a file is, for the error.
    """
    if path.is_symlink() or not path.is_file():
        raise StorageError(f"{path} is missing or no plain file, but belongs to the model. Restore it from a copy.")
    try:
        if path.stat().st_size > max_bytes:
            raise StorageError(f"{path} has over {max_bytes:,} bytes, which no {what} has.")
        content = path.read_bytes()
    except OSError as error:  # it may go while it is being read: a writer moves on
        raise StorageError(f"{path} cannot be read: {error.strerror or error}. Restore it from a copy.") from error
    if hashlib.sha256(content).hexdigest() != path.stem:
        raise StorageError(f"{path} was altered after it was written. Restore it from a copy.")
    return content
