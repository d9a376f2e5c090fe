"""Drawings for the page's tests: four easy shapes in dark ink on paper, and a film of one for the fake camera."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SHAPES = ("ring", "cross", "bar", "box")
PAPER, INK, PEN = 245, 20, 5
SIDE = 64


def drawing(shape: str, number: int, *, side: int = SIDE) -> Image.Image:
    """One drawing of a shape; the same number is the same drawing."""
    rng = np.random.default_rng([SHAPES.index(shape), number])
    left, top, right, bottom = (int(edge + rng.integers(-5, 6)) for edge in (14, 14, 50, 50))
    page = Image.new("L", (SIDE, SIDE), PAPER)
    pen = ImageDraw.Draw(page)
    if shape == "ring":
        pen.ellipse([left, top, right, bottom], outline=INK, width=PEN)
    elif shape == "box":
        pen.rectangle([left, top, right, bottom], outline=INK, width=PEN)
    elif shape == "cross":
        pen.line([left, top, right, bottom], fill=INK, width=PEN)
        pen.line([right, top, left, bottom], fill=INK, width=PEN)
    else:
        pen.line([left + 18, top, right - 18, bottom], fill=INK, width=PEN)
    return page.resize((side, side))


def draw_folder(folder: Path, shapes: tuple[str, ...] = SHAPES, *, n: int = 6, first: int = 0) -> Path:
    """`folder/<shape>/<shape>-<number>.png`."""
    for shape in shapes:
        (folder / shape).mkdir(parents=True)
        for number in range(first, first + n):
            drawing(shape, number).save(folder / shape / f"{shape}-{number}.png")
    return folder


def film(path: Path, shape: str, *, n_drawings: int = 5, frames_each: int = 10, rate: int = 10) -> Path:
    """A y4m file that shows some drawings of a shape, each standing still for a while; the fake camera repeats it."""
    width, height = 320, 240
    with path.open("wb") as file:
        file.write(f"YUV4MPEG2 W{width} H{height} F{rate}:1 Ip A1:1 C420\n".encode())
        for number in range(n_drawings):
            frame = Image.new("L", (width, height), PAPER)
            frame.paste(drawing(shape, 100 + number, side=height), ((width - height) // 2, 0))
            grey = bytes([128]) * (width * height // 2)
            for _ in range(frames_each):
                file.write(b"FRAME\n" + frame.tobytes() + grey)
    return path
