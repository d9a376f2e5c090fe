"""Training on photographs: how they are varied and scaled."""

import pytest
import torch
from pydantic import ValidationError

from fscl.data.augment import Variation, varied
from fscl.nets.trained import IMAGENET_DEVIATION, IMAGENET_MEAN, NetworkSpec, init_network
from fscl.rng import generator


def photographs(n: int = 64) -> torch.Tensor:
    return torch.randint(0, 256, (n, 3, 16, 16), dtype=torch.uint8, generator=generator(0, "photographs"))


def test_without_variation_images_are_the_same_tensor_and_no_number_is_drawn():
    images, random = photographs(), generator(0, "v")
    assert varied(images, Variation(), random) is images
    assert torch.equal(torch.rand(1, generator=random), torch.rand(1, generator=generator(0, "v")))


def test_a_flip_mirrors_about_half_of_the_images_and_leaves_the_others():
    images = photographs()
    found = varied(images, Variation(flip=True), generator(0, "v"))
    mirrored = torch.tensor([torch.equal(a, b.flip(2)) for a, b in zip(found, images, strict=True)])
    same = torch.tensor([torch.equal(a, b) for a, b in zip(found, images, strict=True)])
    assert torch.equal(mirrored, ~same)
    assert 16 < mirrored.sum() < 48


def test_a_crop_shows_a_part_of_the_picture_and_nothing_from_beyond_its_edge():
    ramp = torch.arange(16, dtype=torch.uint8).mul(10).expand(200, 3, 16, 16)  # brighter from left to right
    found = varied(ramp, Variation(crop=0.5), generator(0, "v")).float()
    spread = found[:, 0, 0, -1] - found[:, 0, 0, 0]
    assert spread.max() <= 150
    assert 65 <= spread.min() <= 90  # half the side
    assert (found.diff(dim=3) >= 0).all()
    assert found[:, 0, 0, 0].max() > 40  # some begin well inside


def test_colour_changes_brightness_contrast_and_saturation_but_not_where_things_are():
    images = torch.full((300, 3, 16, 16), 100, dtype=torch.uint8)
    images[:, 0, :, 8:] = 160
    found = varied(images, Variation(colour=0.4), generator(0, "v")).float()
    assert (found[..., :8].std((2, 3)) == 0).all()
    assert (found[..., 8:].std((2, 3)) == 0).all()
    brightness = found.mean((1, 2, 3)) / images.float().mean((1, 2, 3))
    assert 0.55 < brightness.min() < 0.75
    assert 1.25 < brightness.max() < 1.45
    redness = found[:, 0, 0, 8] - found[:, 1, 0, 8]
    assert redness.std() > 5
    assert redness.min() > 0  # less saturated, never the other colour


def test_the_same_generator_gives_the_same_variation():
    everything = Variation(flip=True, crop=0.4, colour=0.4)
    first, second = (varied(photographs(), everything, generator(0, "v")) for _ in range(2))
    assert torch.equal(first, second)
    assert first.dtype == torch.uint8
    assert not torch.equal(first, photographs())


def test_scaling_by_photographs_subtracts_their_mean_and_divides_by_their_deviation():
    network = init_network(NetworkSpec(width=4, channels=3, image_size=16, scaling="imagenet"), generator(0, "n"))
    image = torch.tensor([255, 0, 51], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 16, 16)
    found = network.to_input(image)[0, :, 3, 3]
    expected = [
        (x - mean) / deviation
        for x, mean, deviation in zip((1.0, 0.0, 0.2), IMAGENET_MEAN, IMAGENET_DEVIATION, strict=True)
    ]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_scaling_is_part_of_a_saved_network(tmp_path):
    spec = NetworkSpec(width=4, channels=3, image_size=16, scaling="imagenet")
    network = init_network(spec, generator(0, "n"))
    network.save(tmp_path / "n.safetensors")
    loaded, _ = type(network).load(tmp_path / "n.safetensors")
    assert loaded.spec == spec
    assert torch.equal(loaded.embed(photographs(4)), network.embed(photographs(4)))


def test_scaling_by_photographs_is_refused_for_grey_images():
    with pytest.raises(ValidationError, match="scaling = 'imagenet' is for 3 channels, but there are 1; use 'unit'"):
        NetworkSpec(channels=1, scaling="imagenet")
