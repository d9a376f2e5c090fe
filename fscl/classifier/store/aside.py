"""Beside the transactions of a model's folder: its size, and what may fail after a commit without taking it back."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fscl.errors import StorageError


def bytes_in(folder: Path) -> int:
    """Bytes of everything in the folder."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # a writer moves on meanwhile
                status = os.lstat(Path(where) / name)
                total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total


@contextmanager
def after_the_fact(folder: Path) -> Iterator[None]:
    """For what comes after a commit: its failure does not take the change back, and must not say so."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{folder} was changed as asked, but what follows failed: {error.strerror or error}. It is a whole model; the "
            "next change sweeps up."
        ) from error
