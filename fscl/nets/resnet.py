"""ResNet-18 (He et al. 2016) with a 7×7 stem; adaptive pooling, so that 32×32 and 64×64 images work too."""

from torch import Tensor, nn
from torch.nn import functional as F

from fscl.nets.backbone import Backbone
from fscl.nets.norm import NormName, Statistics, make_norm


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut, which is a 1×1 convolution where the width changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: NormName) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = make_norm(norm, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = make_norm(norm, outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None
        self.shortcut_norm = make_norm(norm, outputs) if inputs != outputs else None

    def forward(self, x: Tensor, statistics: Statistics | None, record: Statistics | None) -> Tensor:
        out = F.relu(self.norm1(self.conv1(x), statistics, record))
        out = self.norm2(self.conv2(out), statistics, record)
        if self.shortcut is not None and self.shortcut_norm is not None:
            x = self.shortcut_norm(self.shortcut(x), statistics, record)
        return F.relu(out + x)


class ResNet18(Backbone):
    """Maps (n, channels, size, size) to (n, 8 · width); the usual width is 64, giving 512 features."""

    def __init__(self, *, channels: int, width: int, image_size: int, norm: NormName) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
        self.stem_norm = make_norm(norm, width)
        stages = [(width, width, 1), (width, 2 * width, 2), (2 * width, 4 * width, 2), (4 * width, 8 * width, 2)]
        self.blocks = nn.ModuleList()
        for inputs, outputs, stride in stages:
            self.blocks.append(BasicBlock(inputs, outputs, stride, norm))
            self.blocks.append(BasicBlock(outputs, outputs, 1, norm))
        self.n_features = 8 * width
        self.stages = (("stem.", "stem_norm."), *((f"blocks.{number}.",) for number in range(len(self.blocks))))

    def stage(self, number: int, x: Tensor, statistics: Statistics | None, record: Statistics | None) -> Tensor:
        if number > 0:
            out: Tensor = self.blocks[number - 1](x, statistics, record)
            return out
        return F.max_pool2d(F.relu(self.stem_norm(self.stem(x), statistics, record)), 3, stride=2, padding=1)

    def pool(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x, 1).flatten(1)
