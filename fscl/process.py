"""Settings of the process that make the arithmetic fast and the same everywhere. Called once at each entry point."""

import ctypes
import os
import platform
import sys
from contextlib import suppress
from pathlib import Path

import torch

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # from glibc's malloc.h
# what oneDNN chooses its kernels by, the highest first, and the flags of a processor that has it
_ONEDNN_LEVELS = {
    "AVX512_CORE_AMX": ("amx_tile", "amx_int8", "amx_bf16"),
    "AVX512_CORE_BF16": ("avx512_bf16",),
    "AVX512_CORE_VNNI": ("avx512_vnni",),
    "AVX512_CORE": ("avx512f", "avx512bw", "avx512dq", "avx512vl"),
    "AVX2_VNNI": ("avx_vnni",),
    "AVX2": ("avx2",),
    "AVX": ("avx",),
    "SSE41": ("sse4_1",),
}


def configure_process(*, threads: int = 1) -> None:
    """One thread (so that results do not depend on the core count), no denormals, and large buffers kept for re-use.

    Denormals slow the late head-only steps many times over on a CPU. glibc hands blocks over 32 MB back to the kernel at
    every free, so that each use faults its pages in anew; keeping them made training on 250 images 1.7 times as fast.

    Examples:
        >>> configure_process()  # at the beginning of a script, and of every thread

    Args:
        threads: of torch in this process.
    """
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    _keep_large_buffers()


def release_free_memory() -> None:
    """Give the buffers kept for re-use back to the system, so that what is measured next starts from what is in use."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def reset_peak_memory() -> None:
    """Let `peak_memory` count from here on, where the system can."""
    release_free_memory()
    if sys.platform == "linux":
        with suppress(OSError):  # not allowed in some containers: the peak is then the process's so far
            Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Bytes of resident memory at their highest since the reset, where the system tells; else since the start."""
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return 0  # not measured
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _keep_large_buffers() -> None:
    library = _glibc()
    if library is not None:
        library.mallopt(_M_MMAP_MAX, 0)
        library.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def _glibc() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libc.so.6")
        _ = library.mallopt, library.malloc_trim
    except (OSError, AttributeError):
        return None  # another system or C library (musl, say): slower, not wrong
    return library


def cpu_level() -> str:
    """What decides the last bits on a CPU: the level of torch's kernels, that of oneDNN's, and the maker, which MKL asks.

    Levels that the environment lowers (ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA) are those in force.
    """
    maker, flags = _processor()
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or ""
    levels = list(_ONEDNN_LEVELS)
    allowed = levels[levels.index(limit.upper()) :] if limit.upper() in levels else levels
    onednn = next((level for level in allowed if flags.issuperset(_ONEDNN_LEVELS[level])), platform.machine())
    return f"torch {torch.backends.cpu.get_cpu_capability()}, oneDNN {onednn}, {maker}"


def _processor() -> tuple[str, set[str]]:
    """The maker and the flags of the processor, where the system tells."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or "unknown maker", set()
    values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    return values.get("vendor_id", platform.machine()), set(values.get("flags", "").split())
