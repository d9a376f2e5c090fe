"""Stages of modules from elsewhere: found where the parts are a chain, or named, and always compared with the module."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fscl.errors import MisuseError, StorageError
from fscl.nets import sources
from fscl.nets.params import trainable_copy
from fscl.nets.pretrained import PretrainedNetwork, pretrained_base
from fscl.nets.sources import Source, load_network, named_base
from fscl.nets.stages import Staged, Stages
from fscl.rng import generator
from fscl.storage import load_tensors, save_tensors


def images(n: int = 5, size: int = 32) -> Tensor:
    return torch.randint(256, (n, 3, size, size), dtype=torch.uint8, generator=generator(0, "images"))


class Residual(nn.Module):
    """A basic block of a ResNet, written as timm writes it."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1, self.act1 = nn.BatchNorm2d(outputs), nn.ReLU()
        self.conv2, self.bn2, self.act2 = (
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )
        same = stride == 1 and inputs == outputs
        self.downsample = (
            None if same else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.act1(self.bn1(self.conv1(x)))))
        return self.act2(y + (x if self.downsample is None else self.downsample(x)))


class Pool(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


class ResNet(nn.Module):
    """The parts of timm's: conv1, bn1, act1, maxpool, layer1 to layer4, global_pool, fc."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.act1 = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(Residual(8, 8), Residual(8, 8))
        self.layer2 = nn.Sequential(Residual(8, 12, 2), Residual(12, 12))
        self.layer3 = nn.Sequential(Residual(12, 16, 2))
        self.layer4 = nn.Sequential(Residual(16, 24))
        self.global_pool, self.fc = Pool(), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.act1(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.global_pool(x))


class EfficientNet(nn.Module):
    """The parts of timm's: conv_stem, bn1, blocks (a Sequential of Sequentials), conv_head, bn2, global_pool, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_stem, self.bn1 = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.blocks = nn.Sequential(nn.Sequential(Residual(8, 8)), nn.Sequential(Residual(8, 12, 2), Residual(12, 12)))
        self.conv_head, self.bn2 = nn.Conv2d(12, 20, 1), nn.BatchNorm2d(20)
        self.global_pool, self.classifier = Pool(), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn2(self.conv_head(self.blocks(self.bn1(self.conv_stem(x)))))
        return self.classifier(self.global_pool(x))


class Hidden(nn.Module):
    """Its order of registration is not its order of work, it means over space, and its `stages` are something else."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Conv2d(8, 10, 1)
        self.stages = nn.ModuleList([Residual(8, 8), Residual(8, 8)])
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.last(x).mean((2, 3))


class Bent(nn.Module):
    """Something happens between its parts that none of them does."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.two(torch.relu(self.one(x)))
        return y.view(len(y), -1)  # which filters in another order would make impossible


def seeded(kind: Callable[[], nn.Module]) -> nn.Module:
    """A module whose BatchNorm layers have seen something."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = kind()
        module(torch.randn(16, 3, 32, 32))
    return module


def base(kind: Callable[[], nn.Module], **more: object) -> PretrainedNetwork:
    return pretrained_base(seeded(kind), image_size=32, mean=0.5, std=0.25, **more)  # type: ignore[arg-type]


RESNET = [
    ("conv1", "bn1", "act1", "maxpool"),
    ("layer1.0",),
    ("layer1.1",),
    ("layer2.0",),
    ("layer2.1",),
    ("layer3.0",),
    ("layer4.0", "global_pool", "fc"),
]
EFFICIENTNET = [
    ("conv_stem", "bn1"),
    ("blocks.0.0",),
    ("blocks.1.0",),
    ("blocks.1.1",),
    ("conv_head", "bn2", "global_pool", "classifier"),
]
HIDDEN = ["stem", "stages.0", "stages.1", "last"]


@pytest.mark.parametrize(("kind", "stages"), [(ResNet, RESNET), (EfficientNet, EFFICIENTNET)])
def test_stages_are_found_where_parts_are_registered_in_order(kind: Callable[[], nn.Module], stages: object):
    found = base(kind)
    assert isinstance(found.module, Staged)
    assert list(found.module.chain_.stages) == stages
    assert found.n_stages == len(found.module.chain_.stages)
    scaled = (images() / 255 - 0.5) / 0.25
    with torch.no_grad():
        torch.testing.assert_close(found.embed(images()), seeded(kind).eval()(scaled))
    assert set(found.module.state_dict()) == set(seeded(kind).state_dict())
    assert kind.__name__ in repr(found)


@pytest.mark.parametrize(
    ("kind", "more"), [(ResNet, {}), (EfficientNet, {"trainable": True}), (Hidden, {"stages": HIDDEN})]
)
def test_every_split_and_every_movable_tail_is_the_whole(kind: Callable[[], nn.Module], more: dict[str, object]):
    whole = base(kind, **more)
    expected = whole.embed(images())
    for depth in range(1, whole.n_stages):
        trunk, tail = whole.split(depth)
        movable = whole.movable(depth)
        assert torch.equal(tail.embed(trunk.activations(images())), expected)
        assert torch.equal(movable.embed(images()), expected)
        assert movable.params
        weights, others = trainable_copy(movable.params), trainable_copy(tail.params)
        x = movable.to_input(images())
        movable.features(x, weights).square().sum().backward()
        tail.features(tail.to_input(x), others).square().sum().backward()
        for name, tensor in weights.items():
            assert tensor.grad is not None
            assert torch.equal(tensor.grad, others[name].grad), name  # type: ignore[arg-type]


def test_a_module_that_is_no_chain_has_no_stages_and_is_left_as_it_is():
    found = base(Bent)
    assert found.n_stages == 0
    assert found.spec.stages is None
    with torch.no_grad():
        torch.testing.assert_close(found.embed(images()), seeded(Bent)((images() / 255 - 0.5) / 0.25))
    with pytest.raises(MisuseError, match="has no stages"):
        found.movable(1)
    assert base(Hidden).n_stages == 0  # not in order of registration


def test_stages_can_be_named():
    found = base(Hidden, stages=HIDDEN)
    assert found.n_stages == 4
    assert found.spec.stages == Stages(parts=tuple(HIDDEN), averaged=True)
    torch.testing.assert_close(found.embed(images()), base(Hidden).embed(images()))
    assert set(found.movable(3).params) == {"last.weight", "last.bias"}


@pytest.mark.parametrize(
    ("stages", "reason"),
    [
        (
            ["stem", "body"],
            "names 'body', but the module has no such part. Its own are last, stages.0, stages.1, stem.0",
        ),
        (["stem"], "leave nothing to split between"),
        ([], "leave nothing to split between"),
        (["stem", "stages.0", "last"], "do not give what the module gives: features differ by up to"),
        (["last", "stem"], "do not give what the module gives: .* expected input"),
        (["stem", "stages.0", "stages.1"], "it has 10 features and they make 2048 numbers"),
    ],
)
def test_a_list_that_is_not_the_module_is_refused(stages: list[str], reason: str):
    with pytest.raises(MisuseError, match=reason):
        base(Hidden, stages=stages)


def test_a_module_whose_features_depend_on_the_size_refuses_another():
    def flat() -> nn.Module:
        layers = nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.Conv2d(4, 4, 3, 2), nn.Flatten(), nn.Linear(4 * 7 * 7, 6)
        return nn.Sequential(*layers)

    trunk, _ = base(flat).split(1)
    assert trunk.activations(images(), image_size=32).shape == (5, 4, 15, 15)
    with pytest.raises(MisuseError, match=r"does not have 6 features of images of 48×48\. Leave out image_size"):
        trunk.activations(images(), image_size=48)
    smaller, tail = base(ResNet).split(3)
    assert tail.embed(smaller.activations(images(), image_size=24)).shape == (5, 24)


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> None:
    def source(model: str, weights: bool) -> Source:
        module = seeded(ResNet)
        if not weights:
            for tensor in module.parameters():
                tensor.data.zero_()
        return Source(module, 32, (0.5,) * 3, (0.25,) * 3, "features", "mit")

    monkeypatch.setattr(sources, "_from_timm", source)


@pytest.mark.usefixtures("timm")
def test_a_named_base_with_stages_survives_a_file(tmp_path: Path):
    found, _ = named_base("timm:resnet")
    movable = found.movable(5)
    moved = movable.with_weights({name: 1.2 * tensor for name, tensor in movable.params.items()})
    for number, network in enumerate((found, moved)):
        network.save(tmp_path / f"{number}.safetensors")
        again, _ = load_network(tmp_path / f"{number}.safetensors")
        assert again.spec == network.spec
        assert again.n_stages == 7
        assert torch.equal(again.embed(images()), network.embed(images()))
        assert set(again.params) == set(network.params)


@pytest.mark.usefixtures("timm")
def test_a_file_with_stages_that_its_module_does_not_have_is_refused(tmp_path: Path):
    found, _ = named_base("timm:resnet")
    found.save(tmp_path / "base.safetensors")
    tensors, details = load_tensors(tmp_path / "base.safetensors", "network")
    details["spec"]["stages"]["parts"][1] = "layer9.0"
    save_tensors(tmp_path / "other.safetensors", "network", tensors, details)
    with pytest.raises(StorageError, match="names stages that its module does not have"):
        load_network(tmp_path / "other.safetensors")
