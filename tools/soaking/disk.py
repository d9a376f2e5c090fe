"""A disk that loses at a power cut whatever was not flushed.

The files that a process sees are the live ones. What is certain to be there after a cut is less: the content that a file had
when it was last flushed, under the names that its folder had when that was last flushed. Whatever came later may be there or
not; which of it, `survivors` is told.
"""

import os
import random
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Keep = Literal["nothing", "names", "some"]
Entries = dict[str, int]


@dataclass
class Disk:
    """What is certain to outlast a power cut below a folder; all that is there now is.

    Files are known by their inode. Each is kept open, so that its number is not used again.
    """

    root: Path
    contents: dict[int, bytes] = field(default_factory=dict)
    entries: dict[int, Entries] = field(default_factory=dict)
    held: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for path in [self.root, *self.root.rglob("*")]:
            descriptor = os.open(path, os.O_RDONLY)
            self.flushed(descriptor)
            os.close(descriptor)

    def flushed(self, descriptor: int) -> None:
        """A file or folder was flushed: what is in it now will be there."""
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            self.entries[status.st_ino] = {each.name: each.inode() for each in os.scandir(descriptor)}
        else:
            self.contents[status.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()
        self.held.append(os.dup(descriptor))

    def survivors(self, target: Path, keep: Keep, chance: random.Random) -> None:
        """Write what is there after a cut to a new folder.

        Args:
            target: the new folder.
            keep: of what was not flushed: nothing; the names of files, but no content; or some of it, by chance.
            chance: which.
        """
        live = {path.lstat().st_ino: path for path in [self.root, *self.root.rglob("*")]}
        self._write(self.root.stat().st_ino, target, live, keep, chance)

    def _write(self, number: int, target: Path, live: dict[int, Path], keep: Keep, chance: random.Random) -> None:
        path = live.get(number)
        if number not in self.entries and (path is None or not path.is_dir()):
            target.write_bytes(self._content(number, path, keep, chance))
            return
        target.mkdir()
        certain = self.entries.get(number, {})
        now = {each.name: each.inode() for each in os.scandir(path)} if path is not None else certain
        for name in sorted({*certain, *now}):
            takes_live = keep == "names" or (keep == "some" and chance.random() < 0.5)
            found = (now if takes_live else certain).get(name)
            if found is not None:
                self._write(found, target / name, live, keep, chance)

    def _content(self, number: int, path: Path | None, keep: Keep, chance: random.Random) -> bytes:
        certain = self.contents.get(number, b"")
        if keep != "some" or path is None:
            return certain
        now = path.read_bytes()
        return certain if now == certain else chance.choice([certain, now, now[: len(now) // 2]])
