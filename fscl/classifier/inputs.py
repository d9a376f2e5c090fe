"""Pictures in whatever form people have them, as the uint8 tensors that a base network takes.

Arrays (n, h, w), (n, h, w, c) or (n, c, h, w), of whole numbers from 0 to 255 or floats from 0 to 1; lists of paths, of
Pillow images or of single arrays; a folder. Every picture is brought to the base's size and channels by the same route as
a file (`fscl.data.images`). What cannot serve is refused with its position or name and the reason, before anything is
learned.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from fscl.classifier.labels import Label, plain_labels
from fscl.data.folder import BadFiles, read_classes, visible_files
from fscl.data.images import MAX_PIXELS, Pixels, pixels_of, read_image
from fscl.errors import DataError

MODES = {1: "L", 3: "RGB", 4: "RGBA"}
MAX_PICTURES = 1_000_000

Report = Callable[[str], None]


@dataclass(frozen=True)
class Shape:
    """What a base takes: square images of so many pixels a side and channels, with light and dark exchanged if `invert`."""

    image_size: int
    channels: int
    invert: bool = False

    def read(self, path: Path) -> Pixels:
        """A file as a picture of this shape, before light and dark are exchanged."""
        if not path.is_file():  # a pipe or a device could block for ever
            what = "is not a file" if path.exists() else "does not exist"
            raise DataError(f"{path} {what}; give the path of a picture.")
        return read_image(path, image_size=self.image_size, channels=self.channels)

    def tensor(self, pictures: Sequence[Pixels] | Pixels) -> Tensor:
        """Pictures of this shape as one tensor."""
        if len(pictures) == 0:
            return torch.zeros(0, self.channels, self.image_size, self.image_size, dtype=torch.uint8)
        stacked = torch.from_numpy(pictures.copy() if isinstance(pictures, np.ndarray) else np.stack(pictures))
        return 255 - stacked if self.invert else stacked


@dataclass(frozen=True)
class Pictures:
    """uint8 images (n, channels, size, size), and where each came from (a file's name, or nothing)."""

    images: Tensor
    sources: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.images)


def are_pictures(X: object) -> bool:
    """Whether X holds pictures in one of the forms above; else it is rows of numbers, or nothing of use."""
    if isinstance(X, str | os.PathLike | Image.Image | Pictures):
        return True
    if isinstance(X, np.ndarray | Tensor):
        return X.ndim >= 3 or (X.ndim == 1 and len(X) > 0 and _is_picture(X[0]))
    return isinstance(X, list | tuple) and len(X) > 0 and _is_picture(X[0])


def _is_picture(item: object) -> bool:
    if isinstance(item, str | os.PathLike | Image.Image):
        return True
    return isinstance(item, np.ndarray | Tensor) and item.ndim >= 2


def is_folder(X: object) -> bool:
    """Whether X is the path of a folder."""
    return isinstance(X, str | os.PathLike) and Path(X).is_dir()


def labelled_folder(
    path: Path, shape: Shape, *, bad_files: BadFiles = "refuse", report: Report | None = None
) -> tuple[Pictures, list[str]]:
    """The pictures of `path/<class>/<image>` and their labels, the names of the sub-folders."""
    found = read_classes(path, image_size=shape.image_size, channels=shape.channels, bad_files=bad_files, report=report)
    each = [(name, file, pixels) for name, files in found.items() for file, pixels in files.items()]
    sources = tuple(f"{name}/{file}" for name, file, _ in each)
    return Pictures(shape.tensor([pixels for _, _, pixels in each]), sources), [name for name, _, _ in each]


def as_pictures(X: Any, shape: Shape) -> Pictures:
    """X in any of its forms; a folder gives the pictures that lie in it or one level below, by name."""
    if isinstance(X, str | os.PathLike):
        return _read_files(_files(Path(X)), shape)
    if isinstance(X, Pictures):
        return X
    if isinstance(X, Image.Image):
        return as_pictures([X], shape)
    if isinstance(X, Tensor):
        X = X.detach().cpu().numpy()
    if isinstance(X, np.ndarray) and X.ndim >= 3:
        return _from_array(X, shape)
    items = list(X)
    if len(items) > MAX_PICTURES:
        raise DataError(f"{len(items):,} pictures at once are too many; give at most {MAX_PICTURES:,}.")
    pixels = [one_picture(item, shape, name=f"picture {position}") for position, item in enumerate(items)]
    return Pictures(shape.tensor(pixels), tuple(_source(item) for item in items))


