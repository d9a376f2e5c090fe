"""Pictures and labels in columns of pandas: a Series of pictures, or a DataFrame with a column of them.

pandas is not imported: its objects are known by their `iloc`. A DataFrame of numbers is left as it is.
"""

from collections.abc import Iterator
from typing import Any

from fscl.data.pairs import IMAGE_COLUMNS, LABEL_COLUMNS, is_pair
from fscl.data.pictures import is_picture
from fscl.errors import DataError

IMAGE = "image"
PATH_COLUMNS = ("path", "image_path", "file", "file_name", "filename")


class FrameOfPictures:
    """A DataFrame as a Hugging Face dataset looks from outside: columns with names, and rows that are dicts.

    Args:
        frame: the DataFrame.
        images: the name of its column of pictures, which is called `image` from here on.
    """

    features: dict[str, Any] | None = None

    def __init__(self, frame: Any, images: object) -> None:
        self._frame, self._images = frame, images
        self.column_names = [IMAGE if name == images else str(name) for name in frame.columns]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        columns = {IMAGE: self._frame[self._images]}
        columns |= {str(name): self._frame[name] for name in self._frame.columns if str(name) in LABEL_COLUMNS}
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(columns, values, strict=True))


def without_pandas(X: Any) -> Any:
    """A Series of pictures, or of pairs, as a list; a DataFrame with pictures as a table; anything else as it is."""
    if not hasattr(X, "iloc"):
        return X
    if not hasattr(X, "columns"):
        return list(X) if len(X) and (is_picture(X.iloc[0]) or is_pair(X.iloc[0])) else X
    images = _column_of_pictures(X)
    return X if images is None else FrameOfPictures(X, images)


def one_column(y: Any) -> Any:
    """Labels in a DataFrame of one column as that column; anything else as it is."""
    if not hasattr(y, "iloc") or not hasattr(y, "columns"):
        return y
    if len(y.columns) != 1:
        raise DataError(
            f"the labels y have the columns {', '.join(map(str, y.columns))}; give the one that holds them: y[…]."
        )
    return y.iloc[:, 0]


def _column_of_pictures(frame: Any) -> Any:
    """By its name; else the only column that holds pictures; None where there is none."""
    columns = list(frame.columns)
    if not len(frame) or len(set(columns)) != len(columns):
        return None
    holding = [name for name in columns if is_picture(frame[name].iloc[0])]
    for name in (*IMAGE_COLUMNS, *PATH_COLUMNS):
        if name in holding:
            return name
    others = [name for name in holding if str(name) not in LABEL_COLUMNS]
    return others[0] if len(others) == 1 else None
