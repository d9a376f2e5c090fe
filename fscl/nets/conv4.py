"""Conv-4: four blocks of 3×3 convolution, normalisation, 2×2 max-pooling and ReLU; the field's small backbone.

Departs from the usual: pooling comes before ReLU (exactly equal, and less memory traffic), and the convolutions have no
bias, because the normalisation that follows has one.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from fscl.nets.backbone import Backbone
from fscl.nets.fast.patches import Patches, first_block_of
from fscl.nets.norm import NormName, Statistics, make_norm


class Conv4(Backbone):
    """Maps (n, channels, size, size) to (n, width · (size // 16)²)."""

    def __init__(self, *, channels: int, width: int, image_size: int, norm: NormName) -> None:
        super().__init__()
        inputs = [channels, width, width, width]
        self.convs = nn.ModuleList(nn.Conv2d(n, width, 3, padding=1, bias=False) for n in inputs)
        self.norms = nn.ModuleList(make_norm(norm, width) for _ in inputs)
        self.n_features = width * (image_size // 16) ** 2
        self.stages = tuple((f"convs.{number}.", f"norms.{number}.") for number in range(len(inputs)))

    def stage(
        self, number: int, x: Tensor | Patches, statistics: Statistics | None, record: Statistics | None
    ) -> Tensor:
        conv, norm = self.convs[number], self.norms[number]
        if isinstance(x, Patches):
            return first_block_of(x, conv, norm, statistics, record)
        return F.relu(F.max_pool2d(norm(conv(x), statistics, record), 2))

    def pool(self, x: Tensor) -> Tensor:
        return x.flatten(1)
