"""ResNet-12, the field's usual backbone for natural images (Oreshkin et al. 2018; the widths are those of Lee et al. 2019).

Departs from them: no DropBlock, which needs a schedule of its own.
"""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from fscl.nets.backbone import Backbone
from fscl.nets.norm import NormName, Statistics, make_norm

SLOPE = 0.1  # of the leaky ReLU


class Block(nn.Module):
    """Three 3×3 convolutions and a 1×1 shortcut, then 2×2 max-pooling."""

    def __init__(self, inputs: int, outputs: int, norm: NormName) -> None:
        super().__init__()
        widths = (inputs, outputs, outputs)
        self.convs = nn.ModuleList(nn.Conv2d(n, outputs, 3, padding=1, bias=False) for n in widths)
        self.norms = nn.ModuleList(make_norm(norm, outputs) for _ in widths)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.shortcut_norm = make_norm(norm, outputs)

    def forward(self, x: Tensor, statistics: Statistics | None, record: Statistics | None) -> Tensor:
        out = x
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            out = norm(conv(F.leaky_relu(out, SLOPE) if number else out), statistics, record)
        out = out + self.shortcut_norm(self.shortcut(x), statistics, record)
        # pooling before the activation is the same, and less work
        return F.leaky_relu(F.max_pool2d(out, 2), SLOPE)


class ResNet12(Backbone):
    """Maps (n, channels, size, size) to (n, 10 · width); the usual width is 64, giving 640 features."""

    def __init__(self, *, channels: int, width: int, image_size: int, norm: NormName) -> None:
        super().__init__()
        widths = [channels, width, 5 * width // 2, 5 * width, 10 * width]
        self.blocks = nn.ModuleList(Block(n, m, norm) for n, m in pairwise(widths))
        self.n_features = 10 * width
        self.stages = tuple((f"blocks.{number}.",) for number in range(len(self.blocks)))

    def stage(self, number: int, x: Tensor, statistics: Statistics | None, record: Statistics | None) -> Tensor:
        out: Tensor = self.blocks[number](x, statistics, record)
        return out

    def pool(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x, 1).flatten(1)
