"""Glyphs: handwritten-looking characters of invented alphabets, drawn by a small generative model. Nothing is downloaded.

They stand in for Omniglot where nothing may be downloaded; no data of Omniglot is in them. How they are drawn is in
`fscl.data.handwriting`.

Everything is named by alphabet, character and hand, so a smaller set is the beginning of a larger one of the same seed.
"""

import itertools
from contextlib import suppress
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fscl.data.dataset import DataSet, Progress, Tell
from fscl.data.handwriting import draw_alphabet
from fscl.data.pool import ClassPool, Splits, split_classes
from fscl.errors import DataError, StorageError
from fscl.rng import numpy_generator
from fscl.storage import cache_folder, load_tensors, save_tensors

VERSION = 2  # raise it whenever a pixel may change: the cache is keyed by it
N_ALPHABETS, N_CHARACTERS, N_DRAWINGS = 40, 30, 20
N_TRAIN, N_VALIDATION = 28, 4  # alphabets; the remaining 8 are the test split

_LIMITS = {
    "n_alphabets": (1, 1000),
    "n_characters": (1, 100),
    "n_drawings": (1, 100),
    "image_size": (16, 128),
    "seed": (0, 2**63 - 1),
}


class Glyphs(DataSet):
    """Invented characters."""

    name = "glyphs"
    summary = "1,200 invented characters of 40 alphabets, 20 drawings each; made on the spot, nothing to download."

    class Options(DataSet.Options):
        """Nothing of its own."""

        name: Literal["glyphs"] = "glyphs"
        image_size: int = Field(default=32, ge=_LIMITS["image_size"][0], le=_LIMITS["image_size"][1])

    def load(self, options: Options, progress: Progress | None = None, tell: Tell | None = None) -> Splits:
        return load_glyphs(image_size=options.image_size, progress=progress)

    def find(self) -> str | None:
        return "made on the spot"


GLYPHS = Glyphs()


def load_glyphs(*, image_size: int = 32, seed: int = 0, progress: Progress | None = None) -> Splits:
    """The 1,200 characters of 40 alphabets, 20 drawings each, split by whole alphabets: 28 / 4 / 8.

    The first call makes them (a few seconds) and keeps them in the cache folder; later calls read them from there.

    Examples:
        >>> load_glyphs().test.image_shape
        (1, 32, 32)

    Args:
        image_size: side of the square images, in pixels.
        seed: another seed gives other alphabets.
        progress: called with (alphabets done, alphabets in all) while they are made.
    """
    _check(image_size=image_size, seed=seed)
    path = cache_folder() / f"glyphs-v{VERSION}-seed{seed}-{image_size}px.safetensors"
    names = _class_names(N_ALPHABETS, N_CHARACTERS, seed)
    images = _cached_images(path, (len(names) * N_DRAWINGS, 1, image_size, image_size))
    if images is None:
        images = _draw(N_ALPHABETS, N_CHARACTERS, N_DRAWINGS, image_size, seed, progress)
        with suppress(OSError):  # a cache that cannot be written costs time, not the data
            save_tensors(path, "glyphs", {"images": images})
    pool = ClassPool("glyphs", images, names, (N_DRAWINGS,) * len(names))
    bounds = [0, N_TRAIN * N_CHARACTERS, (N_TRAIN + N_VALIDATION) * N_CHARACTERS, len(pool)]
    train, validation, test = (range(start, end) for start, end in itertools.pairwise(bounds))
    return split_classes(pool, train=train, validation=validation, test=test)


def make_glyphs(
    *,
    n_alphabets: int = N_ALPHABETS,
    n_characters: int = N_CHARACTERS,
    n_drawings: int = N_DRAWINGS,
    image_size: int = 32,
    seed: int = 0,
) -> ClassPool:
    """A set of any size, made anew. Class names are "Alphabet/character07"; the cache is not used."""
    _check(n_alphabets=n_alphabets, n_characters=n_characters, n_drawings=n_drawings, image_size=image_size, seed=seed)
    names = _class_names(n_alphabets, n_characters, seed)
    images = _draw(n_alphabets, n_characters, n_drawings, image_size, seed, None)
    return ClassPool("glyphs", images, names, (n_drawings,) * len(names))


def _check(**values: int) -> None:
    for name, value in values.items():
        low, high = _LIMITS[name]
        if not isinstance(value, int | np.integer) or not low <= value <= high:
            raise DataError(f"glyphs got {name}={value!r}; it takes a whole number from {low} to {high}.")


def _cached_images(path: Path, shape: tuple[int, ...]) -> Tensor | None:
    try:
        images = load_tensors(path, "glyphs")[0].get("images")
    except StorageError:  # none yet, or a broken one: made again
        return None
    return images if images is not None and images.shape == shape and images.dtype == torch.uint8 else None


def _class_names(n_alphabets: int, n_characters: int, seed: int) -> tuple[str, ...]:
    alphabets: list[str] = []
    for index in range(n_alphabets):
        random = numpy_generator(seed, "glyphs", "name", index)
        while len(alphabets) <= index:
            parts = [random.choice(list("bdfghjklmnprstvz")) + random.choice(list("aeiou")) for _ in range(3)]
            name = "".join(parts).capitalize() + random.choice(["", "n", "r", "s", "l"])
            if name not in alphabets:
                alphabets.append(name)
    return tuple(f"{name}/character{number:02d}" for name in alphabets for number in range(1, n_characters + 1))


def _draw(
    n_alphabets: int, n_characters: int, n_drawings: int, size: int, seed: int, progress: Progress | None
) -> Tensor:
    parts = []
    for index in range(n_alphabets):
        parts.append(draw_alphabet(index, n_characters=n_characters, n_drawings=n_drawings, size=size, seed=seed))
        if progress is not None:
            progress(index + 1, n_alphabets)
    return torch.cat(parts)[:, None]
