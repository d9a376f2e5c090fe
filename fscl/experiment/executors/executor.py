"""What an executor is: it maps cells to what they give, and needs nothing but the order, which is a value."""

import pickle
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Protocol

from fscl.errors import FsclError, RunError
from fscl.evaluation.contamination import SeenBefore
from fscl.experiment.cell import compute
from fscl.experiment.config import Config
from fscl.experiment.plan import Cell, Finished, Order, Tick

Outcome = Finished | FsclError
"""What a cell gives, or why it failed; the other cells are none the worse for it."""
OnTick = Callable[[Cell, Tick], None]
"""Called when a task of a cell is done. A cell that is computed again may begin at 1 again."""
Begun = Callable[[Cell], bytes | None]
"""What a cell that was computed in part goes on from (`Tick.begun`); asked for when the cell is about to be computed."""
Tell = Callable[[str], None]
"""Called with a sentence for people about where cells are computed."""


class Executor(Protocol):
    """Computes cells somewhere."""

    def workers_for(self, config: Config, workers: int | None) -> int:
        """How many cells to compute at a time: what was asked, if it can be, or else a default."""

    def compute(
        self, order: Order, cells: Sequence[Cell], workers: int, on_tick: OnTick, begun: Begun, tell: Tell
    ) -> Generator[tuple[Cell, Outcome], None, None]:
        """Every cell with its outcome, as they finish, in any order. Closing the generator stops what is under way."""


def attempt(order: Order, cell: Cell, on_task: Callable[[Tick], None], begun: bytes | None) -> Outcome:
    """Compute a cell; an expected error is its outcome. Every executor calls this, in the process that computes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeenBefore)  # the driver has said it
        try:
            return (order.compute or compute)(order, cell, on_task, begun)
        except FsclError as error:
            return error


def sendable(error: Exception) -> Exception:
    """The error, or one that says the same where it cannot be sent to another process."""
    with suppress(Exception):
        pickle.loads(pickle.dumps(error))  # bytes that were made in this line  # nosec B301
        return error
    kind = RunError if isinstance(error, FsclError) else RuntimeError
    return kind(f"{type(error).__name__}: {error}")
