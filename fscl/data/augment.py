"""Small changes to images that leave their class as it is.

`jittered` and `varied` draw them at random, for training alone: the one for drawings, the other for photographs. `view` is a
short list of fixed ones: a picture looked at from several sides and averaged is told apart a little better, and still judged
alone.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

TURN = math.radians(10)
SCALE = 0.15  # of the size
SHEAR = 0.15
SHIFT = 0.12  # of half the picture: two pixels of 32
GREY = (0.299, 0.587, 0.114)  # how bright red, green and blue are (ITU-R BT.601)


@dataclass(frozen=True)
class Variation:
    """How photographs are varied in training.

    Attributes:
        flip: left and right exchanged, for every other image.
        crop: the part of the side by which a cut-out may be smaller; it is then enlarged to the whole.
        colour: brightness, contrast and saturation each change by up to this part.
    """

    flip: bool = False
    crop: float = 0.0
    colour: float = 0.0


def jittered(images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    """uint8 images, each turned, scaled, sheared and shifted by a random amount of its own.

    At strength 1 a turn is within ±10°, a scale or shear within ±0.15, a shift within ±2 pixels of 32.
    """
    if strength == 0 or len(images) == 0:
        return images
    turn, across, down, shear, right, below = (
        (torch.rand(6, len(images), generator=generator) * 2 - 1) * strength
    ).unbind()
    across, down = torch.exp(across * SCALE), torch.exp(down * SCALE)
    return _bent(images, turn * TURN, across, down, shear * SHEAR, right * SHIFT, below * SHIFT)


def varied(images: Tensor, variation: Variation, generator: torch.Generator) -> Tensor:
    """uint8 images, each mirrored, cut out and coloured by a random amount of its own."""
    if variation == Variation() or len(images) == 0:
        return images
    mirror, size, right, below, *shades = torch.rand(7, len(images), generator=generator).unbind()
    size = 1 - variation.crop * size
    across = torch.where(mirror < 0.5, -size, size) if variation.flip else size
    still = torch.zeros(len(images))
    right, below = ((2 * part - 1) * (1 - size) for part in (right, below))
    moved = (
        images if across is size and variation.crop == 0 else _bent(images, still, across, size, still, right, below)
    )
    return moved if variation.colour == 0 else _coloured(moved, variation.colour, shades)


def _coloured(images: Tensor, strength: float, shades: list[Tensor]) -> Tensor:
    brightness, contrast, saturation = (
        (1 + strength * (2 * shade[:, None, None, None] - 1)).to(images.device) for shade in shades
    )
    x = images.float() * brightness
    grey = _grey(x)
    x = torch.lerp(grey, x, saturation)
    return torch.lerp(grey.mean((2, 3), keepdim=True), x, contrast).clamp_(0, 255).round_().to(torch.uint8)


def _grey(x: Tensor) -> Tensor:
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    return (x * torch.tensor(GREY).to(x.device).view(3, 1, 1)).sum(1, keepdim=True)


def view(images: Tensor, number: int) -> Tensor:
    """uint8 images, all changed alike: number 0 is as they are; then shifts, turns, scales and shears, up to N_VIEWS - 1."""
    if number == 0 or len(images) == 0:
        return images
    pixel = 2 / images.shape[-1]
    change = {"turn": 0.0, "across": 1.0, "down": 1.0, "shear": 0.0, "right": 0.0, "below": 0.0}
    for key, value in _VIEWS[number - 1].items():
        change[key] = value * pixel if key in ("right", "below") else value
    return _bent(images, *(torch.full((len(images),), value) for value in change.values()))


_VIEWS: tuple[dict[str, float], ...] = (
    {"right": 1},
    {"right": -1},
    {"below": 1},
    {"below": -1},
    {"turn": 0.1},
    {"turn": -0.1},
    {"across": 1.1, "down": 1.1},
    {"across": 0.9, "down": 0.9},
    {"shear": 0.1},
    {"shear": -0.1},
)
N_VIEWS = 1 + len(_VIEWS)


def _bent(
    images: Tensor, turn: Tensor, across: Tensor, down: Tensor, shear: Tensor, right: Tensor, below: Tensor
) -> Tensor:
    """Each image turned (radians), scaled and sheared, and shifted by parts of half the picture."""
    cos, sin = torch.cos(turn), torch.sin(turn)
    # rotation · shear · scale: the coordinates in the old picture of each pixel of the new one
    rows = (
        torch.stack([cos * across, (cos * shear - sin) * down, right], 1),
        torch.stack([sin * across, (sin * shear + cos) * down, below], 1),
    )
    theta = torch.stack(rows, 1).to(images.device)  # drawn and composed on the CPU, the same on any device
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    bent = F.grid_sample(images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return bent.round_().to(torch.uint8)
