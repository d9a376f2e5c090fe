"""Draw a sheet of glyphs: characters of twelve alphabets on the left, one character by eight hands on the right.

python examples/glyphs_sheet.py [docs/images/glyphs.png]
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from PIL import Image
from torch import Tensor

from fscl.data.contact_sheet import lay_out
from fscl.data.sets.glyphs import make_glyphs

ROWS, CHARACTERS, HANDS = 12, 16, 8


def tile(images: Tensor) -> Tensor:
    """One picture, black on white, each image in a frame of two pixels, from images (rows, columns, size, size)."""
    picture = lay_out([[row[:, None]] for row in images], gap=4, row_gap=4, background=0)
    return 255 - torch.nn.functional.pad(picture, (2, -2, 2, -2))[0]


def main(path: Path) -> None:
    pool = make_glyphs(n_alphabets=ROWS, n_characters=CHARACTERS, n_drawings=HANDS, image_size=48)
    drawings = pool.images.view(ROWS, CHARACTERS, HANDS, *pool.image_shape[1:])
    names = [name.split("/")[0] for name in pool.class_names[::CHARACTERS]]
    titles = ("characters of an alphabet, each by another hand", "one character by eight hands")
    by_turns = torch.stack([drawings[:, column, column % HANDS] for column in range(CHARACTERS)], 1)

    figure, axes = plt.subplots(1, 2, figsize=(12, 6.05), width_ratios=[CHARACTERS, HANDS], layout="constrained")
    for axis, images, title in zip(axes, (by_turns, drawings[:, 5]), titles, strict=True):
        axis.imshow(tile(images), cmap="gray", vmin=0, vmax=255, interpolation="bilinear")
        axis.set_title(title, fontsize=11, color="0.3")
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
    height = pool.image_shape[1] + 4
    axes[0].set_yticks([height * (row + 0.5) for row in range(ROWS)], names, fontsize=10)
    axes[0].tick_params(length=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    Image.open(path).convert("L").quantize(12).save(path, optimize=True)  # a quarter of the bytes
    print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images/glyphs.png"))
