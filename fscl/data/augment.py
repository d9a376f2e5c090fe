"""Small changes to training images that leave their class as it is. Never applied to images that are tested on."""

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
    cos, sin = torch.cos(turn * TURN), torch.sin(turn * TURN)
    across, down, shear = torch.exp(across * SCALE), torch.exp(down * SCALE), shear * SHEAR
    # rotation · shear · scale: the coordinates in the old picture of each pixel of the new one
    rows = (
        torch.stack([cos * across, (cos * shear - sin) * down, right * SHIFT], 1),
        torch.stack([sin * across, (sin * shear + cos) * down, below * SHIFT], 1),
    )
    grid = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    bent = F.grid_sample(images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return bent.round_().to(torch.uint8)
