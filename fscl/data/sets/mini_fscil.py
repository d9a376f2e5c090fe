"""miniImageNet as few-shot class-incremental learning has it: 60 base classes, then eight sessions of five.

The lists are those of `fscil.py` (Tao et al. 2020). Of the training images of each base class the last tenth is held out, to
choose the base on; the others train it, and are the shots of the base session. In the usual practice of this benchmark the
base is chosen on the test images of the sessions to come; not so here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch

from fscl.data.dataset import Progress, Tell
from fscl.data.fscil import FscilLists, read_fscil
from fscl.data.images import check_shape
from fscl.data.limits import Files
from fscl.data.photos import PHOTO_SIZE, ImageNetSet, load_photos, visible_images
from fscl.data.pool import ClassPool, Splits
from fscl.data.sets.mini_imagenet import MINI
from fscl.data.stream import Stream, StreamSpec, listed_stream
from fscl.errors import DataError

HELD_OUT = 10  # one image in so many of a base class
HELD_OUT_NAME = "{} (held out)"


class MiniFscil(ImageNetSet):
    """miniImageNet, wherever that is, with the one stream of sessions that Tao et al. published."""

    name = "mini-fscil"
    summary = "miniImageNet for few-shot class-incremental learning: 60 base classes, then 8 times 5 (Tao et al. 2020)."
    title, folders, archives, parts, layouts = MINI.title, MINI.folders, MINI.archives, MINI.parts, MINI.layouts
    published_stream = True

    class Options(ImageNetSet.Options):
        """Nothing of its own."""

        name: Literal["mini-fscil"] = "mini-fscil"

    def load(self, options: Options, progress: Progress | None = None, tell: Tell | None = None) -> Splits:
        return load_mini_fscil(image_size=options.image_size, path=options.path, progress=progress)

    def draw_stream(self, pool: ClassPool, spec: StreamSpec, generator: torch.Generator) -> Stream:
        return listed_stream(pool, spec)  # the pool has it in order; nothing is drawn


FSCIL = MiniFscil()


def load_mini_fscil(
    *, image_size: int = PHOTO_SIZE, path: Path | None = None, progress: Progress | None = None
) -> Splits:
    """Load miniImageNet by the lists of few-shot class-incremental learning.

    The test pool has the classes in order of arrival, and of each class first the shots and then the test images; the base
    classes are in it too, since the first session asks for them.

    Args:
        image_size: side to which the images are resized, in pixels.
        path: the folder or archive, or a folder that holds it; else it is looked for in `FSCL_DATA` and the user's cache.
        progress: called with the images decoded so far and their total, if they are not in the cache yet.
    """
    check_shape(image_size=image_size, channels=3)
    source = MINI.require(path)
    lists = read_fscil(source)
    learned = {name: images for group in (lists.base, *lists.sessions) for name, images in group.items()}

    def paths(files: Files) -> Mapping[str, list[str]]:
        where = {parts[-1]: "/".join(parts) for parts in visible_images(files)}
        return {name: [where[image] for image in (*learned[name], *lists.test[name])] for name in learned}

    pool = load_photos("mini-fscil", [source], paths, image_size=image_size, progress=progress)
    n_test = _test_images(source, lists)
    n_held = {name: len(images) // HELD_OUT for name, images in lists.base.items()}
    if 0 in n_held.values():
        few = min(lists.base, key=lambda name: len(lists.base[name]))
        raise DataError(
            f"{source} is refused: base class {few} has {len(lists.base[few])} training images; at least {HELD_OUT} are "
            "needed, one of them to choose the base on."
        )
    n_shots = {name: len(images) - n_held.get(name, 0) for name, images in learned.items()}
    train = _pool("mini-fscil (train)", pool, {name: range(n_shots[name]) for name in lists.base})
    held = {name: range(n_shots[name], len(learned[name])) for name in lists.base}
    validation = _pool("mini-fscil (held out)", pool, held, HELD_OUT_NAME)
    asked = {name: [*range(n_shots[name]), *_last(len(learned[name]), n_test)] for name in learned}
    return Splits(train, validation, _pool("mini-fscil (test)", pool, asked), known=frozenset(lists.base))


def _test_images(source: Path, lists: FscilLists) -> int:
    counts = {len(images) for images in lists.test.values()}
    if len(counts) > 1:
        raise DataError(
            f"{source} is refused: its fscil_test.csv has {min(counts)} images of some classes and {max(counts)} of others, "
            "and session accuracy is the mean over classes of equal size."
        )
    return counts.pop()


def _last(start: int, count: int) -> range:
    return range(start, start + count)


def _pool(
    name: str, pool: ClassPool, positions: Mapping[str, range] | Mapping[str, list[int]], called: str = "{}"
) -> ClassPool:
    chosen = [pool.of_class(pool.position[of])[list(places)] for of, places in positions.items()]
    names = tuple(called.format(of) for of in positions)
    return ClassPool(name, torch.cat(chosen), names, tuple(map(len, chosen)))
