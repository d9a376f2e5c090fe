"""The first block of Conv-4 by patches, against plain torch."""

import pytest
import torch
from torch import Tensor

from fscl.continual.registry import make_learner
from fscl.data.pool import Examples
from fscl.nets.fast import patches
from fscl.nets.fast.patches import Patches, batch_moments, cut, first_block
from fscl.nets.network import Network
from fscl.nets.norm import NormName, Statistics
from fscl.nets.params import trainable_copy
from fscl.nets.trained import NetworkSpec, TrainedNetwork, init_network
from fscl.rng import generator

NORMS: tuple[NormName, ...] = ("batch", "group")


def drawings(n: int, size: int = 32) -> Tensor:
    """A few strokes on a blank page, as handwriting has them: most windows have no ink, some four equal patches."""
    random = generator(3, "drawings")
    images = torch.zeros(n, 1, size, size, dtype=torch.uint8)
    for image in images[:, 0]:
        top, left = torch.randint(1, size - 8, (2,), generator=random).tolist()
        image[top : top + 7, left : left + 7] = 255
        image[top + 3] = torch.randint(256, (size,), generator=random, dtype=torch.uint8)
        image[:, 0] = 90
    return images


def double(norm: NormName, width: int = 16, size: int = 32) -> Network:
    """A small network in double precision, some of whose scales are negative."""
    random = generator(5, "base")
    network = init_network(NetworkSpec(width=width, norm=norm, image_size=size), random)
    params = {name: tensor.double() for name, tensor in network.params.items()}
    for name in [name for name in params if name.startswith("norms")]:
        params[name] = torch.randn(width, generator=random, dtype=torch.float64)
    return TrainedNetwork(network.spec, params)


def features_and_gradients(
    network: Network, x: Tensor, statistics: Statistics | None, *, by_patches: bool
) -> tuple[Tensor, list[Tensor]]:
    weights = trainable_copy(network.params)
    if by_patches:
        features = network.featurer(x)(weights, statistics)
    else:
        features = network.features(x, weights, statistics=statistics)
    random = torch.randn(features.shape, generator=generator(0, "cotangent"), dtype=features.dtype)
    return features.detach(), list(torch.autograd.grad(features, list(weights.values()), random))


def assert_same(network: Network, x: Tensor, statistics: Statistics | None = None) -> None:
    ours, our_gradients = features_and_gradients(network, x, statistics, by_patches=True)
    plain, gradients = features_and_gradients(network, x, statistics, by_patches=False)
    torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-9)
    for found, expected in zip(our_gradients, gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7 * float(expected.abs().max()))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [1, 8, 21])
def test_features_and_gradients_are_those_of_plain_torch(norm: NormName, n: int) -> None:
    network = double(norm)
    assert_same(network, network.to_input(drawings(n)))


@pytest.mark.parametrize("norm", NORMS)
def test_pictures_full_of_ink_are_the_same_too(norm: NormName) -> None:
    network = double(norm, size=20)
    noise = torch.randint(1, 256, (5, 1, 20, 20), dtype=torch.uint8, generator=generator(0, "noise"))
    assert_same(network, network.to_input(noise))


@pytest.mark.parametrize("norm", NORMS)
def test_blank_pictures_do_no_harm(norm: NormName) -> None:
    network = double(norm)
    images = drawings(20)
    images[:9] = 0  # the first few at once have no ink at all
    assert_same(network, network.to_input(images))


def test_frozen_statistics_are_used_as_they_are() -> None:
    network = double("batch")
    x = network.to_input(drawings(6))
    statistics = network.freeze_statistics(network.to_input(drawings(30)[20:]))
    assert_same(network, x, statistics)


def test_single_precision_is_close_to_double() -> None:
    exact = double("batch")
    weights = exact.params["convs.0.weight"], exact.params["norms.0.weight"], exact.params["norms.0.bias"]
    found = []
    for dtype in (torch.float32, torch.float64):
        laid = cut(exact.to_input(drawings(40)).to(dtype), each=False)
        weight, gamma, beta = (tensor.to(dtype) for tensor in weights)
        found.append(first_block(laid, weight, gamma, beta, batch_moments(laid, weight)).double())
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)


def test_equal_pixels_of_a_window_share_the_gradient() -> None:
    # one inked window of four pixels, all of which see the same patch: a picture of ones, far from its border
    x = torch.ones(1, 1, 16, 16, dtype=torch.float64)
    laid = cut(x, each=False)
    filters = torch.zeros(1, 10, dtype=torch.float64, requires_grad=True)
    largest = patches._largest(filters, laid)
    middle = torch.zeros_like(largest)
    middle[8 * 4 + 4] = 1.0  # the window at (4, 4) of 8 × 8
    (gradient,) = torch.autograd.grad(largest, filters, middle)
    assert gradient.tolist() == [[1.0] * 10]


def test_only_windows_with_ink_are_kept() -> None:
    x = torch.zeros(3, 1, 16, 16)
    x[1, 0, 5, 5] = 1.0  # seen by the patches around pixels 4 to 6, of windows 2 and 3 each way
    laid = cut(x, each=True)
    assert isinstance(laid, Patches)
    assert torch.cat(laid.places).tolist() == [64 + 8 * row + column for row in (2, 3) for column in (2, 3)]
    assert laid.mean[1].tolist() == pytest.approx([1 / 256] * 9)
    assert laid.mean[0].tolist() == [0.0] * 9


@pytest.mark.parametrize(
    "spec", [NetworkSpec(image_size=17), NetworkSpec(channels=3), NetworkSpec(backbone="resnet12")]
)
def test_other_networks_are_differentiated_as_ever(spec: NetworkSpec) -> None:
    network = init_network(spec.model_copy(update={"width": 8}), generator(0, "base"))
    x = torch.rand(2, spec.channels, spec.image_size, spec.image_size)
    found = network.featurer(x)(network.params, None)
    assert torch.equal(found, network.features(x))


def test_learning_is_the_same_with_and_without_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    network = double("batch")
    shots = Examples(drawings(10), torch.arange(5).repeat_interleave(2))
    learned = []
    for fits in (True, False):
        monkeypatch.setattr(NetworkSpec, "fits_patches", fits)
        learner = make_learner("joint", network, seed=0, settings={"steps": 5})
        learner.learn_task(shots)
        learned.append(learner.predict(drawings(20)))
    torch.testing.assert_close(*learned, rtol=1e-6, atol=1e-6)
