"""Ways to break a process that changes files: a kill, a power cut, a disk that is full."""

import errno
import io
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fscl.errors import FsclError
from tools.soaking.disk import Disk, Keep

OPEN_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
NEED_ROOM = ("os.rename", "os.mkdir", "os.link", "os.symlink")
CHANGES = (*NEED_ROOM, "os.remove", "os.rmdir", "os.truncate")
ENDED, FAILED, REFUSED, CUT, KILLED = 0, 3, 4, 5, -signal.SIGKILL
BROKEN = (KILLED, CUT)
PATIENCE = 300  # seconds, after which a call hangs

Work = Callable[[], object]


class Breaking:
    """A way to break a process. The default breaks nothing."""

    column = "ended"
    struck = False  # whether another process than the one that was started was killed

    def begin(self) -> None:
        """In the process itself, before its work."""

    def end(self) -> None:
        """In the process itself, after its work."""

    def watch(self, process: int) -> None:
        """In the process that started it."""

    def aftermath(self) -> None:
        """In the process that started it, once the other has ended."""


@dataclass
class AtMoment(Breaking):
    """Killed after some seconds."""

    seconds: float
    column = "moment"

    def watch(self, process: int) -> None:
        time.sleep(self.seconds)
        os.kill(process, signal.SIGKILL)


@dataclass
class BeforeChange(Breaking):
    """Killed before its n-th file change, from 0."""

    number: int
    column = "change"

    def begin(self) -> None:
        at_change(self.number, lambda: os.kill(os.getpid(), signal.SIGKILL))


@dataclass
class WorkerKilled(Breaking):
    """One of the processes that it has started, killed some seconds after the first; the work must come to its end."""

    seconds: float
    chance: random.Random
    column = "worker"

    def watch(self, process: int) -> None:
        until = time.monotonic() + PATIENCE
        while not _workers(process) and Path(f"/proc/{process}/exe").exists() and time.monotonic() < until:
            time.sleep(0.05)  # a process that has ended has no such link
        time.sleep(self.seconds)
        if workers := _workers(process):
            with suppress(ProcessLookupError):
                os.kill(self.chance.choice(workers), signal.SIGKILL)
                self.struck = True


@dataclass
class PowerCut(Breaking):
    """The power goes before the n-th file change, or when all is done; `root` is then what the disk has kept."""

    number: int
    root: Path
    keep: Keep = "nothing"
    seed: object = 0
    column = "power"
    disk: Disk = field(init=False, repr=False)
    over: bool = False

    def begin(self) -> None:
        self.disk = Disk(self.root)
        at_change(self.number, self._cut, self.disk.flushed)

    def end(self) -> None:
        self.over = True  # what is written from here on is not the process's
        self.disk.survivors(self._kept, self.keep, random.Random(str(self.seed)))

    def aftermath(self) -> None:
        if self._kept.exists():
            shutil.rmtree(self.root)
            self._kept.rename(self.root)

    def _cut(self) -> None:
        if not self.over:
            self.end()
            os._exit(CUT)

    @property
    def _kept(self) -> Path:
        return self.root.with_name(f"{self.root.name}-kept")


@dataclass
class FullDisk(Breaking):
    """No room after so many bytes."""

    n_bytes: int
    column = "full"

    def begin(self) -> None:
        _Limited.left = self.n_bytes
        io.open = _open  # what `Path.open` calls


@dataclass
class NoNewFiles(Breaking):
    """No room for names from the n-th file change on that needs one, nor for bytes."""

    number: int
    column = "full"

    def begin(self) -> None:
        def full() -> None:
            _Limited.left = 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        _Limited.left = 2**62
        io.open = _open
        at_change(self.number, full, only=NEED_ROOM)


def in_child(work: Work, breaking: Breaking | None = None) -> int:
    """Work in a process of its own, which may be broken; how it ended: one of the codes above."""
    breaking = breaking or Breaking()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = FAILED
        try:
            os.setpgid(0, 0)
            signal.alarm(PATIENCE)
            breaking.begin()
            work()
            code = ENDED
        except FsclError:
            code = REFUSED
        except BaseException:
            traceback.print_exc()
        finally:
            if code != FAILED:
                with suppress(BaseException):
                    breaking.end()
            os._exit(code)
    breaking.watch(child)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it started ends by itself; not waited for here
    breaking.aftermath()
    return code


def at_change(
    number: int,
    act: Work,
    flushed: Callable[[int], None] | None = None,
    only: tuple[str, ...] = CHANGES,
) -> None:
    """From now on: before the n-th change of a file by this process, from 0, and before each that follows, `act`.

    Args:
        number: which change.
        act: what to do; what it raises, the change raises.
        flushed: told of each flush once it is done.
        only: which changes count, besides files that are opened to be written, and flushes.
    """
    left, fsync = [number], os.fsync

    def changing() -> None:
        left[0] -= 1
        if left[0] < 0:
            act()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in only or (event == "open" and isinstance(arguments[2], int) and arguments[2] & OPEN_TO_WRITE):
            changing()

    def flush(descriptor: int) -> None:
        if only is CHANGES:
            changing()
        fsync(descriptor)
        if flushed is not None:
            flushed(descriptor)

    sys.addaudithook(hook)
    os.fsync = flush


class _Limited(io.FileIO):
    """A file on a disk with little room."""

    left = 0  # bytes, of all files together

    def write(self, content: Any) -> int:
        wanted = memoryview(content).nbytes
        if wanted > 0 and _Limited.left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = super().write(memoryview(content).cast("B")[: _Limited.left])
        _Limited.left -= written
        return written


_real_open = io.open


def _open(
    file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None, newline: Any = None
) -> Any:
    """As `io.open`, on that disk."""
    if not set(mode) & set("wax+"):
        return _real_open(file, mode, buffering, encoding, errors, newline)
    raw = _Limited(file, mode.replace("b", "").replace("t", ""))
    whole = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
    return whole if "b" in mode else io.TextIOWrapper(whole, encoding, errors, newline)


def _children(process: int) -> list[int]:
    try:
        text = Path(f"/proc/{process}/task/{process}/children").read_text()
    except OSError:  # it has ended
        return []
    return [int(number) for number in text.split()]


def _workers(process: int) -> list[int]:
    return [number for number in _children(process) if "resource_tracker" not in _command(number)]


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""
