"""What a base knows of its own classes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fscl.errors import MisuseError
from fscl.meta.statistics import base_statistics, carried, statistics_of
from fscl.nets.trained import TrainedNetwork
from fscl.rng import generator
from fscl.testing import noise_pool, small_base


def test_statistics_by_hand():
    features = torch.tensor([[0.0, 0.0], [2.0, 0.0], [10.0, 4.0], [10.0, 8.0]])
    found = statistics_of(features, torch.tensor([0, 0, 1, 1]))
    assert found["class_means"].tolist() == [[1.0, 0.0], [10.0, 6.0]]
    assert found["mean"].tolist() == [5.5, 3.0]
    assert found["within"].tolist() == [[1.0, 0.0], [0.0, 4.0]]  # squares 2 and 8, over 4 images less 2 classes
    spread = torch.tensor([[40.5, 27.0], [27.0, 18.0]]) - torch.tensor([[0.5, 0.0], [0.0, 2.0]])
    values, vectors = torch.linalg.eigh(spread.double())
    expected = (vectors * values.clamp(min=0)) @ vectors.T
    assert torch.allclose(found["between"].double(), expected, atol=1e-5)


def test_between_is_that_of_true_means():
    random = generator(0, "gaussians")
    n_classes, each = 4000, 5
    means = torch.randn(n_classes, 3, generator=random) * torch.tensor([3.0, 1.0, 0.0])
    labels = torch.arange(n_classes).repeat_interleave(each)
    features = means[labels] + 2 * torch.randn(len(labels), 3, generator=random)
    found = statistics_of(features, labels)
    assert torch.allclose(found["within"].diagonal(), torch.full((3,), 4.0), rtol=0.05)
    assert torch.allclose(found["between"].diagonal(), torch.tensor([9.0, 1.0, 0.0]), atol=0.4)


def test_a_base_goes_through_a_file_with_its_extras(tmp_path: Path):
    network = small_base("batch")
    network.save(tmp_path / "network.safetensors")
    again, _ = TrainedNetwork.load(tmp_path / "network.safetensors")
    assert carried(again.extras) == "between, class_means, mean, root_within, within"
    assert all(torch.equal(tensor, network.extras[name]) for name, tensor in again.extras.items())


def test_at_most_so_many_images_of_a_class_are_looked_at(monkeypatch: pytest.MonkeyPatch):
    pool, network = noise_pool(3, 30), small_base()
    monkeypatch.setattr("fscl.meta.statistics.MAX_IMAGES", 3)
    seen = []
    found = base_statistics(network, pool, lambda done, total, note: seen.append((done, total)))
    assert seen == [(60, 60)]
    rows = torch.cat([pool.images[start : start + 20] for start in pool.starts])
    expected = statistics_of(network.embed(rows), torch.arange(3).repeat_interleave(20))
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


def test_random_weights_have_no_statistics():
    assert small_base().randomised(generator(0, "random")).extras == {}


def test_a_base_without_statistics_says_how_to_come_by_them():
    with pytest.raises(
        MisuseError, match=r"teen needs 'class_means' from the base, and this one carries nothing.*fscl"
    ):
        replace(small_base(), extras={}).extra("class_means", "teen")
