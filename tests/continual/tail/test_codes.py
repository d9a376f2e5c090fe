"""What is kept of a picture: the frozen stages' activations, of the whole of it and of crops."""

import pytest
import torch

from fscl.continual.tail.codes import Body
from fscl.continual.tail.settings import TailSettings
from fscl.nets.network import Network
from fscl.nets.params import Params
from fscl.nets.precomputed import precomputed_features
from fscl.testing import small_base
from tests.continual.tail.cases import PATTERNS, lite0, photographs

SETTINGS = TailSettings()


def codes(network: Network, images: torch.Tensor, *, seed: int = 0, **settings: object) -> Params:
    chosen = SETTINGS.model_copy(update=settings)
    return Body.of(network, chosen).codes(images, chosen, seed=seed)


def test_codes_of_a_picture_depend_on_the_picture_and_the_seed_alone():
    network, images = small_base(), PATTERNS.images[:9]
    together = codes(network, images)
    torch.rand(5)  # whatever ran in between
    backwards = codes(network, images.flip(0))
    alone = codes(network, images[4:5])
    assert together["crops"].shape[:2] == (9, SETTINGS.views)
    for name, rows in together.items():
        assert torch.equal(backwards[name].flip(0), rows), name
        assert torch.equal(alone[name][0], rows[4]), name
    other = codes(network, images, seed=1)
    assert torch.equal(other["whole"], together["whole"])
    assert not torch.equal(other["crops"], together["crops"])


def test_the_same_picture_has_the_same_crops_wherever_it_stands_and_different_views_differ():
    image = PATTERNS.images[:1]
    found = codes(small_base(), torch.cat([image, PATTERNS.images[1:3], image]))["crops"]
    assert torch.equal(found[0], found[3])
    assert not torch.equal(found[0], found[1])
    assert not any(torch.equal(found[0, 0], found[0, view]) for view in range(1, SETTINGS.views))


def test_whole_pictures_through_trunk_and_tail_are_the_base_s_features_up_to_half_precision():
    network, images = small_base(), PATTERNS.images[:9]
    found = codes(network, images)
    assert found["whole"].dtype == found["crops"].dtype == torch.float16
    torch.testing.assert_close(found["base"], network.embed(images), rtol=5e-3, atol=5e-3)


def test_photographs_are_cropped_at_five_sevenths_of_the_side_and_cost_less_in_the_tail():
    body = Body.of(lite0(image_size=128), SETTINGS)
    assert body.crop_size == 96  # 5/7 of 128 is 91: in steps of 32
    found = body.codes(photographs(2), SETTINGS.model_copy(update={"views": 2}), seed=0)
    assert found["crops"].shape[-1] < found["whole"].shape[-1]
    assert body.cost(found["crops"][:, 0]) < body.cost(found["whole"])


def test_the_last_six_blocks_and_the_top_of_a_lite0_move():
    body = Body.of(lite0(), SETTINGS)
    moving = {name.partition(".")[0] + "." + name.split(".")[1] for name in body.base if name.startswith("blocks")}
    assert moving == {f"blocks.{number}" for number in range(10, 16)}
    assert any(name.startswith("top") for name in body.base)


def test_the_cost_of_a_tail_is_its_multiply_adds():
    body = Body.of(small_base(), SETTINGS)
    found = body.codes(PATTERNS.images[:1], SETTINGS, seed=0)
    assert found["whole"].shape[1:] == (8, 4, 4)  # two of four blocks stand still, and each halves the side
    third, fourth = (side * side * 8 * 8 * 9 for side in (4, 2))
    assert body.cost(found["whole"]) == third + fourth


@pytest.mark.parametrize("depth", [1, 3])
def test_a_depth_that_is_set_counts(depth: int):
    body = Body.of(small_base(), TailSettings(depth=depth))
    assert body.trunk is not None
    assert body.trunk.depth == depth


def test_rows_of_numbers_have_no_tail_and_keep_themselves():
    network = precomputed_features(7)
    rows = torch.randn(4, 7)
    body = Body.of(network, SETTINGS)
    assert (body.trunk, body.tail, body.base) == (None, None, {})
    assert torch.equal(body.codes(rows, SETTINGS, seed=0)["base"], rows)
