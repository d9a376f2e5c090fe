"""The gated Conv-4: its two networks and its gate by hand, its weights, its split, and that it predicts each image alone."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fscl.nets.gated import BODY
from fscl.nets.network import Network
from fscl.nets.norm import NormName
from fscl.nets.params import Params, trainable_copy
from fscl.nets.trained import NetworkSpec, TrainedNetwork, init_network, multiply_adds
from fscl.nets.work import counted_work
from fscl.rng import generator

NORMS: tuple[NormName, ...] = ("group", "batch")


def images(n: int = 6, size: int = 32) -> Tensor:
    return torch.randint(256, (n, 1, size, size), dtype=torch.uint8, generator=generator(0, "images"))


def gated(norm: NormName = "group", width: int = 16) -> TrainedNetwork:
    network = init_network(NetworkSpec(backbone="gated4", norm=norm, width=width), generator(0, "network"))
    return replace(network, statistics=network.freeze_statistics(network.to_input(images(40))))


def branch(network: Network, prefix: str, width: int) -> TrainedNetwork:
    """One of the two networks as a Conv-4 of its own."""

    def own(tensors: Params) -> Params:
        return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

    spec = NetworkSpec(norm="batch" if network.statistics else "group", width=width)
    return TrainedNetwork(spec, own(network.params), own(network.statistics) if network.statistics else None)


@pytest.mark.parametrize("norm", NORMS)
def test_features_are_those_of_the_body_times_a_sigmoid_of_the_gate(norm: NormName):
    network = gated(norm)
    body, gate = branch(network, BODY, 16), branch(network, "gate.", 7)
    opening = gate.embed(images()) @ network.params["opening.weight"].T + network.params["opening.bias"]
    expected = body.embed(images()) * torch.sigmoid(opening)
    torch.testing.assert_close(network.embed(images()), expected)
    assert network.n_features == body.n_features == 64


@pytest.mark.parametrize(("width", "gate"), [(64, 28), (32, 14), (48, 21), (1, 1)])
def test_it_has_the_weights_of_both_and_of_the_layer_between(width: int, gate: int):
    def conv4(filters: int) -> int:
        return 9 * filters + 3 * 9 * filters * filters + 4 * 2 * filters

    count = sum(tensor.numel() for tensor in gated(width=width).params.values())
    assert count == conv4(width) + conv4(gate) + 4 * gate * 4 * width + 4 * width


def test_the_published_network_counts_6_048_424_weights():
    def blocks(filters: int) -> int:  # three convolutions with biases, each with a norm; pictures of three channels
        return 9 * filters * (3 + 2 * filters) + 3 * filters + 3 * 2 * filters

    n_features, gate_features = 9 * 256, 9 * 112
    gate = blocks(112) + gate_features * n_features + n_features
    assert (gate, blocks(256), n_features * 1000 + 1000) == (2_554_560, 1_188_864, 2_305_000)
    assert gate + blocks(256) + n_features * 1000 + 1000 == 6_048_424


def test_a_fresh_gate_is_half_open_and_differs_from_picture_to_picture():
    network = gated()
    body = branch(network, BODY, 16).embed(images(60))
    seen = body > 1e-3
    openings = (network.embed(images(60)) / body)[seen]
    assert 0.35 < float(openings.mean()) < 0.65
    assert 0.02 < float(openings.std()) < 0.35


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_trunk_and_tail_have_the_features_and_gradients_of_the_whole(norm: NormName, depth: int):
    whole = gated(norm)
    trunk, tail = whole.split(depth)
    activations = trunk.activations(images())
    assert torch.equal(tail.embed(activations), whole.embed(images()))
    assert set(tail.params) < set(whole.params)
    assert "opening.weight" in tail.params
    weights, others = trainable_copy(tail.params), trainable_copy(whole.params)
    for network, x, params in ((tail, activations, weights), (whole, images(), others)):
        network.features(network.to_input(x), params, statistics=network.statistics).square().sum().backward()
    for name, tensor in weights.items():
        assert tensor.grad is not None
        torch.testing.assert_close(tensor.grad, others[name].grad)


@pytest.mark.parametrize("norm", NORMS)
def test_the_quick_way_through_the_first_block_gives_the_same_features_and_gradients(norm: NormName):
    network = gated(norm)
    x = network.to_input(images())
    plain, quick = trainable_copy(network.params), trainable_copy(network.params)
    direct, by_patches = network.features(x, plain), network.featurer(x)(quick, None)
    torch.testing.assert_close(direct, by_patches, rtol=1e-4, atol=1e-4)
    direct.square().sum().backward()
    by_patches.square().sum().backward()
    for name in plain:
        first, other = plain[name].grad, quick[name].grad
        assert first is not None
        torch.testing.assert_close(first, other, rtol=1e-2, atol=1e-2 * float(first.abs().max()))


@pytest.mark.parametrize("norm", NORMS)
def test_each_image_is_seen_alone(norm: NormName):
    network = gated(norm)
    together, alone = network.embed(images()), torch.cat([network.embed(image[None]) for image in images()])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_the_work_is_that_of_both_networks_and_the_layer_between():
    network = gated()
    apart = sum(multiply_adds(NetworkSpec(width=width), False) for width in (16, 7))
    with counted_work() as work:
        network.embed(images())
    assert work.multiply_adds == 6 * (apart + 28 * 64)
