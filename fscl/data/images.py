"""Safe decoding of one image: the header is checked before any pixel is read, and only common formats are opened.

What comes out is uint8 of one shape, whatever went in: turned as its EXIF says, transparency flattened onto white,
16-bit greyscale scaled down to 8, then a plain Lanczos resize to a square: the aspect ratio is not kept, and nothing is
cropped. HEIC, as telephones write it, is opened where pillow-heif is installed.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from fscl.errors import DataError

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
INSTALL_HEIF = "python -m pip install pillow-heif"
KNOWN_MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV")
MAX_PIXELS = 64 * 10**6
MAX_LENGTH = 65_535  # pixels of a side: what a JPEG can have
MAX_SIDE = 512

Pixels = NDArray[np.uint8]


def read_image(
    source: Path | bytes,
    *,
    image_size: int = 32,
    channels: int = 1,
    name: str | None = None,
    formats: tuple[str, ...] = FORMATS,
    original_size: tuple[int, int] | None = None,
) -> Pixels:
    """Decode one image, or raise a DataError that starts with `name` and gives the reason.

    Args:
        source: a file, or its content.
        image_size: side of the square that comes out, in pixels.
        channels: 1 for greyscale, 3 for colour.
        name: what to call the image in the error; the path unless given.
        formats: Pillow's names of the formats to open.
        original_size: the (width, height) that the image must have, if only one will do.

    Returns:
        uint8, (channels, image_size, image_size).
    """
    check_shape(image_size=image_size, channels=channels)
    plain = open_plain(source, name=name, formats=formats, original_size=original_size)
    return square(plain, image_size=image_size, channels=channels)


def open_plain(
    source: Path | bytes,
    *,
    name: str | None = None,
    formats: tuple[str, ...] = FORMATS,
    original_size: tuple[int, int] | None = None,
) -> Image.Image:
    """Decode one image: upright, 8 bits a channel, nothing transparent. Errors and arguments as of `read_image`."""
    name = name or (str(source) if isinstance(source, Path) else "the image")
    with _explained(name, formats):
        if formats is FORMATS and _is_heif(source):
            formats = _heif_formats()
        content = io.BytesIO(source) if isinstance(source, bytes) else source
        with Image.open(content, formats=formats) as image:
            _check_header(image, original_size)
            return _plain(ImageOps.exif_transpose(image))


def plain_of(image: Image.Image, *, name: str = "the image") -> Image.Image:
    """What `open_plain` makes of a file, made of a picture that is open already."""
    with _explained(name, FORMATS):
        _check_header(image, None)
        return _plain(ImageOps.exif_transpose(image))


def square(plain: Image.Image, *, image_size: int, channels: int) -> Pixels:
    """A plain image as uint8 (channels, image_size, image_size)."""
    flat = plain.convert("L" if channels == 1 else "RGB")
    small = np.asarray(flat.resize((image_size, image_size), Image.Resampling.LANCZOS), dtype=np.uint8)
    return small.reshape(image_size, image_size, channels).transpose(2, 0, 1)


def _is_heif(source: Path | bytes) -> bool:
    if isinstance(source, bytes):
        head = source[:12]
    else:
        with source.open("rb") as file:
            head = file.read(12)
    return head[4:8] == b"ftyp" and head[8:12] in HEIF_BRANDS


def _heif_formats() -> tuple[str, ...]:
    """Lets Pillow open HEIC, if it can be."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError as error:
        raise _Refused(f"is a HEIC picture, and pillow-heif is not installed; `{INSTALL_HEIF}` gets it") from error
    register_heif_opener(thumbnails=False)
    return ("HEIF",)


@contextmanager
def _explained(name: str, formats: tuple[str, ...]) -> Iterator[None]:
    """Turns whatever goes wrong into a DataError that starts with `name`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's advice on odd metadata; the size is checked by us
            yield
    except _Refused as error:
        raise DataError(f"{name} {error}.") from None
    except Image.DecompressionBombError as error:
        limit = f"the {MAX_PIXELS // 10**6} megapixels that are read"
        raise DataError(f"{name} has more pixels than {limit}.") from error
    except UnidentifiedImageError as error:
        raise DataError(f"{name} is not an image of a known kind ({', '.join(formats)}).") from error
    except (
        Exception
    ) as error:  # Pillow's decoders raise nearly anything on damaged data, from IndexError to SyntaxError
        raise DataError(f"{name} cannot be decoded ({str(error) or type(error).__name__}).") from error


class _Refused(Exception):
    """An image that could be decoded and shall not be; the message goes on from its name."""


def check_shape(*, image_size: int, channels: int = 1) -> None:
    """Refuse an image shape that no image can be brought to."""
    if not 1 <= image_size <= MAX_SIDE:
        raise DataError(f"image_size is {image_size}; it must be from 1 to {MAX_SIDE} pixels.")
    if channels not in (1, 3):
        raise DataError(f"channels is {channels}; it must be 1 (greyscale) or 3 (colour).")


def _check_header(image: Image.Image, original_size: tuple[int, int] | None) -> None:
    width, height = image.size
    if original_size is not None and image.size != original_size:
        raise _Refused(f"is {width}×{height} pixels; it must be {original_size[0]}×{original_size[1]}")
    if width * height > MAX_PIXELS:
        raise _Refused(f"is {width}×{height} pixels, over the {MAX_PIXELS // 10**6} megapixels that are read")
    if max(width, height) > MAX_LENGTH:
        raise _Refused(f"is {width}×{height} pixels; a side may have at most {MAX_LENGTH:,}")
    # An MPO is a camera's JPEG with a preview or depth map behind the picture, and a HEIF file may hold such, too: the
    # frame that is open is the picture.
    if getattr(image, "is_animated", False) and image.format not in ("MPO", "HEIF"):
        raise _Refused("has several frames; only still images are read")


def _plain(image: Image.Image) -> Image.Image:
    """The image with 8 bits a channel and nothing transparent."""
    if image.mode == "F":
        raise _Refused("cannot be decoded (its pixels are floating-point numbers, which have no fixed range)")
    if image.mode.startswith("I"):
        return _from_deep_grey(image)
    if image.mode not in KNOWN_MODES:
        raise _Refused(f"has colours of a kind ({image.mode}) that is not read; convert it to RGB")
    if image.has_transparency_data:
        colour = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), colour).convert("RGB")
    return image


def _from_deep_grey(image: Image.Image) -> Image.Image:
    deep = np.asarray(image)
    if deep.min() < 0 or deep.max() > 65535:
        raise _Refused("cannot be decoded (its pixels have more than 16 bits)")
    return Image.fromarray((deep.astype(np.float32) / 257).round().astype(np.uint8))  # 65535 / 257 = 255
