"""Contact sheets: where each pixel goes."""

import io

import numpy as np
import torch
from PIL import Image

from fscl.data.contact_sheet import contact_sheet, lay_out, png


def test_rows_of_groups_stand_in_columns_with_gaps_between():
    a, b = (torch.full((1, 1, 1, 1), level, dtype=torch.uint8) for level in (1, 2))
    sheet = lay_out([[torch.cat([a, a]), b], [a, torch.cat([b, b])]], gap=1, row_gap=1, group_gap=2, background=9)
    assert sheet[0].tolist() == [
        [1, 9, 1, 9, 9, 9, 2, 9, 9, 9],
        [9, 9, 9, 9, 9, 9, 9, 9, 9, 9],
        [1, 9, 9, 9, 9, 9, 2, 9, 2, 9],
        [9, 9, 9, 9, 9, 9, 9, 9, 9, 9],
    ]


def test_a_sheet_is_a_png_in_grey_or_in_colour():
    random = torch.Generator().manual_seed(0)
    for channels, mode in ((1, "L"), (3, "RGB")):
        images = torch.randint(0, 256, (2, channels, 5, 4), dtype=torch.uint8, generator=random)
        content = contact_sheet([[images]], gap=2)
        picture = Image.open(io.BytesIO(content))
        assert (picture.format, picture.mode, picture.size) == ("PNG", mode, (12, 5))
        pixels = np.asarray(picture).reshape(5, 12, channels).transpose(2, 0, 1)
        assert torch.equal(torch.from_numpy(pixels.copy()), lay_out([[images]], gap=2))
        assert content == png(lay_out([[images]], gap=2))
