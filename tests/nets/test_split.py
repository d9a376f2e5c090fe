"""A network split into trunk and tail is the whole network: same features, same gradients, to the last bit."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from fscl.errors import DataError, MisuseError
from fscl.nets.efficientnet_lite import EfficientNetLite
from fscl.nets.network import Network
from fscl.nets.params import trainable_copy
from fscl.nets.pretrained import pretrained_base
from fscl.nets.trained import NetworkSpec, init_network
from fscl.nets.work import counted_work
from fscl.rng import generator


def images(channels: int, size: int, n: int = 6) -> torch.Tensor:
    return torch.randint(256, (n, channels, size, size), dtype=torch.uint8, generator=generator(0, "images"))


def trained(backbone: str, norm: str) -> Network:
    spec = NetworkSpec.model_validate({"backbone": backbone, "norm": norm, "width": 8, "image_size": 32})
    network = init_network(spec, generator(0, "network"))
    return replace(network, statistics=network.freeze_statistics(network.to_input(images(1, 32, 40))))


def lite0() -> Network:
    torch.manual_seed(0)
    module = EfficientNetLite()
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):  # statistics as of trained weights: none of them 0 and 1
            layer.running_mean, layer.running_var = (
                torch.randn(layer.num_features) / 4,
                torch.rand(layer.num_features) + 0.5,
            )
    return pretrained_base(module, image_size=64, trainable=True)


CASES = [
    *((backbone, norm, depth) for backbone, depths in {"conv4": (1, 2, 3), "resnet12": (1, 3), "resnet18": (1, 4, 8)}.items()
      for depth in depths for norm in ("group", "batch")),
    *(("lite0", "own", depth) for depth in (1, 11, 14, 17)),
]  # fmt: skip


@pytest.mark.parametrize(("backbone", "norm", "depth"), CASES)
def test_trunk_and_tail_have_the_features_and_gradients_of_the_whole(backbone: str, norm: str, depth: int):
    whole = lite0() if backbone == "lite0" else trained(backbone, norm)
    pictures = images(3, 64) if backbone == "lite0" else images(1, 32)
    trunk, tail = whole.split(depth)
    activations = trunk.activations(pictures)
    assert not activations.requires_grad
    assert torch.equal(tail.embed(activations), whole.embed(pictures))
    assert set(tail.params) < set(whole.params)
    assert tail.picture_shape is None

    weights, others = trainable_copy(tail.params), trainable_copy(whole.params)
    for network, x, params in ((tail, activations, weights), (whole, pictures, others)):
        network.features(network.to_input(x), params, statistics=network.statistics).square().sum().backward()
    for name, tensor in weights.items():
        assert tensor.grad is not None
        assert torch.equal(tensor.grad, others[name].grad), name  # type: ignore[arg-type]


def test_a_tail_with_other_weights_is_the_whole_with_those_weights():
    whole = trained("conv4", "group")
    trunk, tail = whole.split(2)
    moved = {name: 1.5 * tensor for name, tensor in tail.params.items()}
    expected = whole.embed(images(1, 32), {**whole.params, **moved})
    assert torch.equal(tail.embed(trunk.activations(images(1, 32)), moved), expected)


def test_a_frozen_base_has_a_tail_that_can_move():
    torch.manual_seed(0)
    base = pretrained_base(EfficientNetLite(), image_size=64)
    assert not base.params
    trunk, tail = base.split(14)
    assert all(name.startswith(("blocks.13.", "blocks.14.", "blocks.15.", "top.")) for name in tail.params)
    assert torch.equal(tail.embed(trunk.activations(images(3, 64))), base.embed(images(3, 64)))


def test_the_work_of_trunk_and_tail_is_that_of_the_whole():
    whole = trained("conv4", "group")
    trunk, tail = whole.split(2)
    with counted_work() as of_trunk:
        activations = trunk.activations(images(1, 32))
    with counted_work() as all_of_it:
        whole.embed(images(1, 32))
    with counted_work() as of_tail:
        tail.embed(activations)
    assert of_trunk.multiply_adds is not None
    assert of_tail.multiply_adds is not None
    two_blocks = (
        6 * 9 * 8 * 8 * (8 * 8 + 4 * 4)
    )  # images · taps · filters · filters · pixels of the third and fourth map
    assert of_tail.multiply_adds == two_blocks
    assert of_trunk.multiply_adds == 6 * 9 * 8 * (32 * 32 + 8 * 16 * 16)
    assert of_trunk.multiply_adds + of_tail.multiply_adds == all_of_it.multiply_adds


@pytest.mark.parametrize("depth", [0, 4, -1])
def test_a_depth_that_leaves_nothing_on_one_side_is_refused(depth: int):
    with pytest.raises(MisuseError, match="a conv4 has 4 stages, so a whole one can be split after stage 1 to 3"):
        trained("conv4", "group").split(depth)


def test_a_module_without_stages_cannot_be_split():
    base = pretrained_base(nn.Sequential(nn.Flatten(), nn.Linear(16 * 16, 3)), image_size=16, channels=1)
    with pytest.raises(MisuseError, match="has no stages to split between"):
        base.split(1)


def test_a_batchnorm_network_without_statistics_cannot_be_split():
    with pytest.raises(DataError, match="frozen statistics"):
        init_network(NetworkSpec(width=8, norm="batch"), generator(0)).split(1)


def test_a_tail_refuses_images_and_is_not_saved_alone(tmp_path):
    _, tail = trained("conv4", "group").split(2)
    with pytest.raises(DataError, match="this tail takes activations"):
        tail.embed(images(1, 32))
    with pytest.raises(MisuseError, match="save the network that it was split from"):
        tail.save(tmp_path / "tail.safetensors")


def test_a_network_is_shown_in_one_line():
    assert repr(trained("conv4", "group")) == (
        "<TrainedNetwork: conv4 of width 8 for 1×32×32, 32 features, 1,864 weights to move>"
    )
    assert len(repr(lite0())) < 120
    assert len(repr(lite0().split(3)[1])) < 150


@pytest.mark.parametrize("size", [32, 64, 80])
def test_a_trunk_takes_pictures_of_another_size_and_the_tail_what_it_makes_of_them(size: int):
    whole = lite0()
    trunk, tail = whole.split(14)
    activations = trunk.activations(images(3, 64), image_size=size)
    assert activations.shape == (6, 192, -(-size // 32), -(-size // 32))
    torch.manual_seed(0)
    other = pretrained_base(whole.module, image_size=size)  # type: ignore[attr-defined]
    assert torch.equal(tail.embed(activations), other.embed(images(3, 64)))
    assert torch.equal(trunk.activations(images(3, 64), image_size=64), trunk.activations(images(3, 64)))


def test_a_tail_takes_activations_in_half_precision_and_in_any_order_in_memory():
    trunk, tail = lite0().split(14)
    activations = trunk.activations(images(3, 64), image_size=96)
    half = activations.half()
    expected = tail.embed(half.float())
    for stored in (half, half.contiguous(), half[torch.arange(6)]):
        assert torch.equal(tail.embed(stored), expected)
    assert expected.dtype == torch.float32
    with pytest.raises(DataError, match="this tail takes activations of the trunk before stage 14"):
        tail.embed(images(3, 64))


def test_a_network_of_one_size_refuses_any_other():
    trunk, _ = trained("conv4", "group").split(2)
    assert torch.equal(trunk.activations(images(1, 32), image_size=32), trunk.activations(images(1, 32)))
    with pytest.raises(MisuseError, match="takes images of 32×32 only, so image_size cannot be 24"):
        trunk.activations(images(1, 32), image_size=24)


def test_no_pictures_have_no_activations():
    trunk, _ = lite0().split(14)
    assert trunk.activations(images(3, 48)[:0]).shape == (0, 192, 2, 2)
