"""A sheet of pictures: in each row the shots of a class, and beside them the images generated from them."""

from pathlib import Path

from fscl.data.contact_sheet import contact_sheet
from fscl.data.pool import Examples
from fscl.storage import write_bytes

MAX_ROWS = 10  # classes on one sheet
GAP = 4  # pixels


def save_sheet(path: Path, shots: Examples, made: Examples) -> None:
    """Write a PNG with a row for each of the first classes that have both shots and generated images."""
    both = sorted(set(shots.labels.tolist()) & set(made.labels.tolist()))[:MAX_ROWS]
    rows = [[examples.images[examples.labels == label] for examples in (shots, made)] for label in both]
    write_bytes(path, contact_sheet(rows, gap=GAP, row_gap=GAP, group_gap=4 * GAP))
