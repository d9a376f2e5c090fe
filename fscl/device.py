"""Where the arithmetic is done, and in what precision.

Random numbers are drawn on the CPU whatever the device, and then moved, so that streams, episodes and fresh head rows are
the same everywhere. The last bits of what is computed from them are not.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import torch

from fscl.errors import MisuseError

DeviceName = Literal["cpu", "cuda", "mps"]

MOST_BYTES_HELD = (
    4 * 2**30
)  # of images that are kept on a device; of a larger pool, each batch is moved when it is used


def find_device(name: DeviceName) -> torch.device:
    """The device of this name, or an error if this machine or this build of torch has none."""
    is_there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not is_there[name]:
        others = ", ".join(other for other, found in is_there.items() if found)
        raise MisuseError(
            f"device {name!r} was asked for, but torch {torch.__version__} finds none here. Use --device with one of "
            f"those that are here ({others}), or install a build of torch for it."
        )
    return torch.device(name)


def exact_device(device: torch.device) -> torch.device:
    """Where double precision is to be had: the device itself, or the CPU for one that has no such numbers."""
    return torch.device("cpu") if device.type == "mps" else device


_is_lowered: ContextVar[bool] = ContextVar("is_lowered", default=False)


@contextmanager
def autocast(wanted: bool) -> Iterator[None]:
    """Inside the block networks compute their features in bfloat16 where torch thinks it safe, if `wanted`."""
    token = _is_lowered.set(wanted)
    try:
        yield
    finally:
        _is_lowered.reset(token)


def is_autocast() -> bool:
    """Whether features are to be computed in bfloat16."""
    return _is_lowered.get()
