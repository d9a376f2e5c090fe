"""Images laid out as one picture: rows of groups of images, for reports and for people."""

import io
from collections.abc import Sequence

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad

GREY = 128


def lay_out(
    rows: Sequence[Sequence[Tensor]], *, gap: int, row_gap: int = 0, group_gap: int = 0, background: int = GREY
) -> Tensor:
    """One picture, uint8 of shape (channels, height, width), from rows that each have the same number of groups of images.

    A group begins at the same column in every row, after the widest of the groups before it.

    Examples:
        >>> images = torch.zeros(3, 1, 8, 8, dtype=torch.uint8)
        >>> lay_out([[images, images[:1]], [images[:2], images]], gap=2, row_gap=1, group_gap=4).shape
        torch.Size([1, 18, 64])

    Args:
        rows: in each row its groups, uint8 of shape (n, channels, height, width); all images have one size.
        gap: pixels to the right of each image.
        row_gap: pixels below each row.
        group_gap: further pixels between two groups.
        background: the grey level of the gaps, 0 to 255.
    """
    strips = [[_strip(images, gap, row_gap, background) for images in row] for row in rows]
    widths = [max(strip.shape[2] for strip in column) for column in zip(*strips, strict=True)]
    wide = [*(width + group_gap for width in widths[:-1]), widths[-1]]
    lines = [[_widened(*pair, background) for pair in zip(row, wide, strict=True)] for row in strips]
    return torch.cat([torch.cat(line, 2) for line in lines], 1)


def png(picture: Tensor) -> bytes:
    """A picture of shape (1 or 3, height, width) as the content of a PNG file."""
    pixels = picture.permute(1, 2, 0).contiguous().numpy()
    file = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(file, "PNG", optimize=True)
    return file.getvalue()


def contact_sheet(
    rows: Sequence[Sequence[Tensor]], *, gap: int, row_gap: int = 0, group_gap: int = 0, background: int = GREY
) -> bytes:
    """What `lay_out` makes, as the content of a PNG file."""
    return png(lay_out(rows, gap=gap, row_gap=row_gap, group_gap=group_gap, background=background))


def _strip(images: Tensor, gap: int, row_gap: int, background: int) -> Tensor:
    """Images side by side: (channels, height + row_gap, n × (width + gap))."""
    return torch.cat(list(pad(images, (0, gap, 0, row_gap), value=background)), 2)


def _widened(strip: Tensor, width: int, background: int) -> Tensor:
    return pad(strip, (0, width - strip.shape[2]), value=background)
