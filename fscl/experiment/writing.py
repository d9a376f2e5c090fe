"""The driver's pen: finished cells come to the run directory in a thread of its own, all that wait at once.

Who computes cells need not wait for the disk, and a disk that is slow gets larger batches. A cell counts as finished when it
is on disk; what waits here when the driver is killed is computed again.
"""

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fscl.errors import RunError
from fscl.experiment.plan import Cell, Finished
from fscl.experiment.record import RunRecord

MOST_WAITING = 1000  # cells; who brings more waits
_END = None


class CellWriter:
    """Writes finished cells of one run. Close it in the end, whatever has happened."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._waiting: queue.Queue[tuple[Cell, Finished] | None] = queue.Queue(MOST_WAITING)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._write, name="fscl-writer")
        self._thread.start()

    def add(self, cell: Cell, finished: Finished) -> None:
        """Have a cell written; an error if an earlier one could not be."""
        if self._error is not None:
            raise self._error
        self._waiting.put((cell, finished))

    def close(self) -> None:
        """Wait until all is written."""
        self._waiting.put(_END)
        self._thread.join()

    def check(self) -> None:
        """An error if one of the cells could not be written."""
        if self._error is not None:
            raise self._error

    def _write(self) -> None:
        is_open = True
        while is_open:
            batch = [self._waiting.get()]
            while not self._waiting.empty():
                batch.append(self._waiting.get())
            is_open = _END not in batch
            cells = [one for one in batch if one is not None]
            if cells and self._error is None:  # after an error the rest is passed over: it is computed again
                try:
                    with disk_errors(self._record.folder):
                        self._record.append_all(cells)
                except Exception as error:  # it belongs to the thread that brings the cells
                    self._error = error


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """What a full or broken disk says, in a sentence."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write to {folder}: {error.strerror or error}. Finished cells are kept; make room, and the same command "
            "continues."
        ) from error
