"""Pictures in whatever form people have them, as the uint8 tensors that a base network takes.

Arrays of many, lists of single pictures (fscl/data/pictures.py), a folder; and with their labels a Hugging Face dataset, a
DataFrame (fscl/data/frames.py), or any dataset or iterable of pairs (image, label) (fscl/data/pairs.py). Every picture is
brought to the base's size and channels by the same route as a file. What cannot serve is refused with its position or name
and the reason, before anything is learned.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fscl.classifier.labels import Label, plain_labels
from fscl.data.folder import BadFiles, read_classes, visible_files
from fscl.data.frames import one_column, without_pandas
from fscl.data.images import Pixels, open_plain, square
from fscl.data.names import readable
from fscl.data.pairs import first_of, image_column, images_and_labels, is_table
from fscl.data.pictures import array_pixels, as_array, encoded, is_picture, plain_picture, plain_pictures
from fscl.errors import DataError

MAX_PICTURES = 1_000_000

Report = Callable[[str], None]


@dataclass(frozen=True)
class Shape:
    """What a base takes: square images of so many pixels a side and channels, with light and dark exchanged if `invert`."""

    image_size: int
    channels: int
    invert: bool = False

    def pixels(self, plain: Image.Image) -> Pixels:
        """A plain image in this shape, before light and dark are exchanged."""
        return square(plain, image_size=self.image_size, channels=self.channels)

    def tensor(self, pictures: Sequence[Pixels] | Pixels) -> Tensor:
        """Pictures of this shape as one tensor."""
        if len(pictures) == 0:
            return torch.zeros(0, self.channels, self.image_size, self.image_size, dtype=torch.uint8)
        stacked = torch.from_numpy(pictures.copy() if isinstance(pictures, np.ndarray) else np.stack(pictures))
        return 255 - stacked if self.invert else stacked


@dataclass(frozen=True)
class Pictures:
    """uint8 images (n, channels, size, size), and where each came from (a file's name, or nothing).

    Attributes:
        originals: each as it shall be kept (`encoded`); none of them where they were not asked for.
    """

    images: Tensor
    sources: tuple[str, ...]
    originals: tuple[bytes, ...] = ()

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class _Read:
    pixels: Pixels
    original: bytes


def are_pictures(X: object) -> bool:
    """Whether X holds pictures in one of the forms above; else it is rows of numbers, or nothing of use."""
    X = without_pandas(X)
    if isinstance(X, Pictures) or is_table(X):
        return True
    if isinstance(X, Tensor) and X.is_nested:
        raise DataError("X is a nested tensor; give a list of tensors instead.")
    if isinstance(X, np.ndarray | Tensor):
        return X.ndim >= 3 or (X.ndim == 1 and len(X) > 0 and is_picture(X[0]))
    return is_picture(X) or is_picture(first_of(X))


def is_folder(X: object) -> bool:
    """Whether X is the path of a folder."""
    return isinstance(X, str | os.PathLike) and _is_dir(Path(X))


def labelled_folder(
    path: Path,
    shape: Shape,
    *,
    bad_files: BadFiles = "refuse",
    report: Report | None = None,
    originals: bool = False,
) -> tuple[Pictures, list[str]]:
    """The pictures of `path/<class>/<image>` and their labels, the names of the sub-folders."""

    def decode(file: Path, name: str) -> _Read:
        return _read(open_plain(file, name=name), shape, originals)

    found = read_classes(path, decode, bad_files=bad_files, report=report)
    each = [(name, file, read) for name, files in found.items() for file, read in files.items()]
    sources = [readable(f"{name}/{file}") for name, file, _ in each]
    return _together([read for _, _, read in each], sources, shape, originals), [name for name, _, _ in each]


def as_pictures(X: Any, shape: Shape, *, originals: bool = False) -> Pictures:
    """X in any of its forms; a folder gives the pictures that lie in it or one level below, by name.

    Args:
        X: pictures.
        shape: what they are brought to.
        originals: whether to make what is kept of each, too.
    """
    if isinstance(X, str | os.PathLike):
        return read_files(files_in(Path(X)), shape, originals=originals)
    if isinstance(X, Pictures):
        return X
    X = without_pandas(X)
    if is_table(X):
        X = image_column(X)
    elif is_picture(X) and not isinstance(X, np.ndarray | Tensor):
        X = [X]
    if isinstance(X, Tensor):
        X = as_array(X, "the tensor")
    if isinstance(X, np.ndarray) and X.ndim >= 3:
        pixels = array_pixels(X, "the array", image_size=shape.image_size, channels=shape.channels)
        kept = tuple(encoded(plain) for plain in plain_pictures(X, "the array")) if originals else ()
        return Pictures(shape.tensor(pixels), ("",) * len(pixels), kept)
    if not isinstance(X, Iterable) and not hasattr(X, "__getitem__"):
        raise DataError(
            f"X is a {type(X).__name__}; give pictures: an array, a list of paths or Pillow images, or a folder."
        )
    items = list(X)
    if len(items) > MAX_PICTURES:
        raise DataError(f"{len(items):,} pictures at once are too many; give at most {MAX_PICTURES:,}.")
    read = [
        _read(plain_picture(item, name=f"picture {position}"), shape, originals) for position, item in enumerate(items)
    ]
    return _together(read, [_source(item) for item in items], shape, originals)


def with_labels(X: Any, y: Any) -> tuple[Any, Any]:
    """X and y apart, where X brings the labels: a dataset, or pairs (image, label). A folder stays as it is."""
    if y is not None or isinstance(X, Pictures) or is_picture(X):
        return X, y
    X = without_pandas(X)
    return images_and_labels(X) or (X, y)


def taught_pictures(X: Any, y: Any, shape: Shape, *, originals: bool = False) -> tuple[Pictures, tuple[Label, ...]]:
    """Pictures to learn, and a label for each.

    Args:
        X: pictures in any of their forms.
        y: the labels; None for what brings its own.
        shape: what pictures are brought to.
        originals: whether to make what is kept of each, too.
    """
    X, y = with_labels(X, y)
    if is_folder(X) and y is None:
        pictures, y = labelled_folder(Path(X), shape, originals=originals)
    else:
        pictures = as_pictures(X, shape, originals=originals)
    return pictures, checked_labels(y, len(pictures))


def checked_labels(y: Any, n_examples: int) -> tuple[Label, ...]:
    """A label for each example."""
    if y is None:
        raise DataError(
            "the labels y are missing; only a folder with one sub-folder per class, a dataset with a column of labels, or "
            "pairs (image, label) bring their own."
        )
    if not isinstance(y, Iterable) or isinstance(y, str):
        raise DataError(f"y holds a label for each example, but it is {y!r}. Give a list.")
    y = as_array(y, "y") if isinstance(y, Tensor) else one_column(y)
    if isinstance(y, np.ndarray):
        from sklearn.utils.validation import column_or_1d

        y = column_or_1d(y)
    labels = tuple(plain_labels(y))
    if len(labels) != n_examples or not labels:
        raise DataError(f"there are {n_examples} examples and {len(labels)} labels; each needs one of its own.")
    return labels


def files_in(path: Path) -> list[Path]:
    """A file itself; of a folder the files that lie in it or one level below, by name."""
    if not _is_dir(path):
        return [path]
    found = list(visible_files(path))
    nested = [file for folder in found if folder.is_dir() for file in visible_files(folder)]
    files = [file for file in [*found, *nested] if file.is_file()]
    if not files:
        raise DataError(f"{path} holds no picture; give a folder with pictures in it, or one level below.")
    return files


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # too long a name
        return False


def read_files(
    files: Sequence[Path],
    shape: Shape,
    *,
    bad_files: BadFiles = "refuse",
    report: Report | None = None,
    originals: bool = False,
) -> Pictures:
    """Pictures of files, named by their paths; with "skip", those that can be read, of which there must be one."""
    read, sources = [], []
    for file in files:
        try:
            read.append(_read(plain_picture(file, name=str(file)), shape, originals))
        except DataError as error:
            if bad_files == "refuse":
                raise
            if report is not None:
                report(str(error))
        else:
            sources.append(readable(str(file)))
    if files and not sources:
        raise DataError(f"none of the {len(files)} files can be read, such as {files[0]}. Give pictures.")
    return _together(read, sources, shape, originals)


def _read(plain: Image.Image, shape: Shape, originals: bool) -> _Read:
    return _Read(shape.pixels(plain), encoded(plain) if originals else b"")


def _together(read: Sequence[_Read], sources: Sequence[str], shape: Shape, originals: bool) -> Pictures:
    kept = tuple(each.original for each in read) if originals else ()
    return Pictures(shape.tensor([each.pixels for each in read]), tuple(sources), kept)


def _source(item: object) -> str:
    return readable(str(item)) if isinstance(item, str | os.PathLike) else ""
