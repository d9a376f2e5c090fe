"""Long work that somebody may stop: its loops go through `each`, and whoever began it says with `stoppable` what stops it.

A learner that is stopped in the middle of a lesson is as it was before, as after any other error.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CHECK: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def stoppable(check: Callable[[], None]) -> Iterator[None]:
    """What this thread does in here is stopped where `check` raises.

    >>> def enough() -> None:
    ...     raise TimeoutError
    >>> with stoppable(enough):
    ...     list(each(range(3)))
    Traceback (most recent call last):
        ...
    TimeoutError
    >>> list(each(range(3)))
    [0, 1, 2]
    """
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


def each(steps: Iterable[int]) -> Iterator[int]:
    """The steps of a loop that takes long; raises between two of them if the work shall stop."""
    check = _CHECK.get()
    for step in steps:
        if check is not None:
            check()
        yield step
