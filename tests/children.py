"""Processes that tests start: a failed one shows its command, its exit code and what it wrote, and none is left behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tests.conftest import ROOT

FSCL = (sys.executable, "-c", "from fscl.cli import main; main()")  # the command line of the package
TAIL = 6000  # characters of each stream that a message shows: the end, where tracebacks say what happened


def run_child(
    arguments: Sequence[str | Path],
    *,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
    expect: int = 0,
) -> subprocess.CompletedProcess[str]:
    """Run a process to its end; an AssertionError with all that it wrote unless it exits with `expect` in time.

    Args:
        arguments: the command; `[*FSCL, "run", …]` is the command line of the package.
        cwd: the folder that it starts in.
        env: changes to this process's environment.
        timeout: seconds after which it is killed.
        expect: the exit code that is no failure.
    """
    with started_child(arguments, cwd=cwd, env=env) as child:
        return child.finish(timeout=timeout, expect=expect)


class Child:
    """A process at work. What it writes goes to files, so that it never waits for a reader."""

    def __init__(self, command: list[str], process: "subprocess.Popen[bytes]", out: IO[bytes], err: IO[bytes]) -> None:
        self.command, self.process, self._out, self._err = command, process, out, err

    @property
    def pid(self) -> int:
        """Its number, which is also that of its process group."""
        return self.process.pid

    def written(self) -> tuple[str, str]:
        """What it has written so far to stdout and stderr."""
        return tuple(Path(file.name).read_text("utf-8", errors="replace") for file in (self._out, self._err))  # type: ignore[return-value]

    def wait_until(self, condition: Callable[[], object], *, timeout: float = 120) -> None:
        """Until a condition holds; an AssertionError if the process ends or time runs out before."""
        deadline = time.monotonic() + timeout
        while not condition():
            if self.process.poll() is not None and not condition():
                raise AssertionError(self.story("ended too early"))
            if time.monotonic() > deadline:
                raise AssertionError(self.story(f"did not get there in {timeout:g} s"))
            time.sleep(0.005)

    def send(self, number: signal.Signals, *, to_group: bool = False) -> None:
        """Send a signal to it, or to it and all its children, as a terminal does."""
        if to_group:
            os.killpg(self.pid, number)
        else:
            self.process.send_signal(number)

    def finish(self, *, timeout: float = 300, expect: int = 0) -> "subprocess.CompletedProcess[str]":
        """Wait for its end; an AssertionError with all that it wrote unless it exits with `expect` in time."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.story(f"still ran after {timeout:g} s")) from None
        if code != expect:
            raise AssertionError(self.story(f"exited with {code}, not {expect}"))
        return subprocess.CompletedProcess(self.command, code, *self.written())

    def story(self, what: str) -> str:
        """What happened, for people: the command, the exit code, and the ends of both streams."""
        out, err = (text[-TAIL:].strip() or "(nothing)" for text in self.written())
        return f"a child process {what}: {' '.join(self.command)}\n--- its stdout\n{out}\n--- its stderr\n{err}"


@contextmanager
def started_child(
    arguments: Sequence[str | Path], *, cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> Iterator[Child]:
    """A process at work in a session of its own; it and its children are killed when the block ends.

    An assertion that fails inside the block gets what the child wrote as a note.
    """
    command = [str(argument) for argument in arguments]
    with tempfile.NamedTemporaryFile("wb") as out, tempfile.NamedTemporaryFile("wb") as err:
        process = subprocess.Popen(
            command, cwd=cwd, env={**os.environ, **(env or {})}, stdout=out, stderr=err, start_new_session=True
        )
        child = Child(command, process, out, err)
        try:
            yield child
        except AssertionError as error:
            if "--- its stderr" not in str(error):
                error.add_note(child.story(f"was at work (exit code so far: {process.poll()})"))
            raise
        finally:
            with suppress(ProcessLookupError):  # if all of them have ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
