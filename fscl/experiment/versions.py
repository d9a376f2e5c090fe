"""What makes the bits of a result besides the configuration: the library, the packages, and the processor."""

import platform
from collections.abc import Mapping
from importlib.metadata import version

from fscl.process import cpu_level

ARITHMETIC = "2"  # raised by every change that alters the last bits of results; 2: the first block by patches
CPU = "cpu"
MUST_NOT_MIX = ("fscl", "torch", "arithmetic", CPU)  # results of different values of these do not belong in one table


def versions(device: str) -> dict[str, str]:
    """Every version by name; on the CPU also the level of its kernels, which decides the last bits."""
    packages = {name: version(name) for name in ("fscl", "torch", "numpy", "pillow")}
    system = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    level = {CPU: cpu_level()} if device == "cpu" else {}
    return {**packages, **system, "arithmetic": ARITHMETIC, **level}


def that_must_not_mix(known: Mapping[str, str]) -> dict[str, str | None]:
    """The part that must be equal where results are put together; None for what is not known."""
    return {name: known.get(name) for name in MUST_NOT_MIX}
