"""One writer at a time. A second one waits for a while, and is then told who writes.

Two locks are held: one on a file (`filelock`), and, where the system can, one on the folder itself. A file can be deleted
while it is locked, and the next writer would lock another one of the same name; the folder cannot.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from fscl.errors import ModelBusy, StorageError

if sys.platform != "win32":  # there a file that is open cannot be deleted
    import fcntl

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
            raise StorageError(
                f"{folder / name} is a link; nothing outside the model's folder is written. Remove the link."
            )
    until = time.monotonic() + timeout
    lock = FileLock(folder / NAME)
    with ExitStack() as held:
        try:
            held.enter_context(holding(folder, until=until))
            lock.acquire(timeout=max(0.0, until - time.monotonic()), poll_interval=POLL_EVERY)
            held.callback(lock.release)
        except Timeout as error:
            raise ModelBusy(f"{_holder(folder)} is changing {folder}; wait for it to end, then try again.") from error
        except OSError as error:
            raise StorageError(f"cannot write to {folder}: {error.strerror}.") from error
        with suppress(OSError):  # a full disk shall not keep anyone from undoing
            (folder / HOLDER).write_text(str(os.getpid()))
        yield


@contextmanager
def holding(folder: Path, *, until: float) -> Iterator[None]:
    """Hold a folder itself, whatever becomes of the files in it; where the system cannot, nothing is held.

    Args:
        folder: that exists.
        until: the time, of the monotonic clock, at which waiting for another ends with a `Timeout`.
    """
    if sys.platform == "win32":
        yield
        return
    descriptor = None
    try:
        while True:
            descriptor = os.open(folder, os.O_RDONLY)
            _wait_for(descriptor, folder, until)
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                break
            os.close(descriptor)  # the folder was replaced while we waited
            descriptor = None
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def is_abandoned(folder: Path) -> bool:
    """Whether it is certain that no process that lives holds a folder."""
    if sys.platform == "win32":
        return False
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _wait_for(descriptor: int, folder: Path, until: float) -> None:
    while sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= until:
                raise Timeout(str(folder)) from error
            time.sleep(POLL_EVERY)
        except OSError:  # a file system that locks no folders: the lock on the file has to do
            return
        else:
            return


def _holder(folder: Path) -> str:
    try:
        number = (folder / HOLDER).read_text()[:20].strip()
    except (OSError, ValueError):
        number = ""
    return f"process {number}" if number.isdigit() else "another process"
