"""miniImageNet: 100 classes of ImageNet, split 64/16/20 by Ravi and Larochelle (2017).

The official set has 600 images a class at 84×84 pixels; copies with fewer, or of another size, are read as well, if every
class is there. Read are, as a folder or as an archive:

- `images/*.jpg` with `train.csv`, `val.csv` and `test.csv` (`filename,label`), as Ravi and Larochelle published it;
- `train/<class>/*.jpg`, `val/<class>/*.jpg` and `test/<class>/*.jpg`.

A class is called by its WordNet number, such as n01532829. The pickles that circulate are refused: opening one executes
the code in it.
"""

import csv
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Literal

from fscl.data.dataset import Progress, Tell
from fscl.data.imagenet_classes import MINI_IMAGENET
from fscl.data.images import check_shape
from fscl.data.limits import Files
from fscl.data.photos import PHOTO_SIZE, Classes, ImageNetSet, load_photos, read_text, visible_images
from fscl.data.pool import SplitName, Splits, split_classes
from fscl.errors import DataError

_FOLDERS: dict[str, SplitName] = {"train": "train", "val": "validation", "validation": "validation", "test": "test"}
_LISTS: dict[str, SplitName] = {"train.csv": "train", "val.csv": "validation", "test.csv": "test"}


class MiniImageNet(ImageNetSet):
    """miniImageNet."""

    name = "mini-imagenet"
    summary = "100 classes of ImageNet, 64/16/20 by Ravi and Larochelle (2017); in colour."
    title = "miniImageNet"
    folders = ("mini-imagenet", "miniimagenet", "miniImageNet", "miniImagenet", "mini_imagenet", "mini")
    archives = ("mini-imagenet", "miniimagenet", "mini_imagenet")
    parts = (("images", *_LISTS), ("train", "val", "test"), ("train", "validation", "test"))
    layouts = (
        "a folder mini-imagenet/ with images/ and train.csv, val.csv, test.csv, or with train/, val/ and test/, or an "
        "archive of either (mini-imagenet.zip, .tar or .tgz)"
    )

    class Options(ImageNetSet.Options):
        """Nothing of its own."""

        name: Literal["mini-imagenet"] = "mini-imagenet"

    def load(self, options: Options, progress: Progress | None = None, tell: Tell | None = None) -> Splits:
        return load_mini_imagenet(image_size=options.image_size, path=options.path, progress=progress)


MINI = MiniImageNet()


def load_mini_imagenet(
    *, image_size: int = PHOTO_SIZE, path: Path | None = None, progress: Progress | None = None
) -> Splits:
    """Load miniImageNet in colour, with the 64/16/20 classes of Ravi and Larochelle.

    Examples:
        >>> load_mini_imagenet(path=Path("/nowhere"))
        Traceback (most recent call last):
        fscl.errors.DataError: ...

    Args:
        image_size: side to which the images are resized, in pixels.
        path: the folder or archive, or a folder that holds it; else it is looked for in `FSCL_DATA` and the user's cache.
        progress: called with the images decoded so far and their total, if they are not in the cache yet.
    """
    check_shape(image_size=image_size, channels=3)
    source = MINI.require(path)
    pool = load_photos(MINI.name, [source], partial(_classes, source), image_size=image_size, progress=progress)
    n_train, n_validation, _ = (len(classes) for classes in MINI_IMAGENET.values())
    n_known = n_train + n_validation
    return split_classes(pool, train=range(n_train), validation=range(n_train, n_known), test=range(n_known, len(pool)))


def _classes(source: Path, files: Files) -> Classes:
    """The images of each class, split after split, with every class checked."""
    images = visible_images(files)
    lists = {name.split("/")[-1]: name for name in files if name.split("/")[-1] in _LISTS and name.count("/") <= 1}
    if lists.keys() == _LISTS.keys() and any(parts[-2:-1] == ["images"] for parts in images):
        found = _listed(source, files, images, lists)
    else:
        found = _in_folders(source, images)
    for split, expected in MINI_IMAGENET.items():
        _check_split(source, split, set(found[split]), expected)
    return {name: sorted(found[split][name]) for split, names in MINI_IMAGENET.items() for name in names}


def _listed(source: Path, files: Files, images: Iterable[list[str]], lists: dict[str, str]) -> dict[SplitName, Classes]:
    there = {parts[-1]: "/".join(parts) for parts in images if parts[-2:-1] == ["images"]}
    found: dict[SplitName, Classes] = {}
    taken: set[str] = set()
    for name, split in _LISTS.items():
        rows = list(csv.reader(read_text(files, lists[name], source).splitlines()))
        if rows[:1] != [["filename", "label"]] or any(len(row) != 2 for row in rows):
            raise DataError(
                f"{source} is refused: its {name} is no list of lines `filename,label` under such a header."
            )
        missing = [file for file, _ in rows[1:] if file not in there]
        if missing:
            raise DataError(
                f"{source} is refused: its {name} lists {missing[0]!r}, which is not in images/ ({len(missing):,} such of "
                f"{len(rows) - 1:,}). Put a whole copy there."
            )
        found[split] = {}
        for file, label in rows[1:]:
            if file in taken:
                raise DataError(f"{source} is refused: its lists have {file!r} twice.")
            taken.add(file)
            found[split].setdefault(label, []).append(there[file])
    return found


def _in_folders(source: Path, images: Iterable[list[str]]) -> dict[SplitName, Classes]:
    found: dict[SplitName, Classes] = {split: {} for split in MINI_IMAGENET}
    for parts in images:
        if len(parts) < 3 or parts[-3] not in _FOLDERS:
            raise DataError(
                f"{source} is refused: its entry {'/'.join(parts)!r} is not at train/<class>/, val/<class>/ or "
                f"test/<class>/, and there are not images/ and train.csv, val.csv and test.csv. Put {MINI.layouts} there."
            )
        found[_FOLDERS[parts[-3]]].setdefault(parts[-2], []).append("/".join(parts))
    return found


def _check_split(source: Path, split: SplitName, found: set[str], expected: tuple[str, ...]) -> None:
    missing, strange = sorted(set(expected) - found), sorted(found - set(expected))
    problems = [f"{len(missing)} of its {len(expected)} classes are missing, such as {missing[0]}"] if missing else []
    problems += [f"{len(strange)} classes do not belong there, such as {strange[0]!r}"] if strange else []
    if problems:
        raise DataError(
            f"{source} is refused: in the {split} split {' and '.join(problems)}. Put a copy with the 64/16/20 classes of "
            "Ravi and Larochelle there; Vinyals' are others."
        )