def taught_examples(X: Any, y: Any, shape: Shape | None) -> tuple[Tensor, tuple[str, ...], tuple[Label, ...]]:
    """What is to be learned: images or rows, where each came from, and a label for each.

    Args:
        X: pictures in any of their forms; or rows, already checked, as a tensor.
        y: the labels; None for a folder that brings its own.
        shape: what pictures are brought to; None for rows.
    """
    if shape is None:
        examples, sources = X, ("",) * len(X)
    else:
        if is_folder(X) and y is None:
            pictures, y = labelled_folder(Path(X), shape)
        else:
            pictures = as_pictures(X, shape)
        examples, sources = pictures.images, pictures.sources
    if y is None:
        raise DataError("the labels y are missing; only a folder with one sub-folder per class brings its own.")
    if not isinstance(y, Iterable) or isinstance(y, str):
        raise DataError(f"y holds a label for each example, but it is {y!r}. Give a list.")
    labels = tuple(plain_labels(column_or_1d(y) if isinstance(y, np.ndarray) else y))
    if len(labels) != len(examples) or not labels:
        raise DataError(f"there are {len(examples)} examples and {len(labels)} labels; each needs one of its own.")
    return examples, sources, labels


def one_picture(item: object, shape: Shape, *, name: str) -> Pixels:
    """A single path, Pillow image or array (h, w), (h, w, c) or (c, h, w), before light and dark are exchanged."""
    if isinstance(item, str | os.PathLike):
        return shape.read(Path(item))
    if isinstance(item, Image.Image):
        return pixels_of(item, image_size=shape.image_size, channels=shape.channels, name=name)
    array = item.detach().cpu().numpy() if isinstance(item, Tensor) else np.asarray(item)
    if array.ndim not in (2, 3):
        raise DataError(f"{name} has {array.ndim} dimensions; a picture has shape (h, w), (h, w, c) or (c, h, w).")
    return _as_pixels(_bytes(array[None], name), shape, name)[0]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = list(visible_files(path))
    nested = [file for folder in found if folder.is_dir() for file in visible_files(folder)]
    files = [file for file in [*found, *nested] if file.is_file()]
    if not files:
        raise DataError(f"{path} holds no picture; give a folder with pictures in it, or one level below.")
    return files


def _read_files(files: list[Path], shape: Shape) -> Pictures:
    return Pictures(shape.tensor([shape.read(file) for file in files]), tuple(map(str, files)))


def _source(item: object) -> str:
    return str(item) if isinstance(item, str | os.PathLike) else ""


def _from_array(array: NDArray[Any], shape: Shape) -> Pictures:
    if array.ndim > 4:
        raise DataError(
            f"an array of pictures has shape (n, h, w), (n, h, w, c) or (n, c, h, w), but this one has {array.shape}."
        )
    pixels = _as_pixels(_bytes(array, "the array"), shape, "the array")
    return Pictures(shape.tensor(pixels), ("",) * len(pixels))


def _bytes(array: NDArray[Any], name: str) -> NDArray[np.uint8]:
    """Values as bytes: whole numbers from 0 to 255 as they are, floats from 0 to 1 times 255."""
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * 255
    if array.dtype.kind not in "iuf":
        raise DataError(f"{name} holds {array.dtype}; pictures are uint8 from 0 to 255, or floats from 0 to 1.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        position = int(np.argwhere(~np.isfinite(array))[0][0])
        raise DataError(f"{name} has NaN or infinity in picture {position}; replace or leave out such pictures.")
    top = 1.0 if array.dtype.kind == "f" else 255
    if array.size and (array.min() < 0 or array.max() > top):
        raise DataError(
            f"{name} has values from {array.min():g} to {array.max():g}; {array.dtype} pictures go from 0 to {top:g}. "
            + ("Divide by 255, or convert to uint8." if top == 1.0 else "Scale them down.")
        )
    return (array * 255).round().astype(np.uint8) if top == 1.0 else array.astype(np.uint8)


def _as_pixels(array: NDArray[np.uint8], shape: Shape, name: str) -> list[Pixels] | Pixels:
    """Each picture of (n, h, w) or of four dimensions, in the base's shape."""
    last = _channels_last(array, name)
    n, height, width, channels = last.shape
    if height * width > MAX_PIXELS or 0 in (height, width):
        limit = MAX_PIXELS // 10**6
        raise DataError(f"{name} has pictures of {width}×{height} pixels; from 1 pixel to {limit} megapixels are read.")
    if (height, width, channels) == (shape.image_size, shape.image_size, shape.channels):
        return last.transpose(0, 3, 1, 2)  # all at once: nothing to resize
    size = {"image_size": shape.image_size, "channels": shape.channels}
    plain = np.ascontiguousarray(last[..., 0] if channels == 1 else last)
    return [pixels_of(Image.fromarray(plain[i]), **size, name=f"picture {i} of {name}") for i in range(n)]


def _channels_last(array: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    """(n, h, w, c); a shape that could be read either way is read so."""
    if array.ndim == 3:
        return array[..., None]
    at_end, in_front = array.shape[3] in MODES, array.shape[1] in MODES
    if not at_end and not in_front:
        raise DataError(
            f"{name} has shape {array.shape}: neither its last nor its second number is a count of channels. "
            f"Pictures have {', '.join(map(str, MODES))} channels: grey, colour, or colour with transparency."
        )
    return array if at_end else array.transpose(0, 2, 3, 1)
