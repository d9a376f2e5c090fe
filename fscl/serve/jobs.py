"""Long work: what it is at, how far it is, and a way to stop it before it counts."""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor, Future
from datetime import UTC, datetime
from typing import Any, Literal

from fscl.errors import Interrupted
from fscl.serve.refusals import Refusal, refusal_of

MAX_KEPT, MAX_AT_WORK = 100, 100

JobState = Literal["waiting", "running", "done", "failed", "stopped"]
Result = dict[str, Any]


class Job:
    """One piece of work. `check` is called by the work itself, wherever it may be stopped."""

    def __init__(
        self,
        kind: str,
        label: str,
        changed: Callable[["Job"], None],
        *,
        total: int | None = None,
        lesson: str | None = None,
    ) -> None:
        self.id = secrets.token_hex(8)
        self.kind, self.label, self.lesson = kind, label, lesson
        self.state: JobState = "waiting"
        self.phase = "waiting"
        self.done, self.total = 0, total
        self.created = datetime.now(UTC).isoformat(timespec="seconds")
        self.result: Result | None = None
        self.refusal: Refusal | None = None
        self.finished: Future[Result] = Future()
        self._stop = threading.Event()
        self._committing = False
        self._changed = changed
        self._lock = threading.Lock()

    def at(self, phase: str, done: int | None = None, total: int | None = None) -> None:
        """Say what it is at; stops here, if it shall."""
        self.check()
        with self._lock:
            self.phase = phase
            self.done = self.done if done is None else done
            self.total = self.total if total is None else total
        self._changed(self)

    def check(self) -> None:
        """Stops here, if it shall."""
        if self._stop.is_set():
            raise Interrupted("stopped; nothing was changed.")

    def commit(self) -> None:
        """From here on it cannot be stopped."""
        with self._lock:
            if self._stop.is_set():
                raise Interrupted("stopped; nothing was changed.")
            self._committing = True
            self.phase = "writing"
        self._changed(self)

    def stop(self) -> None:
        """Stop it as soon as it looks; too late is no error."""
        with self._lock:
            if not self._committing and self.state in ("waiting", "running"):
                self._stop.set()

    def run(self, work: Callable[["Job"], Result]) -> None:
        """Do the work, here and now."""
        try:
            with self._lock:
                self.state = "running"
            self.check()
            result = work(self)
        except BaseException as error:
            refusal = refusal_of(error)
            with self._lock:
                self.state, self.refusal = "stopped" if isinstance(error, Interrupted) else "failed", refusal
            self._changed(self)
            self.finished.set_exception(refusal)
            return
        with self._lock:
            self.state, self.result = "done", result
        self._changed(self)
        self.finished.set_result(result)

    def content(self) -> dict[str, Any]:
        """As JSON."""
        with self._lock:
            active = self.state in ("waiting", "running")
            return {
                "id": self.id,
                "kind": self.kind,
                "label": self.label,
                "lesson": self.lesson,
                "state": self.state,
                "phase": self.phase,
                "done": self.done,
                "total": self.total,
                "created": self.created,
                "result": self.result,
                "error": None if self.refusal is None else self.refusal.content()["error"],
                "stoppable": active and not self._committing and not self._stop.is_set(),
            }


class Jobs:
    """The work of now, and the last hundred pieces that ended."""

    def __init__(self, changed: Callable[[Job], None]) -> None:
        self._changed = changed
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()

    def start(
        self,
        executor: Executor,
        kind: str,
        label: str,
        work: Callable[[Job], Result],
        *,
        total: int | None = None,
        lesson: str | None = None,
    ) -> Job:
        """Have work done by an executor.

        Args:
            executor: whose thread does it.
            kind: of work, for programs.
            label: of this piece, for people.
            work: called with its job, to say how far it is.
            total: steps, where that is known.
            lesson: the id of the lesson; where a job teaches it, or has, that job is the answer.
        """
        with self._lock:
            same = self._teaching(lesson)
            if same is not None:
                if (same.kind, same.label) != (kind, label):
                    raise reused(lesson)
                return same
            if sum(job.state in ("waiting", "running") for job in self._jobs.values()) >= MAX_AT_WORK:
                raise Refusal("busy", "too much work is waiting; try again in a moment.", {"Retry-After": "2"})
            job = Job(kind, label, self._changed, total=total, lesson=lesson)
            self._jobs[job.id] = job
            ended = [each.id for each in self._jobs.values() if each.state not in ("waiting", "running")]
            for key in ended[: max(0, len(self._jobs) - MAX_KEPT)]:
                del self._jobs[key]
        self._changed(job)
        executor.submit(job.run, work)
        return job

    def get(self, key: str) -> Job:
        """One of them, or a refusal."""
        job = self._jobs.get(key)
        if job is None:
            raise Refusal("not_found", f"there is no job {key[:40]!r} (any more).")
        return job

    def teaches(self, lesson: str | None) -> bool:
        """Whether a job teaches the lesson of this id, or has."""
        with self._lock:
            return self._teaching(lesson) is not None

    def _teaching(self, lesson: str | None) -> Job | None:
        going = ("waiting", "running", "done")  # one that failed or was stopped taught nothing
        jobs = [] if lesson is None else self._jobs.values()
        return next((job for job in jobs if job.lesson == lesson and job.state in going), None)

    def newest_first(self) -> list[Job]:
        """All of them."""
        with self._lock:
            return list(reversed(self._jobs.values()))

    def active(self) -> list[Job]:
        """Those that wait or run."""
        return [job for job in self.newest_first() if job.state in ("waiting", "running")]


def reused(lesson: str | None) -> Refusal:
    """For an id that another lesson has."""
    return Refusal("misuse", f"lesson {lesson!r} is the id of another lesson; choose a new id for each.")
