"""Bytes from outside as a picture: bounded before a pixel is decoded, of listed formats alone, never shown as they came."""

import io
import unicodedata
from contextlib import suppress

from PIL import Image

from fscl.data.images import FORMATS, open_plain
from fscl.errors import DataError
from fscl.serve.refusals import Refusal

MAX_PICTURE_BYTES = 20 * 2**20
MAX_PIXELS = 50 * 10**6
MAX_SIDE = 20_000  # pixels: a picture of one row and millions of columns costs far more than its pixels
SMALL_BYTES, SMALL_PIXELS = 64 * 1024, 320 * 320
MAX_NAME = 200
THUMBNAIL_QUALITY = 88
SMALL_SIDE = 128  # up to here a PNG is no larger and loses nothing


def plain_from_bytes(content: bytes, *, name: str) -> Image.Image:
    """A picture that was sent: upright, 8 bits a channel, nothing transparent; or an error that says what is wrong."""
    if not content:
        raise DataError(f"{name} is empty; send the content of a picture.")
    if len(content) > MAX_PICTURE_BYTES:
        raise Refusal(
            "too_large",
            f"{name} has {len(content):,} bytes; a picture may have {MAX_PICTURE_BYTES:,}. Make it smaller.",
        )
    size = (0, 0)
    with suppress(Exception), Image.open(io.BytesIO(content), formats=FORMATS) as image:
        size = image.size  # where this fails, `open_plain` says why
    _check_size(size, name)
    plain = open_plain(content, name=name)
    _check_size(plain.size, name)  # of formats that Pillow opens by a plug-in
    return plain


def is_small(content: bytes) -> bool:
    """Whether a picture is read in a millisecond or two; its header is looked at, and no pixel."""
    if len(content) > SMALL_BYTES:
        return False
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            return image.width * image.height <= SMALL_PIXELS
    except Exception:  # whatever it is, it is judged where it is decoded
        return False


def for_people(name: str) -> str:
    """The name that a client gave, as text: no path, nothing invisible, of bounded length."""
    last = name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    visible = "".join(each for each in last if unicodedata.category(each)[0] != "C" or each == "\u200d")
    return " ".join(visible.split())[:MAX_NAME]


def shown(image: Image.Image, size: int) -> tuple[bytes, str]:
    """A picture in small as a browser shows it, with its media type; made anew, whatever it was made from."""
    flat = image.convert("L" if image.mode in ("1", "L") else "RGB")
    flat.thumbnail((size, size), Image.Resampling.LANCZOS)
    content = io.BytesIO()
    if max(flat.size) <= SMALL_SIDE:
        flat.save(content, "PNG")
        return content.getvalue(), "image/png"
    flat.save(content, "JPEG", quality=THUMBNAIL_QUALITY)
    return content.getvalue(), "image/jpeg"


def _check_size(size: tuple[int, int], name: str) -> None:
    width, height = size
    if width * height > MAX_PIXELS or max(size) > MAX_SIDE:
        raise DataError(
            f"{name} is {width}×{height} pixels; at most {MAX_PIXELS // 10**6} megapixels and {MAX_SIDE} a side are read. "
            "Make it smaller."
        )
