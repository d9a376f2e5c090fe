"""CUB-200-2011: 11,788 photographs of 200 kinds of birds (Wah, Branson, Welinder, Perona and Belongie 2011).

Read is the official layout, `CUB_200_2011/images/<class>/*.jpg` with `classes.txt` and `images.txt`, as a folder or as an
archive (the official .tgz as it is). Every image that `images.txt` lists must be there, and no other. Whole photographs are
used, without the bounding boxes.

Three ways to split the classes, in the order of their numbers:

- `fscl`: all 200 to test on, for a base that comes from other data: the two-step consolidation paper's use of the set.
- `fscl-not-imagenet`: the same without the 43 photographs that are in ImageNet, too, as Triantafillou et al., "Meta-Dataset"
  (2020), list them: for a base that may have seen them.
- `few-shot`: 100 to train on, 50 for validation and 50 to test on, by the rule published with Chen et al., "A Closer Look at
  Few-shot Classification" (2019): of the classes counted from 0, the even ones are for training; of the odd ones, those
  that leave 1 when divided by 4 are for validation, and those that leave 3 are for testing.
"""

from functools import partial
from pathlib import Path
from typing import Literal, get_args

from fscl.data.dataset import Progress, Tell
from fscl.data.images import check_shape
from fscl.data.limits import Files
from fscl.data.photos import PHOTO_SIZE, Classes, PhotoSet, load_photos, read_text, visible_images
from fscl.data.pool import Splits, split_classes
from fscl.errors import DataError, unknown_name

CubSplit = Literal["fscl", "fscl-not-imagenet", "few-shot"]
N_CLASSES = 200

IN_IMAGENET = {  # the photographs <kind>_<number>.jpg
    "American_Goldfinch": "0012_32338 0018_32324 0062_31921 0064_32142 0116_31943 0131_32911",
    "Anna_Hummingbird": "0034_56614",
    "Black_Footed_Albatross": "0002_55 0024_796089 0033_796086 0086_796062",
    "Blue_Jay": "0033_62024 0049_63082 0053_62744 0068_61543",
    "Dark_Eyed_Junco": "0031_66785 0037_66321 0057_68650 0102_67402 0104_67820 0111_66488",
    "Green_Violetear": "0002_795699",
    "Indigo_Bunting": "0010_13000 0031_13300 0051_12837 0060_14495 0063_11820 0071_11639 0072_14197 0073_13933",
    "Laysan_Albatross": "0033_658 0049_918 0053_543",
    "Mallard": "0067_77623",
    "Red_Breasted_Merganser": "0001_79199 0004_79232 0012_79425 0034_79292 0045_79358 0068_79203 0083_79562",
    "Ruby_Throated_Hummingbird": "0040_57982 0090_57411",
}


class Cub(PhotoSet):
    """CUB-200-2011."""

    name = "cub"
    summary = "CUB-200-2011: 11,788 photographs of 200 kinds of birds (Wah et al. 2011); in colour."
    title = "CUB-200-2011"
    folders = ("CUB_200_2011", "cub", "CUB", "cub/CUB_200_2011", "CUB/CUB_200_2011")
    archives = ("cub_200_2011", "cub-200-2011")
    parts = (("images", "classes.txt", "images.txt"),)
    layouts = "the folder CUB_200_2011/ or the archive CUB_200_2011.tgz"
    in_imagenet = "birds too, some of CUB's kinds and a few of its photographs among them"

    class Options(PhotoSet.Options):
        """`split` is `fscl`, `fscl-not-imagenet` or `few-shot`; see the module."""

        name: Literal["cub"] = "cub"
        split: CubSplit = "fscl"

    def load(self, options: Options, progress: Progress | None = None, tell: Tell | None = None) -> Splits:
        return load_cub(split=options.split, image_size=options.image_size, path=options.path, progress=progress)


CUB = Cub()


