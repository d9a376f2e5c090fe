"""A network whose first stages are frozen and whose tail moves is the whole network to everybody but its learner."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fscl.errors import MisuseError
from fscl.nets.efficientnet_lite import EfficientNetLite
from fscl.nets.params import trainable_copy
from fscl.nets.pretrained import PretrainedNetwork, pretrained_base
from fscl.nets.sources import load_network
from fscl.nets.trained import NetworkSpec, init_network
from fscl.nets.work import counted_work
from fscl.process import configure_process
from fscl.rng import generator
from fscl.testing import CONTRACT, POOL, TASKS, Check
from tests.continual.quick import fresh


def images(n: int = 5, size: int = 48) -> Tensor:
    return torch.randint(256, (n, 3, size, size), dtype=torch.uint8, generator=generator(0, "images"))


def lite0(*, trainable: bool = False) -> PretrainedNetwork:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return pretrained_base(EfficientNetLite(), image_size=64, trainable=trainable, name="efficientnet_lite0@64")


@pytest.mark.parametrize("depth", [1, 14, 17])
@pytest.mark.parametrize("trainable", [False, True])
def test_features_and_gradients_are_those_of_the_whole_and_of_its_tail(depth: int, trainable: bool):
    whole = lite0(trainable=trainable)
    movable = whole.movable(depth)
    trunk, tail = whole.split(depth)
    assert torch.equal(movable.embed(images()), whole.embed(images()))
    x = movable.to_input(images())
    assert torch.equal(x, trunk.activations(images()))
    assert not x.requires_grad
    assert movable.picture_shape == whole.picture_shape == (3, 64)
    assert movable.n_stages == whole.n_stages == 18
    assert tail.n_stages == 0

    assert set(movable.params) == set(tail.params)
    assert set(movable.params) | set(movable.fixed) == set(whole.params) | set(whole.fixed)
    assert "stem.0.weight" in movable.fixed
    of_movable, of_tail = trainable_copy(movable.params), trainable_copy(tail.params)
    movable.features(x, of_movable).square().sum().backward()
    tail.features(tail.to_input(x), of_tail).square().sum().backward()
    for name, tensor in of_movable.items():
        assert tensor.grad is not None
        assert torch.equal(tensor.grad, of_tail[name].grad), name  # type: ignore[arg-type]


def test_moved_weights_count_and_stay_when_more_is_frozen_or_the_network_is_split():
    movable = lite0().movable(12)
    moved = movable.with_weights({name: 1.1 * tensor for name, tensor in movable.params.items()})
    expected = moved.embed(images())
    assert not torch.equal(expected, movable.embed(images()))
    assert torch.equal(moved.movable(16).embed(images()), expected)
    assert torch.equal(moved.movable(3).embed(images()), expected)
    for depth in (3, 12, 16):
        trunk, tail = moved.split(depth)
        assert torch.equal(tail.embed(trunk.activations(images())), expected)
    assert torch.equal(movable.embed(images()), lite0().embed(images()))


def test_a_movable_network_survives_a_file(tmp_path: Path):
    movable = lite0().movable(16)
    moved = replace(movable.with_weights({name: 1.1 * w for name, w in movable.params.items()}), extras={"a": images()})
    moved.save(tmp_path / "base.safetensors")
    again, _ = load_network(tmp_path / "base.safetensors")
    assert again.spec == moved.spec
    assert moved.spec.tail == 16
    assert set(again.params) == set(moved.params)
    assert torch.equal(again.embed(images()), moved.embed(images()))
    assert torch.equal(again.extras["a"], images())


def test_the_frozen_stages_cost_once_and_the_moving_ones_three_times_when_trained():
    whole = lite0()
    movable, (trunk, tail) = whole.movable(14), whole.split(14)
    with counted_work() as of_trunk:
        x = movable.to_input(images())
    with counted_work() as of_activations:
        trunk.activations(images())
    with counted_work() as of_tail:
        movable.features(x)
    with counted_work() as of_split:
        tail.features(x)
    with counted_work() as trained:
        movable.features(x, trainable_copy(movable.params))
    assert of_trunk.multiply_adds == of_activations.multiply_adds
    assert of_tail.multiply_adds == of_split.multiply_adds
    assert of_tail.multiply_adds is not None
    assert of_trunk.multiply_adds is not None
    assert of_trunk.multiply_adds + of_tail.multiply_adds == len(x) * whole.spec.multiply_adds
    assert trained.multiply_adds == 3 * of_tail.multiply_adds
    # the tail at 64 pixels: maps of 2×2; blocks 192 → 1152 → 192 twice, 192 → 1152 → 320, and the top
    widened = 192 * 1152 * 4
    blocks = 2 * (2 * widened + 25 * 1152 * 4) + widened + 9 * 1152 * 4 + 1152 * 320 * 4
    assert of_tail.multiply_adds == len(x) * (blocks + 320 * 1280 * 4)


def test_a_movable_network_is_exact_in_any_number_of_threads():
    movable = lite0().movable(15)
    moved = movable.with_weights({name: 1.1 * tensor for name, tensor in movable.params.items()})
    expected = [network.embed(images()) for network in (movable, moved)]

    def call(thread: int) -> bool:
        configure_process()  # as every worker thread does
        network = (movable, moved)[thread % 2]
        return all(torch.equal(network.embed(images()), expected[thread % 2]) for _ in range(10))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(4)))


def test_a_learner_moves_the_tail_alone():
    base = lite0().movable(17)
    learner = fresh(base, "replay")
    learner.learn_task(TASKS[0].support)
    moved = learner.starting_point()
    before, after = lite0().tensors(), moved.tensors()
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert changed
    assert all(name.startswith("module/top.") for name in changed)
    assert not torch.equal(moved.embed(POOL.images[:4]), base.embed(POOL.images[:4]))


def small() -> PretrainedNetwork:
    """Three stages, of which the last moves."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        filters = [nn.Conv2d(3, 8, 3, 2), nn.Conv2d(8, 8, 3, 2), nn.Conv2d(8, 16, 3)]
    layers = filters[0], nn.ReLU(), filters[1], nn.BatchNorm2d(8), nn.ReLU(), filters[2], nn.Flatten()
    return pretrained_base(nn.Sequential(*layers), image_size=16).movable(2)


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
@pytest.mark.parametrize("method", ["tsc", "ewc"])
def test_methods_keep_the_whole_contract_on_a_movable_tail(method: str, check: Check):
    by_heart = {"steps": 60, "learning_rate": 2e-2} if "once_it_is_learned" in check.__name__ else {}
    check(partial(fresh, method=method, **by_heart), small())


