"""How much work something is, whatever the machine: multiply-adds of the layers that do nearly all of it.

    with counted_work() as work:
        learner.learn_task(support)
    print(work.multiply_adds)

Counted are convolutions and linear heads, forward and backward; what is small beside them (norms, optimiser steps,
distances, solved equations) is not. A convolution counts in full, however it is computed. Counting costs next to nothing:
each layer's share is known from its shape.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Work:
    """What was counted so far; None once something ran that nobody counted."""

    multiply_adds: int | None = 0

    def add(self, multiply_adds: int) -> None:
        if self.multiply_adds is not None:
            self.multiply_adds += multiply_adds


_work: ContextVar[Work | None] = ContextVar("work", default=None)


@contextmanager
def counted_work() -> Iterator[Work]:
    """Count the work done inside the block."""
    work = Work()
    token = _work.set(work)
    try:
        yield work
    finally:
        _work.reset(token)


def current_work() -> Work | None:
    """Where to count; None where nobody asked."""
    return _work.get()


def work_is_unknown() -> None:
    """Say that something is done which is not counted, so that no total is claimed."""
    work = current_work()
    if work is not None:
        work.multiply_adds = None
