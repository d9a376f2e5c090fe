"""One level of the processor for machines that have several: what the last bits of results depend on.

The level of the arithmetic libraries is chosen when they are loaded, by variables of the environment; so nothing here
imports them.
"""

import os
import sys
from collections.abc import Mapping

from fscl.errors import MisuseError

CPU_LEVELS: Mapping[str, Mapping[str, str]] = {
    "sse4": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
    },
}
"""By name, the variables that hold torch, oneDNN and MKL to a level."""


def level_variables(level: str) -> dict[str, str]:
    """The variables of a level.

    >>> level_variables("avx2")["ATEN_CPU_CAPABILITY"]
    'avx2'
    """
    if level not in CPU_LEVELS:
        raise MisuseError(f"no level of a processor is called {level!r}. Known: {', '.join(CPU_LEVELS)}.")
    return dict(CPU_LEVELS[level])


def pin_cpu_level(level: str) -> None:
    """Hold this process, and those that it starts, to a level; refused where torch is loaded already with another one."""
    wanted = level_variables(level)
    if "torch" in sys.modules and any(os.environ.get(name) != value for name, value in wanted.items()):
        variables = " ".join(f"{name}={value}" for name, value in wanted.items())
        raise MisuseError(
            f"the level {level} must be set before torch is loaded. Set these variables before Python starts: {variables}."
        )
    os.environ.update(wanted)
