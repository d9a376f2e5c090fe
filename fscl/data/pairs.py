"""Images and labels from any dataset: a Hugging Face dataset or column, a torch dataset, an iterable of pairs.

Nothing of those libraries is imported: a Hugging Face dataset is known by its `column_names` and `features`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fscl.data.images import Pixels, check_shape, square
from fscl.data.pictures import is_picture, plain_picture
from fscl.data.pool import ClassPool
from fscl.errors import DataError

IMAGE_COLUMNS = ("image", "img", "picture", "photo")
LABEL_COLUMNS = ("label", "labels", "fine_label", "class", "target")


def pool_from(
    pairs: Any,
    *,
    name: str = "pairs",
    image_size: int = 32,
    channels: int = 1,
    names: Sequence[str] | None = None,
) -> ClassPool:
    """A pool for experiments from any dataset or iterable of pairs (image, label); classes in the order of their names.

    Examples:
        >>> pool_from([(np.zeros((8, 8)), "b"), (np.ones((8, 8)), "a")], image_size=8)
        <ClassPool 'pairs': 2 classes, 2 images of 1×8×8>

    Args:
        pairs: a Hugging Face dataset, a dataset with `__getitem__` and `__len__`, or an iterable. An image is a path, bytes,
            a Pillow image or an array; a label a word or a number.
        name: of the pool, in messages.
        image_size: side of the square to which every image is resized, in pixels.
        channels: 1 for greyscale, 3 for colour.
        names: of the classes, where the labels number them.
    """
    check_shape(image_size=image_size, channels=channels)
    of_class: dict[str, list[Pixels]] = {}
    for position, (image, label) in enumerate(_pairs(pairs)):
        plain = plain_picture(image, name=f"image {position} of {name}")
        pixels = square(plain, image_size=image_size, channels=channels)
        of_class.setdefault(_class_name(label, names, position), []).append(pixels)
    if not of_class:
        raise DataError(f"{name} has no image; give pairs (image, label).")
    ordered = sorted(of_class)
    return ClassPool(
        name=name,
        images=torch.from_numpy(np.stack([pixels for each in ordered for pixels in of_class[each]])),
        class_names=tuple(ordered),
        counts=tuple(len(of_class[each]) for each in ordered),
    )


def is_table(thing: object) -> bool:
    """Whether it is a Hugging Face dataset: rows that are dicts, and columns with names."""
    rows = hasattr(thing, "__getitem__") or hasattr(thing, "__iter__")
    return rows and hasattr(thing, "column_names") and hasattr(thing, "features")


def image_column(table: Any) -> list[Any]:
    """The images of a Hugging Face dataset."""
    column = _column(table, IMAGE_COLUMNS, "image")
    return [row[column] for row in _rows(table)]


def images_and_labels(thing: Any) -> tuple[list[Any], list[Any]] | None:
    """The images and the labels of a dataset or an iterable of pairs; None where it is neither."""
    if not is_table(thing) and not is_pair(first_of(thing)) and not _only_iterates(thing):
        return None
    pairs = list(_pairs(thing))
    return [image for image, _ in pairs], [label for _, label in pairs]


def is_pair(item: object) -> bool:
    """Whether it is an image with its label."""
    return isinstance(item, tuple | list) and len(item) == 2 and is_picture(item[0]) and not is_picture_only(item[1])


def is_picture_only(item: object) -> bool:
    """Whether it is a picture that could not be a label."""
    return is_picture(item) and not isinstance(item, str)


def first_of(thing: Any) -> object:
    """The first item of a sequence, without touching an iterator, a table of another library, or rows of numbers."""
    if isinstance(thing, str | bytes | dict | Iterator) or hasattr(thing, "__array__"):
        return None
    if not hasattr(thing, "__getitem__"):
        return None
    try:
        first: object = thing[0]
    except Exception:  # a container of another library, such as a sparse matrix, may raise anything
        return None
    return first


def _only_iterates(thing: object) -> bool:
    """Whether it is a generator or a dataset that is a stream: it cannot be looked into, only gone through."""
    return isinstance(thing, Iterable) and not any(hasattr(thing, name) for name in ("__getitem__", "__array__"))


def _pairs(thing: Any) -> Iterator[tuple[Any, Any]]:
    if is_table(thing):
        image, label = _column(thing, IMAGE_COLUMNS, "image"), _column(thing, LABEL_COLUMNS, "label")
        named = _label_names(thing, label)
        for row in _rows(thing):
            yield row[image], named(row[label])
        return
    for position, item in enumerate(_rows(thing)):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(f"item {position} is no pair (image, label) but a {type(item).__name__}. Give pairs.")
        image, label = item
        yield image, label.item() if isinstance(label, Tensor) and label.numel() == 1 else label


def _rows(thing: Any) -> Iterable[Any]:
    """The items of anything that can be iterated over, or asked for by number."""
    if hasattr(thing, "__iter__"):
        iterator: Iterator[Any] = iter(thing)
        return iterator
    if hasattr(thing, "__getitem__") and hasattr(thing, "__len__"):
        return (thing[position] for position in range(len(thing)))
    raise DataError(f"a {type(thing).__name__} is no dataset: it can neither be iterated over nor asked by number.")


def _column(table: Any, wanted: Sequence[str], what: str) -> str:
    names = list(table.column_names or ())
    found = next((name for name in wanted if name in names), None)
    if found is None:
        raise DataError(
            f"the dataset has the columns {', '.join(map(str, names))}, and none is called {what!r}; rename the one that "
            f"holds it to {what!r}."
        )
    return found


def _label_names(table: Any, column: str) -> Callable[[Any], Any]:
    """What numbers stand for, where the dataset says so."""
    feature = table.features[column] if table.features and column in table.features else None
    names = getattr(feature, "names", None)
    return (lambda label: label) if not names else (lambda label: names[label] if isinstance(label, int) else label)


def _class_name(label: Any, names: Sequence[str] | None, position: int) -> str:
    if names is not None and isinstance(label, int | np.integer):
        if not 0 <= label < len(names):
            raise DataError(f"image {position} has the label {label}, but there are {len(names)} names of classes.")
        return str(names[int(label)])
    return str(label)
