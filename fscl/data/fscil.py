"""The lists of few-shot class-incremental learning on miniImageNet (Tao et al. 2020), read and checked.

A base session of 60 classes with all their training images, then eight sessions that bring five new classes each with five
images a class; the test images of all 100 classes are apart. The lists lie beside the images of miniImageNet:

- `fscil_train.csv` and `fscil_test.csv`: lines `filename,label` under such a header;
- `fscil_session_2.txt` to `fscil_session_9.txt`: a path a line, which ends in `<class>/<filename>`.

These classes cross Ravi and Larochelle's 64/16/20: a base trained on their training side knows classes of these sessions.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fscl.data.archive import open_files
from fscl.data.limits import PHOTOS, Files
from fscl.data.photos import read_text, visible_images
from fscl.data.sets.mini_imagenet import MINI
from fscl.errors import DataError

N_BASE_CLASSES = 60
N_SESSIONS = 8  # after the base session
N_WAY = 5
N_SHOT = 5

ImagesByClass = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class FscilLists:
    """File names of images by class: of the base session, of each later session, and to test on."""

    base: ImagesByClass
    sessions: tuple[ImagesByClass, ...]
    test: ImagesByClass

    @property
    def class_names(self) -> tuple[str, ...]:
        """Every class, in the order in which they come."""
        return (*self.base, *(name for session in self.sessions for name in session))


def read_fscil(path: Path | None = None) -> FscilLists:
    """Read the lists from the folder or archive of miniImageNet, and check them.

    Args:
        path: the folder or archive, or a folder that holds it; else it is looked for in `FSCL_DATA` and the user's cache.
    """
    source = MINI.require(path)
    with open_files(source, PHOTOS) as files:
        train, test = (_rows(source, files, f"fscil_{side}.csv") for side in ("train", "test"))
        sessions = tuple(_session(source, files, number) for number in range(2, N_SESSIONS + 2))
        there = {parts[-1] for parts in visible_images(files)}
    new = [name for session in sessions for name in session]
    base = {name: images for name, images in train.items() if name not in new}
    lists = FscilLists(base, sessions, test)
    _check_labels(source, sessions, {image: name for name, images in train.items() for image in images})
    _check_classes(source, lists, new)
    _check_images(source, lists, there)
    return lists


def _rows(source: Path, files: Files, name: str) -> ImagesByClass:
    rows = list(csv.reader(_text(source, files, name).splitlines()))
    if rows[:1] != [["filename", "label"]] or any(len(row) != 2 for row in rows):
        raise DataError(f"{source} is refused: its {name} is no list of lines `filename,label` under such a header.")
    return _by_class((label, file) for file, label in rows[1:])


def _session(source: Path, files: Files, number: int) -> ImagesByClass:
    name = f"fscil_session_{number}.txt"
    paths = [line.strip().split("/") for line in _text(source, files, name).splitlines() if line.strip()]
    if any(len(parts) < 2 for parts in paths):
        raise DataError(f"{source} is refused: its {name} has a line that does not end in <class>/<filename>.")
    session = _by_class((parts[-2], parts[-1]) for parts in paths)
    if len(session) != N_WAY or any(len(images) != N_SHOT for images in session.values()):
        raise DataError(
            f"{source} is refused: its {name} has {len(session)} classes with {len(paths)} images, not {N_WAY} classes with "
            f"{N_SHOT} images each."
        )
    return session


def _text(source: Path, files: Files, name: str) -> str:
    where = [path for path in files if path.split("/")[-1] == name and path.count("/") <= 1]
    if len(where) != 1:
        raise DataError(
            f"{source} has {len(where)} files {name} at its top, and the lists of few-shot class-incremental learning need "
            "one. Put fscil_train.csv, fscil_test.csv and fscil_session_2.txt to fscil_session_9.txt beside its images."
        )
    return read_text(files, where[0], source)


def _by_class(pairs: Iterable[tuple[str, str]]) -> ImagesByClass:
    images: dict[str, list[str]] = {}
    for name, file in pairs:
        images.setdefault(name, []).append(file)
    return {name: tuple(of_class) for name, of_class in images.items()}


def _check_classes(source: Path, lists: FscilLists, new: list[str]) -> None:
    twice = sorted({name for name in new if new.count(name) > 1})
    if twice:
        raise DataError(f"{source} is refused: class {twice[0]} comes in two of its sessions.")
    if len(lists.base) != N_BASE_CLASSES:
        raise DataError(
            f"{source} is refused: {len(lists.base)} classes of its fscil_train.csv are in no session; the base session has "
            f"{N_BASE_CLASSES}."
        )
    untested = sorted(set(lists.class_names) ^ set(lists.test))
    if untested:
        raise DataError(
            f"{source} is refused: class {untested[0]} is either learned or tested, but not both ({len(untested)} such)."
        )


def _check_labels(source: Path, sessions: Iterable[ImagesByClass], known: Mapping[str, str]) -> None:
    for name, image in ((name, image) for session in sessions for name, images in session.items() for image in images):
        if known.get(image, name) != name:
            raise DataError(
                f"{source} is refused: a session has {image!r} as {name}, but fscil_train.csv has it as {known[image]}."
            )


def _check_images(source: Path, lists: FscilLists, there: set[str]) -> None:
    seen: set[str] = set()
    for group in (lists.base, *lists.sessions, lists.test):
        for image in (image for images in group.values() for image in images):
            if image in seen:
                raise DataError(f"{source} is refused: its lists have the image {image!r} twice.")
            if image not in there:
                raise DataError(f"{source} is refused: its lists have the image {image!r}, which is not there.")
            seen.add(image)
