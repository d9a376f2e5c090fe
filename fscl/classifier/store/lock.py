"""One writer at a time. A second one waits for a while, and is then told who writes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from fscl.errors import ModelBusy, StorageError

NAME = "lock"
HOLDER = "writer"  # the number of the process that holds the lock, or held it last; filelock may empty its own file
TIMEOUT = 10.0  # seconds that a writer waits for another
POLL_EVERY = 0.02  # seconds


@contextmanager
def writing(folder: Path, *, timeout: float = TIMEOUT) -> Iterator[None]:
    """Hold the lock of a folder until the block ends or the process dies; wait while another holds it.

    Args:
        folder: of a model.
        timeout: seconds to wait at most.
    """
    for name in (NAME, HOLDER):
        if (folder / name).is_symlink():
            raise StorageError(f"{folder / name} is a link; nothing outside the model's folder is written. Delete it.")
    lock = FileLock(folder / NAME)
    try:
        lock.acquire(timeout=timeout, poll_interval=POLL_EVERY)
    except Timeout as error:
        raise ModelBusy(f"{_holder(folder)} is changing {folder}; wait for it to end, then try again.") from error
    except OSError as error:
        raise StorageError(f"cannot write to {folder}: {error.strerror}.") from error
    try:
        with suppress(OSError):  # a full disk shall not keep anyone from undoing
            (folder / HOLDER).write_text(str(os.getpid()))
        yield
    finally:
        lock.release()


def _holder(folder: Path) -> str:
    try:
        number = (folder / HOLDER).read_text()[:20].strip()
    except (OSError, ValueError):
        number = ""
    return f"process {number}" if number.isdigit() else "another process"
