"""One writer at a time, with a clear message for the second."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fscl.errors import ModelBusy, StorageError
from fscl.storage import try_lock

NAME = "lock"


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder until the block ends or the process dies; refused at once where another holds it."""
    path = folder / NAME
    if path.is_symlink():
        raise StorageError(f"{path} is a link; nothing outside the model's folder is written. Delete it.")
    try:
        file = path.open("a+")
    except OSError as error:
        raise StorageError(f"cannot write to {folder}: {error.strerror}.") from error
    with file:
        if not try_lock(file.fileno()):
            file.seek(0)
            holder = file.read(20).strip()
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise ModelBusy(f"{who} is changing {folder}; wait for it to end, then try again.")
        with suppress(OSError):  # a full disk shall not keep anyone from undoing
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        yield
