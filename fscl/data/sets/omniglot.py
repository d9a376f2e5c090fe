"""Omniglot: 1,623 handwritten characters of 50 alphabets, 20 drawings each (Lake, Salakhutdinov and Tenenbaum 2015).

The official archives are read in place and accepted by their content: every character with its 20 drawings of 105×105
pixels. Decoded images are kept in the cache, so that only the first load takes seconds.

Three ways to split the characters, in the order background then evaluation, alphabet by alphabet:

- `paper`: the first 963 to train on and the last 660 to test on, as the two-step consolidation paper counts them.
- `official`: 964 of the background set to train on, 659 of the evaluation set to test on.
- `vinyals`: the first 1,200 to train on, five alphabets of them (172 characters) for validation, and the last 423 to
  test on: the lists published with prototypical networks (Snell, Swersky and Zemel 2017) for Vinyals et al. (2016).
"""

from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch

from fscl.data.archive import fingerprint, open_files
from fscl.data.dataset import DataSet, Progress, Tell
from fscl.data.download import data_folders
from fscl.data.download import download as fetch_file
from fscl.data.images import check_shape, read_image
from fscl.data.pool import ClassPool, Splits, split_classes
from fscl.errors import DataError, MisuseError, StorageError, unknown_name
from fscl.rng import generator
from fscl.storage import cache_folder, digest, load_tensors, save_tensors

OmniglotSplit = Literal["paper", "official", "vinyals"]
_Drawing = tuple[str, Callable[[], bytes]]

N_DRAWINGS = 20
N_VALIDATION = 100
_SIDE = 105
_URL = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"
_N_TRAINING_SIDE = {"paper": 963, "official": 964, "vinyals": 1200}
_VINYALS_VALIDATION = {"Armenian", "Bengali", "Early_Aramaic", "Hebrew", "Mkhedruli_(Georgian)"}
_N_VINYALS_VALIDATION = 172


@dataclass(frozen=True)
class _Part:
    name: str
    n_characters: int
    md5: str


_PARTS = (
    _Part("images_background", 964, "68d2efa1b9178cc56df9314c21c6e718"),
    _Part("images_evaluation", 659, "6b91aef0f799c5bb55b94e3f2daec811"),
)


class Omniglot(DataSet):
    """Omniglot."""

    name = "omniglot"
    summary = "1,623 handwritten characters of 50 alphabets, 20 drawings each (Lake et al. 2015)."

    class Options(DataSet.Options):
        """`split` is `paper`, `official` or `vinyals`; see the module."""

        name: Literal["omniglot"] = "omniglot"
        split: OmniglotSplit = "paper"

    def load(self, options: Options, progress: Progress | None = None, tell: Tell | None = None) -> Splits:
        return load_omniglot(split=options.split, image_size=options.image_size, progress=progress)

    def find(self) -> str | None:
        place = find_omniglot()
        return None if place is None else str(place)

    def fetch(self) -> Path:
        return fetch_omniglot()

    def how_to_get(self) -> str:
        return "`fscl data fetch omniglot` gets it, or set FSCL_DATA to a folder that holds it"


OMNIGLOT = Omniglot()


