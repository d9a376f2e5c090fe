"""miniImageNet*: all 100 classes of miniImageNet to learn, after a base of ImageNet's other 900.

Wang et al., "Few-shot Continual Learning: a Brain-inspired Approach", 2021, learn ten tasks of miniImageNet in this
way, for which its 20 test classes would not do. Read from the ImageNet training images that you have,
`train/<class>/*.JPEG` as the ILSVRC archive unpacks. The 100 classes are those of Ravi and Larochelle (2017).

Departs from the paper: every tenth of the other classes, by name, is kept to choose the base on; and 300 images a class are
taken unless told, the first by name.
"""

import re
from pathlib import Path
from typing import Literal

from pydantic import Field

from fscl.data.dataset import Progress, Tell
from fscl.data.imagenet_classes import MINI_IMAGENET
from fscl.data.photos import PHOTO_SIZE, ImageNetSet
from fscl.data.pool import Splits, split_classes
from fscl.data.sets.tiered_imagenet import IMAGENET_FOLDERS, IMAGES_PER_CLASS, load_class_folders
from fscl.errors import DataError

N_CLASSES = 1000  # of the ILSVRC training images
CHOOSE_EVERY = 10  # of the classes that are not miniImageNet's, one in so many to choose the base on
_WORDNET = re.compile(r"n\d{8}")
_MINI = [name for names in MINI_IMAGENET.values() for name in names]


class MiniImageNetStar(ImageNetSet):
    """miniImageNet*."""

    name = "mini-imagenet-star"
    summary = (
        "miniImageNet*: its 100 classes, after a base of ImageNet's other 900, from your copy of ImageNet; in colour."
    )
    title = "miniImageNet*"
    folders = IMAGENET_FOLDERS
    parts = (("train",), (_MINI[0],))
    layouts = "a folder imagenet/ with the ILSVRC training images unpacked, train/<class>/*.JPEG,"

    class Options(ImageNetSet.Options):
        """At most `images_per_class` are taken, the first by name."""

        name: Literal["mini-imagenet-star"] = "mini-imagenet-star"
        images_per_class: int = Field(default=IMAGES_PER_CLASS, ge=1)

    def load(self, options: Options, progress: Progress | None = None, tell: Tell | None = None) -> Splits:
        return load_mini_imagenet_star(
            image_size=options.image_size,
            images_per_class=options.images_per_class,
            path=options.path,
            progress=progress,
        )


STAR = MiniImageNetStar()


def load_mini_imagenet_star(
    *,
    image_size: int = PHOTO_SIZE,
    images_per_class: int = IMAGES_PER_CLASS,
    path: Path | None = None,
    progress: Progress | None = None,
) -> Splits:
    """Load miniImageNet's 100 classes to test on, and ImageNet's other 900 to train (810) and choose (90) the base on.

    Args:
        image_size: side to which the images are resized, in pixels.
        images_per_class: at most as many are taken, the first by name.
        path: the folder with train/<class>, or that holds it; else it is looked for in `FSCL_DATA` and the user's cache.
        progress: called with the images decoded so far and their total, if they are not in the cache yet.
    """
    root = STAR.require(path)
    pool = load_class_folders(STAR, root, _class_folders(root), image_size, images_per_class, progress)
    others = range(len(_MINI), len(pool))
    validation = others[::CHOOSE_EVERY]
    return split_classes(
        pool, train=[i for i in others if i not in validation], validation=validation, test=range(len(_MINI))
    )


def _class_folders(root: Path) -> dict[str, Path]:
    """Where each class is: miniImageNet's first, then the others by name."""
    if not root.is_dir():
        raise DataError(
            f"{root} is refused: miniImageNet* is read from a folder. Unpack ImageNet, and name the folder."
        )
    inside = root / "train" if (root / "train").is_dir() else root
    found = {path.name: path for path in sorted(inside.iterdir()) if path.is_dir() and _WORDNET.fullmatch(path.name)}
    missing = [name for name in _MINI if name not in found]
    if missing or len(found) != N_CLASSES:
        lacking = (
            f", and {len(missing)} of miniImageNet's 100 are not among them, such as {missing[0]}" if missing else ""
        )
        raise DataError(
            f"{root} is refused: it has {len(found)} classes of ImageNet, not {N_CLASSES}{lacking}. Put the whole of "
            "ImageNet's training images there."
        )
    return {name: found[name] for name in (*_MINI, *(other for other in found if other not in _MINI))}
