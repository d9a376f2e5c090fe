"""Progress on the terminal: what is going on, and how long it will take. Silent where stderr is not a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Stage:
    """One bar."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def update(self, done: float, total: float, note: str = "") -> None:
        """Show how much is done."""
        self._progress.update(self._task, completed=done, total=total, note=note)


class Reporter:
    """Shows stages of long work on stderr, and plain remarks for people."""

    def __init__(self, *, quiet: bool | None = None) -> None:
        self.quiet = not sys.stderr.isatty() if quiet is None else quiet
        self.console = Console(stderr=True, highlight=False)

    @contextmanager
    def stage(self, title: str) -> Iterator[Stage]:
        """A bar that lives as long as the block."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=self.console, disable=self.quiet, transient=False) as progress:
            yield Stage(progress, progress.add_task(title, total=None, note=""))

    def say(self, text: str) -> None:
        """A remark; not shown where progress is silent."""
        if not self.quiet:
            self.console.print(text, markup=False)
