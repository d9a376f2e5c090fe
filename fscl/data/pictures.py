"""One picture in whatever form people have it, and arrays of many.

A path; the content of a file as bytes, or as a file that is open; a Pillow image; an array (h, w), (h, w, c) or (c, h, w) of
whole numbers from 0 to 255 or floats from 0 to 1; and what a Hugging Face dataset holds of an image that it has not decoded.
"""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fscl.data.images import MAX_LENGTH, MAX_PIXELS, Pixels, open_plain, plain_of, square
from fscl.errors import DataError

MODES = {1: "L", 3: "RGB", 4: "RGBA"}
MAX_FILE_BYTES = 256 * 2**20
MAX_ORIGINAL_SIDE = 512  # pixels of a picture that is kept
JPEG_QUALITY = 92
SMALL_SIDE = 128  # pixels; up to here a picture is kept exactly
FEW_COLOURS = 64  # and so is a drawing


def is_picture(item: object) -> bool:
    """Whether it is one of the forms above."""
    if isinstance(item, str | os.PathLike | Image.Image | bytes | bytearray | io.IOBase):
        return True
    if isinstance(item, dict):
        return item.keys() >= {"bytes", "path"}
    return isinstance(item, np.ndarray | Tensor) and item.ndim >= 2


def plain_picture(item: object, *, name: str) -> Image.Image:
    """A picture in any of its forms as a Pillow image: upright, 8 bits a channel, nothing transparent."""
    if isinstance(item, dict):
        item = item.get("bytes") or item.get("path")
    if isinstance(item, str | os.PathLike):
        return open_plain(_file(Path(item)))
    if isinstance(item, io.IOBase):
        item = _content(item, name)
    if isinstance(item, bytes | bytearray):
        return open_plain(bytes(item), name=name)
    if isinstance(item, Image.Image):
        return plain_of(item, name=name)
    array = as_array(item, name)
    if array.ndim not in (2, 3):
        raise DataError(f"{name} has {array.ndim} dimensions; a picture has shape (h, w), (h, w, c) or (c, h, w).")
    (plain,) = plain_pictures(array[None], name)
    return plain


def as_array(item: object, name: str) -> NDArray[Any]:
    """Anything that numpy can take as an array; a tensor of any kind, too."""
    try:
        if isinstance(item, Tensor):
            dense = item.detach().cpu().to_dense() if item.layout != torch.strided else item.detach().cpu()
            item = (dense.float() if dense.dtype == torch.bfloat16 else dense).numpy()
        return np.asarray(item)
    except Exception as error:  # whatever an object of another library raises when it is asked for its numbers
        raise DataError(f"{name} is a {type(item).__name__} that is no array of numbers ({error}).") from error


def plain_pictures(array: NDArray[Any], name: str) -> list[Image.Image]:
    """The pictures of an array (n, h, w), (n, h, w, c) or (n, c, h, w)."""
    last = checked_array(array, name)
    pixels = np.ascontiguousarray(last[..., 0] if last.shape[3] == 1 else last)
    return [plain_of(Image.fromarray(each), name=f"picture {i} of {name}") for i, each in enumerate(pixels)]


def array_pixels(array: NDArray[Any], name: str, *, image_size: int, channels: int) -> list[Pixels] | Pixels:
    """Each picture of an array, in one shape."""
    last = checked_array(array, name)
    if last.shape[1:] == (image_size, image_size, channels):
        return last.transpose(0, 3, 1, 2)  # all at once: nothing to resize
    return [square(each, image_size=image_size, channels=channels) for each in plain_pictures(last, name)]


def checked_array(array: NDArray[Any], name: str) -> NDArray[np.uint8]:
    """As bytes (n, h, w, c)."""
    if array.ndim not in (3, 4):
        raise DataError(
            f"an array of pictures has shape (n, h, w), (n, h, w, c) or (n, c, h, w), but this one has {array.shape}."
        )
    last = _channels_last(_bytes(array, name), name)
    height, width = last.shape[1:3]
    if height * width > MAX_PIXELS or max(height, width) > MAX_LENGTH or 0 in (height, width):
        limit = f"{MAX_PIXELS // 10**6} megapixels are read, at most {MAX_LENGTH:,} a side"
        raise DataError(f"{name} has pictures of {width}×{height} pixels; from 1 pixel to {limit}.")
    return last


def encoded(plain: Image.Image) -> bytes:
    """A picture to keep: at most 512 pixels on its longer side, as a JPEG; as a PNG where it is small or a drawing."""
    flat = plain.convert("L" if plain.mode in ("1", "L") else "RGB")
    flat.thumbnail((MAX_ORIGINAL_SIDE, MAX_ORIGINAL_SIDE), Image.Resampling.LANCZOS)
    content = io.BytesIO()
    if max(flat.size) <= SMALL_SIDE or flat.getcolors(FEW_COLOURS) is not None:
        flat.save(content, "PNG")
    else:
        flat.save(content, "JPEG", quality=JPEG_QUALITY)
    return content.getvalue()


def _file(path: Path) -> Path:
    try:
        if not path.is_file():  # a pipe or a device could block for ever
            what = "is not a file" if path.exists() else "does not exist"
            raise DataError(f"{path} {what}; give the path of a picture.")
    except (OSError, RuntimeError, ValueError) as error:  # too long a name, a circle of links
        shown = str(path) if len(str(path)) <= 100 else f"{str(path)[:100]}…"
        raise DataError(f"{shown} is no path of a picture ({getattr(error, 'strerror', None) or error}).") from error
    return path


def _content(file: io.IOBase, name: str) -> bytes:
    """All of a file that is open, from its beginning, which is where it is left, so that it can be read again."""
    try:
        if file.seekable():
            file.seek(0)
        content = file.read(MAX_FILE_BYTES + 1)
        if file.seekable():
            file.seek(0)
    except (OSError, ValueError) as error:
        raise DataError(f"{name} cannot be read ({error}). Give a file that is open for reading.") from error
    if not isinstance(content, bytes) or len(content) > MAX_FILE_BYTES:
        raise DataError(f"{name} is a file of text, or has over {MAX_FILE_BYTES:,} bytes; open a picture with 'rb'.")
    return content


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
