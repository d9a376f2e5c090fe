"""Cells one after another in this process: for debuggers, notebooks and tests."""

from collections.abc import Generator, Sequence
from functools import partial

from fscl.errors import MisuseError
from fscl.experiment.config import Config
from fscl.experiment.executors.executor import Begun, OnTick, Outcome, Tell, attempt
from fscl.experiment.plan import Cell, Order


class InProcess:
    """Starts no process."""

    def workers_for(self, config: Config, workers: int | None) -> int:
        """One."""
        if workers not in (None, 1):
            raise MisuseError(
                f"in-process computes one cell at a time, but workers is {workers}. Leave out --workers, or take "
                "--executor local."
            )
        return 1

    def compute(
        self, order: Order, cells: Sequence[Cell], workers: int, on_tick: OnTick, begun: Begun, tell: Tell
    ) -> Generator[tuple[Cell, Outcome], None, None]:
        """Every cell with its outcome, in the order given."""
        for cell in cells:
            yield cell, attempt(order, cell, partial(on_tick, cell), begun(cell))
