"""The stored examples as image files: contact sheets, the examples of one lesson below one another.

An example is stored as the network sees it. A sheet is named by the SHA-256 of its file, and an example by its sheet and
its place on it. One sheet a lesson, because every file costs a flush of the disk before a lesson is safe.
"""

import hashlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fscl.classifier.store.addressed import verified_content
from fscl.classifier.store.originals import OriginalStore
from fscl.data.images import Pixels
from fscl.errors import StorageError
from fscl.storage import sync_folder, write_bytes

MAX_SHEET_BYTES = 128 * 2**20
MAX_SHEET_PIXELS = 16 * 10**6
_NAME = re.compile(r"([0-9a-f]{64}):(\d{1,8})")


@dataclass
class ImageStore:
    """The folder `images/` of a model. Remembers which example is where, so that none is written twice."""

    folder: Path
    names: dict[bytes, str] = field(default_factory=dict)
    originals: OriginalStore = field(init=False)

    def __post_init__(self) -> None:
        self.originals = OriginalStore(self.folder.with_name("originals"))

    def write(self, images: Tensor, *, anew: bool = False) -> list[str]:
        """Store examples (n, channels, size, size), those that are not stored yet on new sheets; the name of each.

        Args:
            images: uint8.
            anew: put all of them on new sheets, so that the old ones, and what else is on them, can be deleted.
        """
        if anew:
            self.names = {}
        keys = [_digest(image.numpy()) for image in images]
        new = [position for position, key in enumerate(keys) if not self._has(key)]
        per_sheet = max(1, MAX_SHEET_PIXELS // (images.shape[2] * images.shape[3]))
        for start in range(0, len(new), per_sheet):
            chosen = new[start : start + per_sheet]
            sheet = self._write_sheet(images[chosen].numpy())
            self.names |= {keys[position]: f"{sheet}:{place}" for place, position in enumerate(chosen)}
        if new:
            sync_folder(self.folder)
        return [self.names[key] for key in keys]

    def read(self, names: Sequence[str], *, image_size: int, channels: int) -> Tensor:
        """The examples of these names; every sheet is verified."""
        sheets = {sheet: self._read_sheet(sheet, image_size, channels) for sheet in dict.fromkeys(map(sheet_of, names))}
        found = []
        for name in names:
            sheet, place = sheets[sheet_of(name)], int(name.partition(":")[2])
            if place >= len(sheet):
                raise StorageError(f"{self.path(sheet_of(name))} has no example {place}; the model was altered.")
            found.append(sheet[place])
            self.names[_digest(sheet[place])] = name
        return torch.from_numpy(np.stack(found))

    def path(self, sheet: str) -> Path:
        """The file of a sheet."""
        return self.folder / f"{sheet}.png"

    def content(self, sheet: str) -> bytes:
        """A verified file."""
        return verified_content(self.path(sheet), max_bytes=MAX_SHEET_BYTES, what="sheet of examples")

    def _has(self, key: bytes) -> bool:
        return key in self.names and self.path(sheet_of(self.names[key])).is_file()

    def _write_sheet(self, images: Pixels) -> str:
        n, channels, height, width = images.shape
        tall = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).reshape(n * height, width, channels)
        content = io.BytesIO()
        Image.fromarray(tall[..., 0] if channels == 1 else tall).save(content, "PNG")
        sheet = hashlib.sha256(content.getvalue()).hexdigest()
        write_bytes(self.path(sheet), content.getvalue())
        return sheet

    def _read_sheet(self, sheet: str, image_size: int, channels: int) -> Pixels:
        path, content = self.path(sheet), self.content(sheet)
        try:
            with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
                width, height = image.size
                fits = width == image_size and height % image_size == 0
                small = width * height <= max(MAX_SHEET_PIXELS, image_size**2)
                if not fits or not small or image.mode != ("L" if channels == 1 else "RGB"):
                    raise StorageError(
                        f"{path} is no sheet of {image_size}×{image_size} examples; the model was altered."
                    )
                tall = np.asarray(image, dtype=np.uint8)
        except StorageError:
            raise
        except Exception as error:  # Pillow's decoders raise nearly anything on damaged data
            raise StorageError(f"{path} cannot be decoded ({error}). Restore it from a copy.") from error
        tiles = tall.reshape(height // image_size, image_size, image_size, channels)
        return np.ascontiguousarray(tiles.transpose(0, 3, 1, 2))


def sheet_of(name: object) -> str:
    """The sheet that an example is on. It is a SHA-256 and nothing else, so that it cannot lead out of the folder."""
    found = _NAME.fullmatch(str(name))
    if found is None:
        raise StorageError(
            f"{name!r} is not the name of a stored example; the model was altered. Restore it from a copy."
        )
    return found[1]


def _digest(pixels: Pixels) -> bytes:
    return hashlib.sha256(pixels.tobytes()).digest()
