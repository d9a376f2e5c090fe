"""The originals of the stored examples: the pictures as they were given, at most 512 pixels a side (fscl/data/pictures.py).

A base sees a small square; another base, later, may want more of the picture. A file is named by the SHA-256 of its
content and written once. Which original belongs to which stored example is found by the example's pixels: two examples that
look the same to the base share one.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from fscl.classifier.store.addressed import verified_content
from fscl.data.pictures import MAX_FILE_BYTES
from fscl.errors import StorageError
from fscl.storage import sync_folder, write_bytes

_NAME = re.compile(r"[0-9a-f]{64}\.(png|jpg)")
_PNG = b"\x89PNG"


@dataclass
class OriginalStore:
    """The folder `originals/` of a model."""

    folder: Path
    names: dict[bytes, str] = field(default_factory=dict)

    def write(self, examples: Tensor, contents: Sequence[bytes]) -> list[str]:
        """Keep the original of each example, on disk when this returns; their names, "" where there is none."""
        names = [_name(content) if content else "" for content in contents]
        new = {name: content for name, content in zip(names, contents, strict=True) if name and not self._has(name)}
        for name, content in new.items():
            write_bytes(self.path(name), content)
        if new:
            sync_folder(self.folder)
        self.remember(examples, names)
        return names

    def remember(self, examples: Tensor, names: Sequence[str]) -> None:
        """Which original belongs to which example; none of them is read."""
        for example, name in zip(examples, names, strict=bool(names)):
            if name:
                self.names[_digest(example)] = checked_name(name)

    def names_of(self, examples: Tensor) -> list[str]:
        """The name of each example's original, "" where there is none (any more)."""
        names = [self.names.get(_digest(example), "") for example in examples] if self.names else [""] * len(examples)
        return [name if name and self._has(name) else "" for name in names]

    def take(self, other: "OriginalStore", examples: Tensor) -> None:
        """Keep the originals that another model has of these examples."""
        self.write(examples, [other.content(name) if name else b"" for name in other.names_of(examples)])

    def path(self, name: str) -> Path:
        """The file of an original."""
        return self.folder / checked_name(name)

    def content(self, name: str) -> bytes:
        """A verified file."""
        return verified_content(self.path(name), max_bytes=MAX_FILE_BYTES, what="original")

    def _has(self, name: str) -> bool:
        return self.path(name).is_file()


def checked_name(name: object) -> str:
    """The name of an original. It is a SHA-256 and nothing else, so that it cannot lead out of the folder."""
    if _NAME.fullmatch(str(name)) is None:
        raise StorageError(f"{name!r} is not the name of an original; the model was altered. Restore it from a copy.")
    return str(name)


def _name(content: bytes) -> str:
    return f"{hashlib.sha256(content).hexdigest()}.{'png' if content.startswith(_PNG) else 'jpg'}"


def _digest(example: Tensor) -> bytes:
    return hashlib.sha256(example.contiguous().numpy().tobytes()).digest()
