"""tieredImageNet: 608 classes of ImageNet, split by super-class into 351/97/160 (Ren et al. 2018).

The 34 super-classes, such as terriers or musical instruments, are split 20/6/8, so that the classes to test on are far
from those to train on. The set is read from the ImageNet training images that you have, `train/<class>/*.JPEG` as the ILSVRC
archive unpacks, with the class lists in `fscl.data.imagenet_classes`; from a folder that is split already,
`train|val|test/<class>/*`, as well. A class is called by its WordNet number. The pickles that circulate are refused.

Departs from the paper: 300 images a class unless told, the first by name, where the set has all that ImageNet has (779,165
in all): at 64×64 pixels those would take over 9 GB of memory.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import Field

from fscl.data.dataset import Progress, Tell
from fscl.data.imagenet_classes import TIERED_IMAGENET
from fscl.data.images import check_shape
from fscl.data.limits import Files
from fscl.data.photos import PHOTO_SIZE, Classes, ImageNetSet, PhotoSet, load_photos, visible_images
from fscl.data.pool import ClassPool, Splits, split_classes
from fscl.errors import DataError, MisuseError

IMAGES_PER_CLASS = 300
IMAGENET_FOLDERS = ("imagenet", "ImageNet", "ILSVRC2012", "ilsvrc")
_SHORT = {"train": "train", "validation": "val", "test": "test"}


class TieredImageNet(ImageNetSet):
    """tieredImageNet."""

    name = "tiered-imagenet"
    summary = (
        "608 classes of ImageNet in 34 super-classes, 351/97/160 (Ren et al. 2018), "
        "from your copy of ImageNet; in colour."
    )
    title = "tieredImageNet"
    folders = ("tiered-imagenet", "tieredImageNet", "tiered_imagenet", *IMAGENET_FOLDERS)
    parts = (("train",), (TIERED_IMAGENET["train"][0],))
    layouts = "a folder imagenet/ with the ILSVRC training images unpacked, train/<class>/*.JPEG,"

    class Options(ImageNetSet.Options):
        """At most `images_per_class` are taken, the first by name."""

        name: Literal["tiered-imagenet"] = "tiered-imagenet"
        images_per_class: int = Field(default=IMAGES_PER_CLASS, ge=1)

    def load(self, options: Options, progress: Progress | None = None, tell: Tell | None = None) -> Splits:
        return load_tiered_imagenet(
            image_size=options.image_size,
            images_per_class=options.images_per_class,
            path=options.path,
            progress=progress,
        )


TIERED = TieredImageNet()


def load_tiered_imagenet(
    *,
    image_size: int = PHOTO_SIZE,
    images_per_class: int = IMAGES_PER_CLASS,
    path: Path | None = None,
    progress: Progress | None = None,
) -> Splits:
    """Load tieredImageNet in colour, with its 351/97/160 classes.

    Examples:
        >>> load_tiered_imagenet(path=Path("/nowhere"))
        Traceback (most recent call last):
        fscl.errors.DataError: ...

    Args:
        image_size: side to which the images are resized, in pixels.
        images_per_class: at most as many are taken, the first by name.
        path: the folder with train/<class>, or that holds it; else it is looked for in `FSCL_DATA` and the user's cache.
        progress: called with the images decoded so far and their total, if they are not in the cache yet.
    """
    root = TIERED.require(path)
    pool = load_class_folders(TIERED, root, _class_folders(root), image_size, images_per_class, progress)
    n_train, n_validation, _ = (len(classes) for classes in TIERED_IMAGENET.values())
    n_known = n_train + n_validation
    return split_classes(pool, train=range(n_train), validation=range(n_train, n_known), test=range(n_known, len(pool)))


def _class_folders(root: Path) -> dict[str, Path]:
    """Where each class is, split after split."""
    if not root.is_dir():
        raise DataError(f"{root} is refused: tieredImageNet is read from a folder. Unpack it, and name the folder.")
    folders: dict[str, Path] = {}
    missing: list[str] = []
    for split, names in TIERED_IMAGENET.items():
        for name in names:
            places = (root / _SHORT[split] / name, root / "train" / name, root / name)
            found = next((place for place in places if place.is_dir()), None)
            if found is None:
                missing.append(name)
            else:
                folders[name] = found
    if missing:
        raise DataError(
            f"{root} is refused: {len(missing)} of tieredImageNet's {len(folders) + len(missing)} classes are missing, such "
            f"as train/{missing[0]}. Put the whole of ImageNet's training images there."
        )
    return folders


def load_class_folders(
    photo_set: PhotoSet,
    root: Path,
    folders: Mapping[str, Path],
    image_size: int,
    images_per_class: int,
    progress: Progress | None,
) -> ClassPool:
    """A pool of classes that have a folder each, of the first images of each by name."""
    if images_per_class < 1:
        raise MisuseError(f"images_per_class is {images_per_class}; it must be at least 1.")
    check_shape(image_size=image_size, channels=3)
    return load_photos(
        photo_set.name,
        list(folders.values()),
        partial(_images_by_class, root, list(folders), images_per_class),
        image_size=image_size,
        progress=progress,
        choice=f"{images_per_class} a class",
    )


def _images_by_class(root: Path, names: Sequence[str], images_per_class: int, files: Files) -> Classes:
    """The first images of each class by name, of files whose paths begin with the class."""
    classes: Classes = {name: [] for name in names}
    for parts in sorted(visible_images(files)):
        if len(classes[parts[0]]) < images_per_class:
            classes[parts[0]].append("/".join(parts))
    empty = [name for name, images in classes.items() if not images]
    if empty:
        raise DataError(
            f"{root} is refused: {len(empty)} of its classes have no image, such as {empty[0]}. Unpack the archive of each "
            "class into its folder."
        )
    return classes