def load_omniglot(
    *,
    split: OmniglotSplit = "paper",
    image_size: int = 32,
    n_validation: int | None = None,
    data_folder: Path | None = None,
    download: bool = False,
    progress: Progress | None = None,
) -> Splits:
    """Load Omniglot, ink = 255 on 0, and split its characters.

    Examples:
        >>> splits = load_omniglot()  # `fscl data fetch omniglot` gets it
        >>> len(splits.train), len(splits.validation), len(splits.test)
        (847, 116, 660)

    Args:
        split: `paper`, `official` or `vinyals`; see the module.
        image_size: side to which the drawings are resized, in pixels.
        n_validation: take at least this many characters, as whole alphabets, from the training side for validation (100
            unless given). The `vinyals` split comes with its own.
        data_folder: where to look first, before `FSCL_DATA` and the user's cache.
        download: fetch the archives if they are nowhere.
        progress: called with the drawings decoded so far and their total, if they are not in the cache yet.
    """
    if split not in get_args(OmniglotSplit):
        raise unknown_name("Omniglot split", split, get_args(OmniglotSplit))
    if split == "vinyals" and n_validation not in (None, _N_VINYALS_VALIDATION):
        raise MisuseError(
            f"n_validation is {n_validation}, but the vinyals split comes with {_N_VINYALS_VALIDATION} validation "
            "characters. Leave n_validation out, or choose the paper or official split."
        )
    check_shape(image_size=image_size)
    folder = find_omniglot(data_folder)
    if folder is None and download:
        folder = fetch_omniglot()
    if folder is None:
        places = ", ".join(str(place) for place in _places(data_folder))
        raise DataError(
            f"Omniglot was not found: none of {places} holds both images_background and images_evaluation (.zip files "
            "or folders). Run `fscl data fetch omniglot`, or set FSCL_DATA to a folder that has them."
        )
    try:
        pool = _load_pool([_source(folder, part) for part in _PARTS], image_size, progress)
    except DataError as error:
        raise DataError(f"{error} Remove it, then run `fscl data fetch omniglot` or put a whole copy there.") from error
    return _split(pool, split, N_VALIDATION if n_validation is None else n_validation)


def find_omniglot(data_folder: Path | None = None) -> Path | None:
    """The first folder that holds both parts of Omniglot, as archives or unpacked."""
    return next(
        (place for place in _places(data_folder) if all(_source(place, part).exists() for part in _PARTS)), None
    )


def fetch_omniglot(*, progress: bool = True) -> Path:
    """Download both archives into the user's cache, unless they are there, and return their folder."""
    folder = cache_folder() / "data" / "omniglot"
    for part in _PARTS:
        if not _is_whole(folder / f"{part.name}.zip", part):
            filename = f"{part.name}.zip"
            fetch_file(_URL + filename, md5=part.md5, folder=folder, filename=filename, progress=progress)
    return folder


# ---- from a pool to splits ----


def _split(pool: ClassPool, split: OmniglotSplit, n_validation: int) -> Splits:
    n_training = _N_TRAINING_SIDE[split]
    alphabets = [name.split("/")[0] for name in pool.class_names]
    if split == "vinyals":
        chosen = _VINYALS_VALIDATION
    else:
        chosen = _draw_alphabets(alphabets[:n_training], set(alphabets[n_training:]), n_validation)
    validation = [index for index in range(n_training) if alphabets[index] in chosen]
    if split == "vinyals" and len(validation) != _N_VINYALS_VALIDATION:
        raise DataError(
            f"the alphabets found are not Omniglot's: {', '.join(sorted(chosen))} have {len(validation)} characters, "
            f"not {_N_VINYALS_VALIDATION}. Put the official archives in the place of these."
        )
    train = [index for index in range(n_training) if alphabets[index] not in chosen]
    return split_classes(pool, train=train, validation=validation, test=range(n_training, len(pool)))


def _draw_alphabets(training_side: list[str], test_side: set[str], n_validation: int) -> set[str]:
    """Whole alphabets with at least `n_validation` characters, none that the test side knows, always the same ones."""
    names = sorted(set(training_side))
    order = [names[index] for index in torch.randperm(len(names), generator=generator(0, "omniglot", "validation"))]
    free = [name for name in order if name not in test_side]
    n_free = sum(training_side.count(name) for name in free[:-1])
    if not 0 <= n_validation <= n_free:
        raise MisuseError(
            f"n_validation is {n_validation}; it must be from 0 to {n_free}, to leave an alphabet to train on."
        )
    chosen: set[str] = set()
    n_chosen = 0
    for name in free:
        if n_chosen >= n_validation:
            break
        chosen.add(name)
        n_chosen += training_side.count(name)
    return chosen


# ---- from files to a pool ----


