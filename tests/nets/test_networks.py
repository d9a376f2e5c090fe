"""Networks: shapes, inductive prediction, values that nothing changes, storage."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from fscl.data.pool import ClassPool
from fscl.errors import DataError, StorageError
from fscl.nets.network import Network
from fscl.nets.norm import BatchNorm
from fscl.nets.params import empty_head, grow_head, interpolate
from fscl.nets.trained import NetworkSpec, TrainedNetwork, init_network
from fscl.rng import generator


def small_network(norm: str = "group", *, backbone: str = "conv4", width: int = 8, size: int = 16) -> Network:
    spec = NetworkSpec.model_validate({"backbone": backbone, "norm": norm, "width": width, "image_size": size})
    return init_network(spec, generator(0, "network"))


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize(
    ("backbone", "width", "size", "n_features"),
    [
        ("conv4", 64, 32, 256),
        ("conv4", 64, 64, 1024),
        ("conv4", 16, 28, 16),
        ("resnet18", 64, 32, 512),
        ("resnet18", 64, 64, 512),
        ("resnet12", 16, 64, 160),
        ("resnet12", 8, 16, 80),
    ],
)
def test_features_have_the_promised_size(norm: str, backbone: str, width: int, size: int, n_features: int):
    network = small_network(norm, backbone=backbone, width=width, size=size)
    images = torch.randint(256, (3, 1, size, size), dtype=torch.uint8)
    assert network.n_features == n_features
    assert network.features(network.to_input(images)).shape == (3, n_features)


def test_resnet18_has_as_many_weights_as_the_reference():
    network = init_network(NetworkSpec(backbone="resnet18", channels=3, image_size=64), generator(0))
    assert sum(tensor.numel() for tensor in network.params.values()) == 11_176_512


def test_resnet12_has_four_blocks_of_three_convolutions_and_a_shortcut():
    network = init_network(NetworkSpec(backbone="resnet12", channels=3, image_size=64), generator(0))
    widths = [3, 64, 160, 320, 640]
    by_hand = sum(10 * n * m + 18 * m * m + 8 * m for n, m in pairwise(widths))
    assert sum(tensor.numel() for tensor in network.params.values()) == by_hand == 12_424_320


def test_conv4_has_as_many_weights_as_four_blocks_of_64_filters():
    count = 9 * 64 + 3 * 9 * 64 * 64 + 4 * 2 * 64
    assert sum(t.numel() for t in init_network(NetworkSpec(), generator(0)).params.values()) == count


@pytest.mark.parametrize("backbone", ["conv4", "resnet12", "resnet18"])
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_predictions_do_not_change_with_the_order_or_the_batch_of_the_test_images(
    small_pool: ClassPool, norm: str, backbone: str
):
    network = small_network(norm, backbone=backbone)
    network = replace(
        network, params={name: tensor.double() for name, tensor in network.params.items()}
    )  # no round-off
    network = replace(network, statistics=network.freeze_statistics(network.to_input(small_pool.images[:100])))
    images = small_pool.images[100:160]
    together = network.embed(images)
    alone = torch.cat([network.embed(image[None]) for image in images])
    order = torch.randperm(len(images), generator=generator(0, "order"))
    torch.testing.assert_close(alone, together, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(network.embed(images[order]), together[order], rtol=1e-9, atol=1e-12)


def test_batch_statistics_would_make_predictions_depend_on_the_batch(small_pool: ClassPool):
    network = small_network("batch")
    x = network.to_input(small_pool.images[:40])
    assert not torch.allclose(network.features(x)[:10], network.features(x[:10]), atol=1e-2)


def test_a_batchnorm_network_without_frozen_statistics_refuses_to_predict(small_pool: ClassPool):
    with pytest.raises(DataError, match="frozen statistics"):
        small_network("batch").embed(small_pool.images[:2])


def test_frozen_statistics_of_a_batch_give_that_batch_the_features_of_training(small_pool: ClassPool):
    network = small_network("batch")
    x = network.to_input(small_pool.images[:50])
    frozen = network.features(x, statistics=network.freeze_statistics(x))
    torch.testing.assert_close(frozen, network.features(x), rtol=1e-4, atol=1e-5)


def test_batchnorm_with_given_statistics_differentiates_through_them():
    layer = BatchNorm(2).double()
    x = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    mean, variance = torch.randn(2, dtype=torch.float64), torch.rand(2, dtype=torch.float64) + 0.5

    def normalise(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return layer(x, {"": torch.stack([mean, variance])}, None)

    with torch.no_grad():
        plain = normalise(mean, variance)
    torch.testing.assert_close(plain, normalise(mean.requires_grad_(), variance.requires_grad_()))
    assert torch.autograd.gradcheck(normalise, (mean, variance))


def test_images_of_the_wrong_size_or_type_are_refused_with_the_way_out(small_pool: ClassPool):
    network = small_network(size=32)
    with pytest.raises(DataError, match="image_size=32"):
        network.embed(small_pool.images[:2])
    with pytest.raises(DataError, match="uint8"):
        network.to_input(torch.zeros(1, 1, 32, 32))


def test_a_network_file_gives_back_the_same_bits(tmp_path: Path, small_pool: ClassPool):
    network = small_network("batch")
    statistics = network.freeze_statistics(network.to_input(small_pool.images[:50]))
    network = replace(network, statistics=statistics, extras={"mean": torch.rand(network.n_features)})
    network.save(tmp_path / "n.safetensors", {"seed": 7})
    loaded, about = TrainedNetwork.load(tmp_path / "n.safetensors")
    assert about == {"seed": 7}
    assert list(loaded.params) == list(network.params)
    assert torch.equal(loaded.embed(small_pool.images), network.embed(small_pool.images))
    assert torch.equal(loaded.extras["mean"], network.extras["mean"])


def test_weights_of_another_shape_are_refused(tmp_path: Path):
    network = small_network(width=8)
    replace(network, spec=network.spec.model_copy(update={"width": 16})).save(tmp_path / "n.safetensors")
    with pytest.raises(StorageError, match="does not fit a conv4 of width 16"):
        TrainedNetwork.load(tmp_path / "n.safetensors")


@pytest.mark.parametrize("width", [4, 9, 12, 20, 25])
def test_group_normalisation_takes_any_width(width: int):
    network = small_network("group", width=width)
    assert network.embed(torch.zeros(2, 1, 16, 16, dtype=torch.uint8)).shape == (2, width)


def test_batchnorm_refuses_to_learn_from_one_value():
    network = small_network("batch", backbone="resnet18", width=8, size=32)
    with pytest.raises(DataError, match="one image whose map is a single pixel"):
        network.features(network.to_input(torch.zeros(1, 1, 32, 32, dtype=torch.uint8)))


def test_a_resnet_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="at least 8"):
        NetworkSpec(backbone="resnet18", width=4)
    with pytest.raises(ValueError, match="resnet12 needs an even width"):
        NetworkSpec(backbone="resnet12", width=9)


def test_growing_a_head_leaves_its_rows_as_they_were_and_draws_the_same_new_ones():
    rows = [generator(0, "row", label) for label in range(5)]
    first = grow_head(empty_head(4), 2, rows)
    grown = grow_head(first, 5, [generator(0, "row", label) for label in range(5)])
    assert torch.equal(grown["weight"][:2], first["weight"])
    assert torch.equal(grown["bias"][:2], first["bias"])
    at_once = grow_head(empty_head(4), 5, [generator(0, "row", label) for label in range(5)])
    assert torch.equal(at_once["weight"], grown["weight"])
    assert grown["weight"].abs().max() <= 0.5


def test_interpolation_is_exact_at_both_ends():
    start, end = {"w": torch.randn(1000)}, {"w": torch.randn(1000)}
    assert torch.equal(interpolate(start, end, 0.0)["w"], start["w"])
    assert torch.equal(interpolate(start, end, 1.0)["w"], end["w"])
    expected = start["w"] + 0.01 * (end["w"] - start["w"])
    torch.testing.assert_close(interpolate(start, end, 0.01)["w"], expected)
