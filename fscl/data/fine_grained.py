"""Sets of 60 fine-grained classes of photographs, for a base that was pretrained elsewhere.

Read is `<name>/<class>/*.jpg`, as a folder or as an archive. All classes must be there and no others; any number of
photographs a class is taken.

10 classes, always the same ones, are to choose settings on and the others to test on. None is to train on: with so few
classes a base comes from elsewhere.
"""

from functools import partial
from pathlib import Path

import torch
from pydantic import Field

from fscl.data.dataset import Progress, Tell
from fscl.data.images import MAX_SIDE
from fscl.data.limits import Files
from fscl.data.photos import Classes, PhotoSet, load_photos, visible_images
from fscl.data.pool import Splits, split_classes
from fscl.errors import DataError
from fscl.rng import generator

SIDE = 224  # pixels, as pretrained networks want them
N_VALIDATION = 10  # classes


class FineGrained(PhotoSet):
    """A set of some classes of one kind of thing.

    Attributes:
        classes: the names of all of them.
    """

    classes: tuple[str, ...]

    class Options(PhotoSet.Options):
        """Nothing of its own; photographs are larger than in the other sets, because a pretrained base wants them so."""

        image_size: int = Field(default=SIDE, ge=16, le=MAX_SIDE)

    def load(self, options: Options, progress: Progress | None = None, tell: Tell | None = None) -> Splits:
        source = self.require(options.path)
        pool = load_photos(
            self.name, [source], partial(self._listed, source), image_size=options.image_size, progress=progress
        )
        order = torch.randperm(len(pool), generator=generator(0, self.name, "validation")).tolist()
        validation, test = sorted(order[:N_VALIDATION]), sorted(order[N_VALIDATION:])
        return split_classes(pool, train=[], validation=validation, test=test)

    def _listed(self, source: Path, files: Files) -> Classes:
        """The photographs of each class, sorted, with every class checked."""
        classes: Classes = {name: [] for name in sorted(self.classes)}
        for parts in visible_images(files):
            name = parts[-2] if len(parts) > 1 else ""
            if name not in classes:
                raise DataError(
                    f"{source} is refused: its entry {'/'.join(parts)!r} is of none of the {len(classes)} classes of "
                    f"{self.name!r}. Put {self.layouts} there."
                )
            classes[name].append("/".join(parts))
        missing = [name for name, images in classes.items() if not images]
        if missing:
            raise DataError(
                f"{source} is refused: {len(missing)} of the {len(classes)} classes of {self.name!r} have no photograph, "
                f"such as {missing[0]!r}. Put {self.layouts} there."
            )
        return {name: sorted(images) for name, images in classes.items()}