def load_cub(
    *,
    split: CubSplit = "fscl",
    image_size: int = PHOTO_SIZE,
    path: Path | None = None,
    progress: Progress | None = None,
) -> Splits:
    """Load CUB-200-2011 in colour, and split its classes.

    Examples:
        >>> load_cub(path=Path("/nowhere"))
        Traceback (most recent call last):
        fscl.errors.DataError: ...

    Args:
        split: `fscl`, `fscl-not-imagenet` or `few-shot`; see the module.
        image_size: side to which the photographs are resized, in pixels.
        path: the folder or archive, or a folder that holds it; else it is looked for in `FSCL_DATA` and the user's cache.
        progress: called with the images decoded so far and their total, if they are not in the cache yet.
    """
    if split not in get_args(CubSplit):
        raise unknown_name("CUB split", split, get_args(CubSplit))
    check_shape(image_size=image_size, channels=3)
    source = CUB.require(path)
    dropped = _in_imagenet() if split == "fscl-not-imagenet" else frozenset()
    pool = load_photos(
        CUB.name,
        [source],
        partial(_classes, source, dropped=dropped),
        image_size=image_size,
        progress=progress,
        choice="not-imagenet" if dropped else "",
    )
    numbers = range(N_CLASSES)
    if split != "few-shot":
        return split_classes(pool, train=[], validation=[], test=numbers)
    return split_classes(pool, train=numbers[::2], validation=numbers[1::4], test=numbers[3::4])


def _in_imagenet() -> frozenset[str]:
    return frozenset(f"{kind}_{number}.jpg" for kind, numbers in IN_IMAGENET.items() for number in numbers.split())


def _classes(source: Path, files: Files, *, dropped: frozenset[str] = frozenset()) -> Classes:
    """The images of each class as `images.txt` lists them, sorted, with every class and image checked; then some dropped."""
    names = _numbered(source, files, "classes.txt")
    listed = _numbered(source, files, "images.txt")
    if len(names) != N_CLASSES or len(set(names)) != N_CLASSES:
        raise DataError(
            f"{source} is refused: its classes.txt has {len(set(names))} classes, not {N_CLASSES}. Put a whole copy of "
            f"{CUB.title} there."
        )
    there = {"/".join(parts[-2:]): "/".join(parts) for parts in visible_images(files) if parts[-3:-2] == ["images"]}
    _check_same(source, set(listed), set(there))
    classes: Classes = {name: [] for name in sorted(names)}
    for image in sorted(set(listed)):
        name = image.split("/")[0]
        if name not in classes:
            raise DataError(f"{source} is refused: its images.txt has {image!r}, whose class is not in classes.txt.")
        if image.split("/")[-1] not in dropped:
            classes[name].append(there[image])
    empty = [name for name, images in classes.items() if not images]
    if empty:
        raise DataError(f"{source} is refused: {len(empty)} of its classes have no image, such as {empty[0]!r}.")
    return classes


def _numbered(source: Path, files: Files, name: str) -> list[str]:
    """The second column of a list such as `1 001.Black_footed_Albatross`."""
    where = [path for path in files if path.split("/")[-1] == name and path.count("/") <= 1]
    if len(where) != 1:
        raise DataError(
            f"{source} is refused: it has {len(where)} files {name} at its top, not one. Put {CUB.layouts} there, as it "
            "was published."
        )
    lines = [line.split() for line in read_text(files, where[0], source).splitlines() if line.strip()]
    if any(len(line) != 2 or not line[0].isdigit() for line in lines):
        raise DataError(f"{source} is refused: its {name} has lines that are not a number and a name.")
    return [line[1] for line in lines]


def _check_same(source: Path, listed: set[str], there: set[str]) -> None:
    missing, strange = sorted(listed - there), sorted(there - listed)
    if missing:
        raise DataError(
            f"{source} is refused: its images.txt lists {missing[0]!r}, which is not in images/ ({len(missing):,} such of "
            f"{len(listed):,}). Put a whole copy there."
        )
    if strange:
        raise DataError(
            f"{source} is refused: its images/ has {strange[0]!r}, which images.txt does not list ({len(strange):,} such)."
        )