def test_a_movable_network_can_be_exported():
    movable = small()

    class Embedding(nn.Module):
        def forward(self, pixels: Tensor) -> Tensor:
            return movable.embed(pixels)

    pictures = images(20)
    graph = torch.export.export(Embedding(), (pictures[:4],), dynamic_shapes=({0: torch.export.Dim("n", min=1)},))
    torch.testing.assert_close(graph.module()(pictures), movable.embed(pictures))


@pytest.mark.parametrize("depth", [0, 18, -1])
def test_a_depth_that_freezes_nothing_or_everything_is_refused(depth: int):
    with pytest.raises(MisuseError, match="has 18 stages, so a whole one can be frozen up to stage 1 to 17"):
        lite0().movable(depth)


def test_what_cannot_be_frozen_in_part_says_so():
    base = pretrained_base(nn.Sequential(nn.Flatten(), nn.Linear(16 * 16, 3)), image_size=16, channels=1)
    assert base.n_stages == 0
    with pytest.raises(MisuseError, match="has no stages of which some could be frozen"):
        base.movable(1)
    with pytest.raises(MisuseError, match="but depth is 3 of the tail after stage 2"):
        lite0().split(2)[1].movable(3)
    conv4 = init_network(NetworkSpec(width=8), generator(0))
    assert conv4.n_stages == 4
    with pytest.raises(MisuseError, match="a conv4 that was trained here moves as a whole"):
        conv4.movable(2)
