"""What the sets of natural images have in common: where they are looked for, how they are listed, decoded and kept.

A set is a folder or an archive. Its images are colour, resized to a square, held in memory as uint8, and kept decoded in the
cache, so that only the first load takes its time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from fscl.data.archive import ARCHIVE_ENDINGS, fingerprint, open_files
from fscl.data.dataset import DataSet, Progress
from fscl.data.download import data_folders
from fscl.data.images import MAX_SIDE, read_image
from fscl.data.limits import PHOTOS, Files
from fscl.data.pool import ClassPool
from fscl.errors import DataError, MisuseError, StorageError
from fscl.storage import MAX_TENSOR_BYTES, cache_folder, digest, load_tensors, save_tensors

PHOTO_SIZE = 64  # side to which natural images are resized unless told, as in the two-step consolidation paper
IMAGE_ENDINGS = (".jpg", ".jpeg", ".png")
PICKLE_ENDINGS = (".pkl", ".pickle", ".pkl.gz", ".pickle.gz")
_FORMATS = ("JPEG", "PNG")
_TELL_EVERY = 100  # images

Classes = dict[str, list[str]]  # the paths of each class's images


class PhotoSet(DataSet):
    """A set of natural images, which is looked for in the data folders.

    Attributes:
        title: as people write it.
        folders: names of the folder in which it may lie, in a data folder.
        archives: how the names of its archives start, in small letters.
        parts: the sub-folders by which an unpacked one is known.
        layouts: what is read, for the error of one that is not there.
    """

    title: str
    folders: tuple[str, ...]
    archives: tuple[str, ...] = ()
    parts: tuple[tuple[str, ...], ...]
    layouts: str

    class Options(DataSet.Options):
        """`path` is the folder or archive, or a folder that holds it, if it is in no data folder."""

        image_size: int = Field(default=PHOTO_SIZE, ge=16, le=MAX_SIDE)
        path: Path | None = None

    def find(self) -> str | None:
        place = self.locate()
        return None if place is None else str(place)

    def fetch(self) -> Path:
        raise MisuseError(
            f"{self.name!r} is not fetched by fscl: its terms are its owners'. docs/how-to/data.md says where it is."
        )

    def how_to_get(self) -> str:
        return "docs/how-to/data.md says where to get it; then set FSCL_DATA to the folder that holds it"

    def locate(self, given: Path | None = None) -> Path | None:
        """Where the set is: `given`, or in it; else in a data folder. None if it is nowhere."""
        if given is not None and given.is_file():
            return given
        if given is not None and given.name in ("", ".."):
            given = given.resolve()  # paths in a folder start with its name
        return next((found for place in self._places(given) if (found := self._in(place)) is not None), None)

    def _places(self, given: Path | None) -> list[Path]:
        roots = [given] if given is not None else data_folders()
        inside = [root / name for root in roots for name in self.folders]
        return [given, *inside] if given is not None else [*inside, *roots]

    def _in(self, place: Path) -> Path | None:
        if not place.is_dir():
            return None
        if place not in data_folders() and any(all((place / part).exists() for part in parts) for parts in self.parts):
            return place
        return next((path for path in sorted(place.iterdir()) if self._is_archive(path.name.lower())), None)

    def _is_archive(self, name: str) -> bool:
        return name.startswith(self.archives) and name.endswith(ARCHIVE_ENDINGS)

    def require(self, given: Path | None = None) -> Path:
        """Where the set is, or an error that says where it was looked for and what to do."""
        found = self.locate(given)
        if found is not None:
            refuse_pickle(found, self.title)
            return found
        places = self._places(given)
        for path in [path for place in places if place.is_dir() for path in sorted(place.iterdir())]:
            if path.parent not in data_folders() or path.name.lower().startswith(self.archives):
                refuse_pickle(path, self.title)
        looked = ", ".join(str(folder) for folder in ([given] if given is not None else data_folders()))
        raise DataError(
            f"{self.title} was not found in {looked}. Put {self.layouts} there, or set FSCL_DATA to a folder that has "
            "them; docs/how-to/data.md says where to get them."
        )


class ImageNetSet(PhotoSet):
    """A set of ImageNet classes, each called by its WordNet number: one number is one class in all of them."""

    has_imagenet_classes = True

    def vocabulary(self, options: Mapping[str, Any]) -> str:
        return "imagenet"


def refuse_pickle(path: Path, title: str) -> None:
    """Pickles of data sets are never opened: that would execute whatever code they carry."""
    if path.name.lower().endswith(PICKLE_ENDINGS):
        raise DataError(
            f"{path} is refused: it is a pickle, and opening one executes the code in it. Use the images of {title} as "
            "files; docs/how-to/data.md says which layouts are read."
        )


def visible_images(names: Iterable[str]) -> list[list[str]]:
    """The paths of images, in parts; hidden files and what a Mac adds are passed over."""
    paths = (name.split("/") for name in names if name.lower().endswith(IMAGE_ENDINGS))
    return [parts for parts in paths if "__MACOSX" not in parts and not any(part.startswith(".") for part in parts)]


def read_text(files: Files, name: str, source: Path) -> str:
    """A small text file of a set."""
    try:
        return files[name]().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{source} is refused: its entry {name!r} is not text in UTF-8.") from error


def load_photos(
    name: str,
    sources: Sequence[Path],
    list_classes: Callable[[Files], Mapping[str, list[str]]],
    *,
    image_size: int,
    progress: Progress | None,
    choice: str = "",
) -> ClassPool:
    """A pool of the images that `list_classes` finds in the sources, from the cache where they are there.

    Args:
        choice: what else decides which images are taken; another choice is another file in the cache.
        progress: called with the images decoded so far and their total, if they are not in the cache yet.
    """
    key = digest([image_size, choice, *(fingerprint(source, PHOTOS) for source in sources)])
    cached = cache_folder() / "prepared" / f"{name}-{image_size}-{key}.safetensors"
    try:
        tensors, details = load_tensors(cached, name)
        return ClassPool(name, tensors["images"], tuple(details["class_names"]), tuple(details["counts"]))
    except (StorageError, DataError, LookupError, TypeError, ValueError):
        pass  # not there, or not whole: it is only a cache
    with ExitStack() as stack:
        files: dict[str, Callable[[], bytes]] = {}
        origin: dict[str, Path] = {}
        for source in sources:
            opened = stack.enter_context(open_files(source, PHOTOS))
            files |= opened
            origin |= dict.fromkeys(opened, source)
        classes = list_classes(files)
        images = _decode(files, origin, classes, image_size, progress)
    pool = ClassPool(name, images, tuple(classes), tuple(len(paths) for paths in classes.values()))
    with suppress(OSError):  # a full or read-only disk makes the next load slow, not this one wrong
        details = {"class_names": list(pool.class_names), "counts": list(pool.counts)}
        save_tensors(cached, name, {"images": pool.images}, details)
    return pool


def _decode(
    files: Files,
    origin: Mapping[str, Path],
    classes: Mapping[str, list[str]],
    image_size: int,
    progress: Progress | None,
) -> torch.Tensor:
    """The images, class after class; decoded in the order of the files, which is the quick one for a compressed tar."""
    place = {path: index for index, path in enumerate(path for paths in classes.values() for path in paths)}
    n_bytes = len(place) * 3 * image_size**2
    if n_bytes > MAX_TENSOR_BYTES:
        raise DataError(
            f"{len(place):,} images of {image_size}×{image_size} pixels would take {n_bytes / 2**30:.1f} GB of memory, over "
            f"the {MAX_TENSOR_BYTES / 2**30:.0f} GB that are used. Choose a smaller image_size, or fewer images a class."
        )
    images = torch.empty(len(place), 3, image_size, image_size, dtype=torch.uint8)
    n_done = 0
    for path, read in files.items():
        if path not in place:
            continue
        name = f"{origin[path]} is refused: its entry {path!r}"
        pixels = read_image(read(), image_size=image_size, channels=3, name=name, formats=_FORMATS)
        images[place[path]] = torch.from_numpy(pixels.copy())
        n_done += 1
        if progress is not None and (n_done % _TELL_EVERY == 0 or n_done == len(place)):
            progress(n_done, len(place))
    return images
