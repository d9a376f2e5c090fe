"""A data set from outside the package, as somebody would write one: a module `toy_data` with an object `TOY`."""

from pathlib import Path

SOURCE = '''
"""Made-up images: each class one grey level, each image with noise."""

import torch
from pydantic import Field

from fscl import ClassPool, DataSet, Splits, generator
from fscl.data.pool import split_classes


class Toy(DataSet):
    name = "toy"
    summary = "Squares of one grey level."

    class Options(DataSet.Options):
        image_size: int = Field(default=16, ge=16, le=64)
        n_classes: int = Field(default=40, ge=30)

    def load(self, options, progress=None, tell=None) -> Splits:
        n, size = options.n_classes, options.image_size
        levels = torch.linspace(20, 235, n).view(n, 1, 1, 1, 1)
        noise = 10 * torch.randn(n, 20, 1, size, size, generator=generator(0, "toy"))
        images = (levels + noise).clamp(0, 255).to(torch.uint8).flatten(0, 1)
        pool = ClassPool("toy", images, tuple(f"grey-{i}" for i in range(n)), (20,) * n)
        return split_classes(pool, train=range(0, n, 2), validation=range(1, n, 4), test=range(3, n, 4))

    def find(self):
        return "made on the spot"


TOY = Toy()
CLASS = Toy
NUMBER = 3


class _Nameless(Toy):
    name = None


NAMELESS = _Nameless()


class _Loose(Toy):
    Options = dict


LOOSE = _Loose()
'''


def write_toy(folder: Path) -> None:
    """Put the module into a folder."""
    (folder / "toy_data.py").write_text(SOURCE)
