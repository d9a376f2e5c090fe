"""Cells in spawned processes of this machine, each on one thread.

A process that dies (out of memory, or killed) is replaced, and its cell is computed again, after the others: a retry brings
the same bits. The last try has the machine to itself. A cell whose process dies every time is reported as failed.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections import Counter, deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from fscl.errors import RunError
from fscl.experiment.config import Config
from fscl.experiment.executors.executor import Begun, OnTick, Outcome, Tell, attempt, sendable
from fscl.experiment.plan import Cell, Order
from fscl.process import configure_process

MAX_DEATHS = 3  # of the processes that compute one cell, or that do not get as far as asking for one
SECONDS_TO_STOP = 5

READY, TICK, OUTCOME, UNEXPECTED = "ready", "tick", "outcome", "unexpected"  # what a worker says


class LocalProcesses:
    """Worker processes of this machine."""

    def workers_for(self, config: Config, workers: int | None) -> int:
        """By default one a core; processes that share a GPU only wait for each other."""
        return workers or (usable_cores() if config.device == "cpu" else 1)

    def compute(
        self, order: Order, cells: Sequence[Cell], workers: int, on_tick: OnTick, begun: Begun, tell: Tell
    ) -> Generator[tuple[Cell, Outcome], None, None]:
        """Every cell with its outcome, as they finish."""
        queue = _Queue(cells)
        n_left = len(cells)
        crew: list[_Worker] = []
        try:
            while n_left:
                crew += [_Worker() for _ in range(min(workers, n_left) - len(crew))]
                for worker in _with_news(crew):
                    said, value = worker.receive()
                    if said == READY:
                        queue.deaths_at_start = 0
                        worker.is_ready = worker.send(order)
                    elif said == TICK and worker.cell is not None:
                        on_tick(worker.cell, value)
                    elif said == UNEXPECTED:
                        raise value
                    else:
                        if said != OUTCOME:
                            crew.remove(worker)
                            value = queue.take_back(worker)
                        cell, worker.cell = worker.cell, None
                        if cell is not None and value is not None:
                            n_left -= 1
                            yield cell, value
                queue.assign_to(crew, begun)
            for worker in crew:
                worker.connection.close()  # it then ends by itself
                worker.process.join(SECONDS_TO_STOP)
        finally:
            for worker in crew:
                worker.stop()


class _Worker:
    """The driver's side of a worker process."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")  # forked copies of a process that used torch can hang
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,))
        self.process.start()
        theirs.close()  # so that the connection ends when the process does
        self.is_ready = False
        self.cell: Cell | None = None

    def send(self, value: Order | tuple[Cell, bytes | None]) -> bool:
        """Whether the process was there to receive it; if not, its connection ends, which `receive` tells."""
        try:
            self.connection.send(value)
        except OSError:
            return False
        return True

    def receive(self) -> tuple[str | None, Any]:
        """What the worker says next, and with what value; None if it is dead."""
        try:
            said: tuple[str, Any] = self.connection.recv()
        except (EOFError, OSError):
            return None, None
        return said

    def end(self) -> str:
        """How the process ended, for people."""
        self.process.join(SECONDS_TO_STOP)
        code = self.process.exitcode
        self.stop()
        if code is None or code >= 0:
            return f"exit code {code}"
        return f"killed by signal {-code}" + (", as the system does when memory is short" if code == -9 else "")

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.connection.close()
        self.process.terminate()
        self.process.join(SECONDS_TO_STOP)
        self.process.kill()
        self.process.join()


def _with_news(crew: Sequence[_Worker]) -> list[_Worker]:
    """Wait for the workers to say something, or to die; those that did."""
    ready = wait([worker.connection for worker in crew])
    return [worker for worker in crew if worker.connection in ready]


class _Queue:
    """The cells that wait for a worker, and how often each has lost one."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.waiting = deque(cells)
        self.deaths: Counter[Cell] = Counter()
        self.deaths_at_start = 0

    def assign_to(self, crew: Sequence[_Worker], begun: Begun) -> None:
        """Give cells to idle workers. A cell on its last try runs alone."""
        for worker in crew:
            busy = [other.cell for other in crew if other.cell is not None]
            if not self.waiting or (busy and any(self._is_last_try(cell) for cell in (*busy, self.waiting[0]))):
                return
            if not worker.is_ready or worker.cell is not None:
                continue
            if worker.send((self.waiting[0], begun(self.waiting[0]))):
                worker.cell = self.waiting.popleft()

    def take_back(self, worker: _Worker) -> RunError | None:
        """Let the cell of a dead worker wait for another one; the error if it has had its last try."""
        end = worker.end()
        self.deaths_at_start += not worker.is_ready
        if self.deaths_at_start == MAX_DEATHS:
            raise RunError(
                f"the worker processes die as they start ({end}). What they wrote to stderr says why; a script that "
                'starts a run needs `if __name__ == "__main__":` around it.'
            )
        cell = worker.cell
        if cell is None:
            return None
        if self._is_last_try(cell):
            return RunError(
                f"{cell} ended its worker process {MAX_DEATHS} times, the last time alone ({end}). Run the same command "
                "again, where there is more memory if that is short."
            )
        self.deaths[cell] += 1
        self.waiting.append(cell)
        return None

    def _is_last_try(self, cell: Cell) -> bool:
        return self.deaths[cell] == MAX_DEATHS - 1


def _serve(connection: "Connection[Any, Any]") -> None:
    """The worker process: computes one cell after another until the connection ends."""
    configure_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver hears Ctrl-C and decides
    _die_with_parent()
    with suppress(BrokenPipeError):  # a driver that is gone needs no answer, and no traceback
        _work(connection)


def _work(connection: "Connection[Any, Any]") -> None:
    connection.send((READY, None))
    try:
        order = _next(connection)
        while (job := _next(connection)) is not None:
            cell, begun = job
            outcome = attempt(order, cell, lambda tick: connection.send((TICK, tick)), begun)
            connection.send((OUTCOME, outcome if not isinstance(outcome, Exception) else sendable(outcome)))
    except Exception as error:  # whatever it is, the driver must hear of it
        error.add_note(f"In a worker process:\n{traceback.format_exc()}")
        connection.send((UNEXPECTED, sendable(error)))


def _next(connection: "Connection[Any, Any]") -> Any:
    try:
        return connection.recv()
    except EOFError:
        return None


def _die_with_parent() -> None:
    """A killed driver must not leave workers behind."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
