"""Images of your own: one sub-folder per class, its name the name of the class.

Every image is brought to one square size by a plain resize (see `fscl.data.images`). Files that cannot serve are named
with the reason, and refused or skipped as the caller asks; none is dropped in silence, except the hidden ones.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import torch

from fscl.data.images import Pixels, check_shape, read_image
from fscl.data.names import class_name, look
from fscl.data.pool import ClassPool, Splits
from fscl.errors import DataError, unknown_name

T = TypeVar("T")

BadFiles = Literal["refuse", "skip"]
Report = Callable[[str], None]

_HIDDEN = {"Thumbs.db", "desktop.ini", "__MACOSX"}
_VALIDATION_NAMES = ("val", "validation")


def load_folder(
    path: Path | str,
    *,
    image_size: int = 32,
    channels: int = 1,
    bad_files: BadFiles = "refuse",
    report: Report | None = None,
) -> ClassPool:
    """Load `path/<class>/<image>` as a pool; classes and images are sorted by name.

    Examples:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("cup", "key"):
        ...         (Path(folder) / name).mkdir()
        ...         Image.new("L", (40, 40)).save(Path(folder) / name / "1.png")
        ...     load_folder(folder).class_names
        ('cup', 'key')

    Args:
        path: the folder with one sub-folder per class.
        image_size: side of the square to which every image is resized, in pixels.
        channels: 1 for greyscale, 3 for colour.
        bad_files: "refuse" raises a DataError that names the files that cannot serve; "skip" leaves them out.
        report: called with one sentence for each file that is skipped.
    """
    check_shape(image_size=image_size, channels=channels)
    root = Path(path)

    def decode(file: Path, name: str) -> Pixels:
        return read_image(file, image_size=image_size, channels=channels, name=name)

    images = read_classes(root, decode, bad_files=bad_files, report=report)
    return ClassPool(
        name=root.resolve().name,
        images=torch.from_numpy(np.stack([image for of_class in images.values() for image in of_class.values()])),
        class_names=tuple(images),
        counts=tuple(len(of_class) for of_class in images.values()),
    )


def read_classes(
    path: Path | str,
    decode: Callable[[Path, str], T],
    *,
    bad_files: BadFiles = "refuse",
    report: Report | None = None,
) -> dict[str, dict[str, T]]:
    """What `decode` makes of each file and what to call it, by the name of the class and that of the file.

    Args:
        path: the folder with one sub-folder per class.
        decode: raises a DataError for a file that cannot serve.
        bad_files, report: as of `load_folder`.
    """
    if bad_files not in ("refuse", "skip"):
        raise unknown_name("way with bad files", bad_files, ("refuse", "skip"))
    root = Path(path)
    problems: list[str] = []
    images: dict[str, dict[str, T]] = {}
    for folder in _class_folders(root, problems):
        name = class_name(folder.name)
        alike = next((other for other in images if look(other) == look(name)), None)
        if alike is not None:
            raise DataError(
                f"two folders in {root} have names that look the same but are written differently, {alike!r} and "
                f"{folder.name!r}. Put the pictures of both into one."
            )
        images[name] = _load_class(folder, root, decode, problems)
    if problems and bad_files == "refuse":
        listed = "; ".join(problem.rstrip(".") for problem in problems[:5])
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise DataError(
            f"{len(problems)} bad {'file' if len(problems) == 1 else 'files'} in {root}: {listed}{more}. "
            "Remove them, or skip them: bad_files='skip', or --skip-bad where a model is taught."
        )
    if report is not None:
        for problem in problems:
            report(problem)
    empty = [name for name, of_class in images.items() if not of_class]
    if empty:
        raise DataError(
            f"class {empty[0]!r} of {root} has no usable image ({len(empty)} such of {len(images)} classes). "
            "Put at least one image in each class folder, or remove the folder."
        )
    return images


def load_split_folder(
    path: Path | str,
    *,
    image_size: int = 32,
    channels: int = 1,
    bad_files: BadFiles = "refuse",
    report: Report | None = None,
) -> Splits:
    """Load `path/train/<class>`, `path/val/<class>` (or `validation`) and `path/test/<class>`; see `load_folder`.

    The splits must share no class: the classes to test on are new ones.

    Examples:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for split, name in (("train", "cup"), ("val", "key"), ("test", "pen")):
        ...         (Path(folder) / split / name).mkdir(parents=True)
        ...         Image.new("L", (40, 40)).save(Path(folder) / split / name / "1.png")
        ...     load_split_folder(folder).test.class_names
        ('pen',)

    Args:
        path: the folder with the three.
        image_size: side of the square to which every image is resized, in pixels.
        channels: 1 for greyscale, 3 for colour.
        bad_files: "refuse" raises a DataError that names the files that cannot serve; "skip" leaves them out.
        report: called with one sentence for each file that is skipped.
    """
    root = _folder(path)
    named = [name for name in _VALIDATION_NAMES if (root / name).is_dir()]
    if len(named) == 2:
        raise DataError(f"{root} has both a 'val' and a 'validation' folder; remove one of them.")
    folders = {"train": "train", "validation": named[0] if named else "val", "test": "test"}
    missing = [name for name in folders.values() if not (root / name).is_dir()]
    if missing:
        raise DataError(
            f"{root} has no folder {missing[0]!r}; a split folder holds train/, val/ and test/, each with classes."
        )
    train, validation, test = (
        load_folder(root / name, image_size=image_size, channels=channels, bad_files=bad_files, report=report)
        for name in folders.values()
    )
    return Splits(train=train, validation=validation, test=test)


def _class_folders(root: Path, problems: list[str]) -> list[Path]:
    """The class folders, sorted by name; what else lies beside them is a problem."""
    folders = []
    for entry in visible_files(_folder(root)):
        fault = _link_fault(entry, root)
        if not entry.is_dir():
            problems.append(f"{entry.name} lies beside the class folders and belongs to no class.")
        elif fault is not None:
            problems.append(f"{entry.name} {fault}.")
        else:
            class_name(entry.name)  # refuses also what is not valid UTF-8, which could be written to no record
            folders.append(entry)
    if not folders:
        found = "only files" if problems else "nothing"
        raise DataError(
            f"{root} holds {found}; it needs one sub-folder per class, with the images of that class in it."
        )
    return folders


def _load_class(folder: Path, root: Path, decode: Callable[[Path, str], T], problems: list[str]) -> dict[str, T]:
    images = {}
    for file in visible_files(folder):
        name = f"{folder.name}/{file.name}"
        fault = _link_fault(file, root)
        if fault is not None:
            problems.append(f"{name} {fault}.")
        elif file.is_dir():
            problems.append(f"{name} is a folder inside a class folder.")
        elif not file.is_file():  # a pipe or a device, which could block for ever, or a link to nothing
            problems.append(f"{name} is not a regular file.")
        else:
            try:
                images[file.name] = decode(file, name)
            except DataError as error:
                problems.append(str(error))
    return images


def _folder(path: Path | str) -> Path:
    folder = Path(path)
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise DataError(f"{folder} {what}; give a folder with one sub-folder per class.")
    return folder


def visible_files(folder: Path) -> Iterable[Path]:
    """What lies in a folder, by name, without what is hidden."""
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"cannot read the folder {folder}: {error.strerror}.") from error
    return (entry for entry in entries if not entry.name.startswith(".") and entry.name not in _HIDDEN)


def _link_fault(path: Path, root: Path) -> str | None:
    """What is wrong with a link, if it is one: the rest of a sentence."""
    if not path.is_symlink():
        return None
    try:
        inside = path.resolve(strict=True).is_relative_to(root.resolve())
    except FileNotFoundError:
        return None  # it leads nowhere, and is told so as no regular file
    except (OSError, RuntimeError):
        return "is a link that leads to itself"
    return None if inside else "is a link that leads out of the folder"
