"""Pictures that were sent and are not taught (yet): on disk beside the model, re-encoded, bounded; some are in the inbox.

They are no part of the model: no state names them, `fscl check` does not look at them, and they may be deleted at any time.
Each is two files, named by the SHA-256 of what is kept: the picture, and what is known about it. Nothing is flushed: a power
cut may lose a picture that waits here, a kill does not.
"""

import hashlib
import json
import re
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from PIL import Image

from fscl.data.images import open_plain
from fscl.data.pictures import encoded
from fscl.serve.decoding import for_people
from fscl.serve.refusals import Refusal

FOLDER = "tray"
ID = re.compile(r"[0-9a-f]{32}")
KEPT_FORMATS = ("PNG", "JPEG")
MAX_PICTURES, MAX_BYTES = 5000, 2**30
MAX_INBOX = 200
MAX_SECONDS = 7 * 24 * 3600  # of a picture that is not in the inbox


@dataclass(frozen=True)
class Kept:
    """A picture in the tray.

    Attributes:
        id: 32 digits of the SHA-256 of its file.
        name: what the client called it; text for people.
        when: seconds since 1970.
        inbox: whether it waits for a person to look at it.
    """

    id: str
    name: str
    suffix: str
    width: int
    height: int
    n_bytes: int
    when: float
    inbox: bool = False


class Tray:
    """The folder `tray/` of a model; safe to use from many threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.version = 0  # of the inbox
        self._lock = threading.RLock()
        self._kept: dict[str, Kept] = {each.id: each for each in _listed(folder)}
        self._bound()

    def add(self, plain: Image.Image, name: str, *, inbox: bool = False) -> Kept:
        """Keep a picture; the same one twice is one."""
        content = encoded(plain)
        suffix = ".png" if content.startswith(b"\x89PNG") else ".jpg"
        key = hashlib.sha256(content).hexdigest()[:32]
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                width, height = plain.size
                found = Kept(key, for_people(name), suffix, width, height, len(content), time.time(), inbox)
                self._write(self.folder / f"{key}{suffix}", content)
                self._note(found)
                self._bound()
            elif inbox:
                self.put_in_inbox([key])
            return found

    def get(self, key: str) -> Kept:
        """One that is kept, or a refusal."""
        found = self._kept.get(key) if ID.fullmatch(key) else None
        if found is None:
            raise Refusal("not_found", f"there is no picture {key[:40]!r} here (any more); send it again.")
        return found

    def content(self, key: str) -> bytes:
        """Its file."""
        kept = self.get(key)
        try:
            return (self.folder / f"{kept.id}{kept.suffix}").read_bytes()
        except OSError:
            raise Refusal("not_found", f"picture {key} is gone; send it again.") from None

    def open(self, key: str) -> Image.Image:
        """The picture."""
        return open_plain(self.content(key), name=self.get(key).name or "the picture", formats=KEPT_FORMATS)

    def inbox(self) -> list[Kept]:
        """Those that wait for a person, the oldest first."""
        with self._lock:
            return [each for each in self._kept.values() if each.inbox]

    def put_in_inbox(self, keys: Sequence[str], *, waits: bool = True) -> int:
        """Put pictures in the inbox, or take them out; how many are there then."""
        with self._lock:
            for key in keys:
                found = self.get(key)
                if found.inbox != waits:
                    self._note(replace(found, inbox=waits))
            self._bound()
            return len(self.inbox())

    def drop(self, keys: Iterable[str]) -> None:
        """Delete pictures; those that are gone already are no error."""
        with self._lock:
            for key in keys:
                found = self._kept.pop(key, None)
                if found is not None:
                    self.version += found.inbox
                    for name in (f"{found.id}.json", f"{found.id}{found.suffix}"):
                        with suppress(OSError):
                            (self.folder / name).unlink(missing_ok=True)

    def n_bytes(self) -> int:
        """Of all pictures."""
        with self._lock:
            return sum(each.n_bytes for each in self._kept.values())

    def _note(self, kept: Kept) -> None:
        self._write(self.folder / f"{kept.id}.json", json.dumps(asdict(kept)).encode())
        self.version += kept.inbox or (kept.id in self._kept and self._kept[kept.id].inbox)
        self._kept[kept.id] = kept

    def _write(self, path: Path, content: bytes) -> None:
        self.folder.mkdir(exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_bytes(content)
        part.replace(path)

    def _bound(self) -> None:
        """Drop the oldest until all bounds hold; what is in the inbox stays longest."""
        waiting = self.inbox()
        self.drop(each.id for each in waiting[: max(0, len(waiting) - MAX_INBOX)])
        oldest = sorted(self._kept.values(), key=lambda each: (each.inbox, each.when))
        now, n_bytes, n = time.time(), self.n_bytes(), len(oldest)
        for each in oldest:
            if n <= MAX_PICTURES and n_bytes <= MAX_BYTES and (each.inbox or now - each.when < MAX_SECONDS):
                break
            self.drop([each.id])
            n, n_bytes = n - 1, n_bytes - each.n_bytes


def _listed(folder: Path) -> list[Kept]:
    """What a folder holds; files that are not whole are deleted."""
    found: list[Kept] = []
    if not folder.is_dir() or folder.is_symlink():
        return found
    for path in folder.iterdir():
        if path.suffix == ".part" and path.is_file():
            path.unlink(missing_ok=True)
        if path.suffix != ".json" or ID.fullmatch(path.stem) is None or path.is_symlink():
            continue
        try:
            kept = Kept(**json.loads(path.read_bytes()))
            whole = kept.id == path.stem and kept.suffix in (".png", ".jpg")
            whole = whole and (folder / f"{kept.id}{kept.suffix}").is_file()
        except (OSError, ValueError, TypeError):
            whole = False
        if whole:
            found.append(kept)
    return sorted(found, key=lambda each: each.when)
