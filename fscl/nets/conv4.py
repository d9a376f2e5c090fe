"""Conv-4: four blocks of 3×3 convolution, normalisation, 2×2 max-pooling and ReLU; the field's small backbone.

Departs from the usual: pooling comes before ReLU (exactly equal, and less memory traffic), and the convolutions have no
bias, because the normalisation that follows has one.
"""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from fscl.nets.norm import NormName, Statistics, make_norm


class Conv4(nn.Module):
    """Maps (n, channels, size, size) to (n, top_width · (size // 16)²).

    The last two blocks have `top_width` filters; wider than the rest, they add capacity where maps are small and cheap.
    """

    def __init__(self, *, channels: int, width: int, top_width: int, image_size: int, norm: NormName) -> None:
        super().__init__()
        widths = [channels, width, width, top_width, top_width]
        self.convs = nn.ModuleList(nn.Conv2d(n, m, 3, padding=1, bias=False) for n, m in pairwise(widths))
        self.norms = nn.ModuleList(make_norm(norm, m) for m in widths[1:])
        self.n_features = top_width * (image_size // 16) ** 2

    def forward(self, x: Tensor, statistics: Statistics | None = None, record: Statistics | None = None) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(F.max_pool2d(norm(conv(x), statistics, record), 2))
        return x.flatten(1)
