"""A sheet of pictures: in each row the shots of a class, and beside them the images generated from them."""

import io

import torch
from PIL import Image
from torch import Tensor

from fscl.data.pool import Examples

MAX_ROWS = 10  # classes on one sheet
GAP = 4  # pixels


def sheet_png(shots: Examples, generated: Examples) -> bytes:
    """A PNG with a row for each of the first classes that have both shots and generated images."""
    both = sorted(set(shots.labels.tolist()) & set(generated.labels.tolist()))[:MAX_ROWS]
    rows = [[_strip(examples.images[examples.labels == label]) for examples in (shots, generated)] for label in both]
    widths = [max(row[side].shape[2] for row in rows) for side in (0, 1)]
    lines = [torch.cat([_padded(row[0], widths[0] + 4 * GAP), _padded(row[1], widths[1])], 2) for row in rows]
    sheet = torch.cat(lines, 1).permute(1, 2, 0).contiguous().numpy()
    file = io.BytesIO()
    Image.fromarray(sheet[:, :, 0] if sheet.shape[2] == 1 else sheet).save(file, "PNG")
    return file.getvalue()


def _strip(images: Tensor) -> Tensor:
    """Images side by side, (channels, height + gap, width)."""
    return torch.cat([torch.nn.functional.pad(image, (0, GAP, 0, GAP), value=128) for image in images], 2)


def _padded(strip: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(strip, (0, width - strip.shape[2]), value=128)