def _places(data_folder: Path | None) -> list[Path]:
    folders = [*([Path(data_folder)] if data_folder else []), *data_folders()]
    return [place for folder in folders for place in (folder / "omniglot", folder)]


def _source(folder: Path, part: _Part) -> Path:
    archive = folder / f"{part.name}.zip"
    return archive if archive.exists() else folder / part.name


def _load_pool(sources: list[Path], image_size: int, progress: Progress | None) -> ClassPool:
    key = digest([image_size, *(fingerprint(source) for source in sources)])
    cached = cache_folder() / "prepared" / f"omniglot-{image_size}-{key}.safetensors"
    try:
        tensors, details = load_tensors(cached, "omniglot")
        return _pool(tensors["images"], details["class_names"])
    except (StorageError, DataError, LookupError, TypeError, ValueError):
        pass  # not there, or not whole: it is only a cache
    pool = _decode(sources, image_size, progress)
    with suppress(OSError):  # a full or read-only disk makes the next load slow, not this one wrong
        save_tensors(cached, "omniglot", {"images": pool.images}, {"class_names": list(pool.class_names)})
    return pool


def _pool(images: torch.Tensor, class_names: list[str]) -> ClassPool:
    return ClassPool("omniglot", images, tuple(class_names), (N_DRAWINGS,) * len(class_names))


def _decode(sources: list[Path], image_size: int, progress: Progress | None) -> ClassPool:
    with ExitStack() as stack:
        drawings: dict[str, list[_Drawing]] = {}
        for part, source in zip(_PARTS, sources, strict=True):  # all lists are checked before any image is decoded
            files = stack.enter_context(open_files(source))
            for character, names in _characters(files, part, source).items():
                if character in drawings:
                    raise DataError(f"{source} is refused: its {character} is in {sources[0]} too.")
                drawings[character] = [(f"{source} is refused: its entry {name!r}", files[name]) for name in names]
        total = N_DRAWINGS * len(drawings)
        images = torch.empty(total, 1, image_size, image_size, dtype=torch.uint8)
        position = 0
        for of_character in drawings.values():
            for name, read in of_character:
                images[position] = _read_drawing(read(), image_size, name)
                position += 1
            if progress is not None:
                progress(position, total)
    return _pool(images, list(drawings))


def _read_drawing(content: bytes, image_size: int, name: str) -> torch.Tensor:
    side = (_SIDE, _SIDE)
    paper_is_255 = read_image(content, image_size=image_size, name=name, formats=("PNG",), original_size=side)
    return torch.from_numpy(255 - paper_is_255)


def _characters(names: Iterable[str], part: _Part, source: Path) -> dict[str, list[str]]:
    """The drawings of each character, sorted, with every count checked."""
    characters: dict[tuple[str, str], list[str]] = {}
    for name in names:
        folders = name.split("/")
        hidden = folders[0] == "__MACOSX" or any(folder.startswith(".") for folder in folders)
        if hidden or not name.lower().endswith(".png"):
            continue
        if len(folders) != 4 or folders[0] != part.name:
            raise DataError(f"{source} is refused: its entry {name!r} is not at {part.name}/<alphabet>/<character>/.")
        characters.setdefault((folders[1], folders[2]), []).append(name)
    for (alphabet, character), drawings in characters.items():
        if len(drawings) != N_DRAWINGS:
            raise DataError(
                f"{source} is refused: its {alphabet}/{character} has {len(drawings)} drawings, not {N_DRAWINGS}."
            )
    if len(characters) != part.n_characters:
        raise DataError(f"{source} is refused: it has {len(characters)} characters, not {part.n_characters}.")
    return {"/".join(character): sorted(characters[character]) for character in sorted(characters)}


def _is_whole(archive: Path, part: _Part) -> bool:
    """Whether an archive is there with every drawing in it, each with the right CRC."""
    try:
        with open_files(archive) as files:
            for drawings in _characters(files, part, archive).values():
                for drawing in drawings:
                    files[drawing]()
    except DataError:
        return False
    return True
