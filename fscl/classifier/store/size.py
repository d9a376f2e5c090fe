"""How much a model takes on the disk."""

import os
import stat
from contextlib import suppress
from pathlib import Path


def bytes_in(folder: Path) -> int:
    """Bytes of everything in the folder."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # a writer moves on meanwhile
                status = os.lstat(Path(where) / name)
                total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total
