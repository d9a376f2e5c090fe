"""Progress on the terminal: what is going on, and how long it will take. Where stderr is a file, a line a minute."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fscl.data.names import printable

SPEED_WINDOW = 120  # seconds over which the time left is estimated
LOG_EVERY = 60  # seconds between lines where there is no terminal to draw a bar on


class Stage:
    """One bar."""

    def __init__(self, progress: Progress, task: TaskID, title: str, log: Console | None) -> None:
        self._progress = progress
        self._task = task
        self._title = title
        self._log = log
        self._last = time.monotonic()

    def update(self, done: float, total: float, note: str = "") -> None:
        """Show how much is done."""
        self._progress.update(self._task, completed=done, total=total, note=note)
        if self._log is not None and time.monotonic() - self._last >= LOG_EVERY:
            self._last = time.monotonic()
            self._log.print(f"{self._title}: {100 * done / total:.0f} % {note}".rstrip(), markup=False)


class Reporter:
    """Shows stages of long work on stderr, and plain remarks for people."""

    def __init__(self, *, quiet: bool | None = None) -> None:
        self.quiet = not sys.stderr.isatty() if quiet is None else quiet
        self.logs = quiet is None and self.quiet
        self.console = Console(stderr=True, highlight=False)

    @contextmanager
    def stage(self, title: str) -> Iterator[Stage]:
        """A bar that lives as long as the block, and is full when the block ends well."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(
            *columns, console=self.console, disable=self.quiet, speed_estimate_period=SPEED_WINDOW
        ) as progress:
            task = progress.add_task(title, total=None, note="")
            yield Stage(progress, task, title, self.console if self.logs else None)
            total = progress.tasks[0].total or 1
            progress.update(task, completed=total, total=total)

    def warn(self, text: str) -> None:
        """A remark that must not be missed: shown wherever stderr goes."""
        self.console.print(printable(text), markup=False)

    def say(self, text: str) -> None:
        """A remark; not shown where progress is silent."""
        if not self.quiet:
            self.console.print(printable(text), markup=False)
