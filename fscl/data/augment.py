"""Small changes to images that leave their class as it is.

`jittered` draws them at random, for training alone. `view` is a short list of fixed ones: a picture looked at from several
sides and averaged is told apart a little better, and still judged alone.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

TURN = math.radians(10)
SCALE = 0.15  # of the size
SHEAR = 0.15
SHIFT = 0.12  # of half the picture: two pixels of 32


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
    grid = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    bent = F.grid_sample(images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return bent.round_().to(torch.uint8)
