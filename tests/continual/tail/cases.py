"""Small cases for two-step consolidation on a tail: noisy patterns, and an untrained Conv-4, half of which may move."""

from typing import Any

import torch
from torch import Tensor, nn

from fscl.continual.registry import make_learner
from fscl.continual.tail.learner import TailConsolidation
from fscl.data.pool import Examples
from fscl.nets.efficientnet_lite import EfficientNetLite
from fscl.nets.network import Network
from fscl.nets.pretrained import pretrained_base
from fscl.rng import generator
from fscl.testing import noise_pool, small_base

PATTERNS = noise_pool(12, 20)
QUICK = {"steps": 20, "learning_rate": 5e-3}  # moving pays with these


def lesson(first: int, n_classes: int = 5, *, n: int = 6, start: int = 0) -> Examples:
    """Shots of some classes of the pool that follow one another."""
    classes = range(first, first + n_classes)
    images = torch.cat([PATTERNS.of_class(label)[start : start + n] for label in classes])
    return Examples(images, torch.arange(first, first + n_classes).repeat_interleave(n))


def learner(network: Network | None = None, *, seed: int = 0, **settings: Any) -> TailConsolidation:
    made = make_learner("tsc_tail", network or small_base(), seed=seed, settings={**QUICK, **settings})
    assert isinstance(made, TailConsolidation)
    return made


def accuracy(of: TailConsolidation, query: Examples) -> float:
    return float((of.predict(query.images).argmax(1) == query.labels).double().mean())


def weights_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def photographs(n: int = 6) -> Tensor:
    """Coloured noise of 64 pixels."""
    return torch.randint(256, (n, 3, 64, 64), dtype=torch.uint8, generator=generator(0, "photographs"))


def lite0(*, image_size: int = 64) -> Network:
    """A frozen EfficientNet-Lite0 with random weights."""
    torch.manual_seed(0)
    module = EfficientNetLite()
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):  # statistics as of trained weights: none of them 0 and 1
            layer.running_mean = torch.randn(layer.num_features) / 4
            layer.running_var = torch.rand(layer.num_features) + 0.5
    return pretrained_base(module, image_size=image_size)
