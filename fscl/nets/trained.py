"""A network that is meta-trained here: a backbone of ours, its weights, and frozen statistics where it has BatchNorm."""

import threading
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, Self, final

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor, nn
from torch.func import functional_call

from fscl.device import is_autocast
from fscl.errors import DataError, MisuseError, StorageError
from fscl.nets.backbone import Backbone
from fscl.nets.conv4 import Conv4
from fscl.nets.fast.patches import Patches, cut
from fscl.nets.gated import Gated4
from fscl.nets.network import Featurer, Network, Trunk, grouped, named, with_prefix
from fscl.nets.norm import BatchNorm, NormName, Statistics
from fscl.nets.params import Params, in_layout, placed
from fscl.nets.resnet import ResNet18
from fscl.nets.resnet12 import ResNet12
from fscl.nets.work import current_work
from fscl.storage import load_tensors, save_tensors

BackboneName = Literal["conv4", "gated4", "resnet12", "resnet18"]
BACKBONES: dict[BackboneName, type[Conv4 | Gated4 | ResNet12 | ResNet18]] = {
    "conv4": Conv4,
    "gated4": Gated4,
    "resnet12": ResNet12,
    "resnet18": ResNet18,
}
Scaling = Literal["unit", "imagenet"]
IMAGENET_MEAN, IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of its photographs, in [0, 1]
KIND = "trained"


def check_width(backbone: str, width: int) -> None:
    """Refuse a width that the backbone cannot have."""
    if backbone == "resnet18" and width < 8:
        # torch 2.13 corrupts memory in the backward pass of a 1×1, stride-2 convolution of fewer channels
        raise ValueError(f"resnet18 needs a width of at least 8, but it is {width}")
    if backbone == "resnet12" and width % 2:
        raise ValueError(
            f"resnet12 needs an even width, since its second block is 5/2 times as wide, but it is {width}"
        )


class NetworkSpec(BaseModel):
    """The shape of a network.

    Attributes:
        scaling: what pixels become: numbers in [0, 1], or those minus the mean of photographs, over their deviation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    backbone: BackboneName = "conv4"
    width: int = Field(default=64, ge=1, le=1024)
    norm: NormName = "group"
    channels: int = Field(default=1, ge=1, le=16)
    image_size: int = Field(default=32, ge=16, le=512)
    scaling: Scaling = "unit"

    @model_validator(mode="after")
    def _width_fits(self) -> "NetworkSpec":
        check_width(self.backbone, self.width)
        if self.scaling == "imagenet" and self.channels != 3:
            raise ValueError(f"scaling = 'imagenet' is for 3 channels, but there are {self.channels}; use 'unit'")
        return self

    @property
    def fits_patches(self) -> bool:
        """Whether the first block can be computed by patches (fast/patches.py)."""
        return self.backbone in ("conv4", "gated4") and self.channels == 1 and self.image_size % 2 == 0


def skeleton(spec: NetworkSpec) -> Backbone:
    """The layers without weights; every call brings its own.

    Each thread has its own, because `functional_call` puts the weights of a call into the module while it runs.
    """
    return _skeleton(spec, threading.get_ident())


@lru_cache(maxsize=64)
def _skeleton(spec: NetworkSpec, thread: int) -> Backbone:
    with torch.device("meta"):
        module = BACKBONES[spec.backbone](
            channels=spec.channels, width=spec.width, image_size=spec.image_size, norm=spec.norm
        )
    for name, layer in module.named_modules():
        if isinstance(layer, BatchNorm):
            layer.key = name
    return module


@lru_cache(maxsize=32)
def multiply_adds(spec: NetworkSpec, trained: bool, first: int = 0) -> int:
    """What one image costs in the convolutions from a stage on: on its way forward, or (`trained`) forward and backward."""
    from torch.utils.flop_counter import FlopCounterMode  # rarely needed

    module = skeleton(spec)
    n_images = 2  # BatchNorm refuses a single one whose last map is one pixel
    x = torch.empty(n_images, spec.channels, spec.image_size, spec.image_size, device="meta")
    x = module(x, None, None, 0, first) if first else x
    x = x.detach()
    weights = list(with_prefix(_prefixes(module, first), dict(module.named_parameters())).values())
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(trained):
        features = module(x, None, None, first)
        if trained:
            torch.autograd.grad(features.sum(), weights)
    return int(counter.get_total_flops()) // 2 // n_images  # a multiply-add counts as two operations


def _prefixes(module: Backbone, first: int) -> tuple[str, ...]:
    return tuple(prefix for stage in module.stages[first:] for prefix in stage)


@final
@dataclass(frozen=True, eq=False, repr=False)
class TrainedNetwork(Network):
    """A backbone of ours and its weights.

    Attributes:
        first: the first stage that it has; of a tail the inputs are what the stages before it make of images.
    """

    spec: NetworkSpec
    first: int = 0

    @property
    def n_features(self) -> int:
        return skeleton(self.spec).n_features

    @property
    def picture_shape(self) -> tuple[int, int] | None:
        return None if self.first else (self.spec.channels, self.spec.image_size)

    @property
    def image_size(self) -> int | None:
        return None if self.first else self.spec.image_size

    @property
    def n_stages(self) -> int:
        return 0 if self.first else len(skeleton(self.spec).stages)

    @property
    def needs_statistics(self) -> bool:
        return self.spec.norm == "batch"

    @property
    def is_meta_trained(self) -> bool:
        return True

    @property
    def dtype(self) -> torch.dtype:
        return next(iter(self.params.values())).dtype

    @property
    def device(self) -> torch.device:
        return next((tensor.device for tensor in self.params.values()), torch.device("cpu"))

    def to(self, device: torch.device | str) -> Self:
        place = torch.device(device)
        statistics = None if self.statistics is None else placed(self.statistics, place)
        params, extras = placed(self.params, place), placed(self.extras, place)
        return replace(self, params=params, statistics=statistics, extras=extras)

    def with_weights(self, params: Params, statistics: Statistics | None = None) -> Self:
        return replace(self, params=params, statistics=statistics)

    def to_input(self, images: Tensor) -> Tensor:
        if self.first:
            return self._activations(images)
        expected = (self.spec.channels, self.spec.image_size, self.spec.image_size)
        if images.dtype != torch.uint8 or tuple(images.shape[1:]) != expected:
            raise DataError(
                f"the network takes uint8 images of shape {expected}, but got {images.dtype} of shape "
                f"{tuple(images.shape[1:])}. Load the data with image_size={self.spec.image_size} and "
                f"{self.spec.channels} channel(s)."
            )
        x = images.to(self.device).to(self.dtype).div_(255)  # bytes are moved, a quarter of the floats
        if self.spec.scaling == "imagenet":
            of_photographs = torch.tensor([IMAGENET_MEAN, IMAGENET_DEVIATION], dtype=x.dtype).to(x.device)
            mean, deviation = of_photographs.view(2, 3, 1, 1)
            x = x.sub_(mean).div_(deviation)
        return x.to(memory_format=torch.channels_last)

    def _activations(self, x: Tensor) -> Tensor:
        if not x.is_floating_point() or x.ndim != 4:
            raise DataError(
                f"this tail takes activations (n, channels, height, width) of the trunk before stage {self.first}, but got "
                f"{x.dtype} of shape {tuple(x.shape)}. Pass images through the trunk first."
            )
        return x.to(self.device).to(self.dtype).to(memory_format=torch.channels_last)

    def features(
        self,
        x: Tensor,
        params: Mapping[str, Tensor] | None = None,
        *,
        statistics: Statistics | None = None,
        record: Statistics | None = None,
    ) -> Tensor:
        return self._features(x, params, statistics, record)

    def featurer(self, x: Tensor) -> Featurer:
        by_patches = self.spec.fits_patches and not self.first and x.device.type == "cpu" and not is_autocast()
        if not by_patches:
            return super().featurer(x)
        return partial(self._features, cut(x, each=self.spec.norm == "group"))

    def _features(
        self,
        x: Tensor | Patches,
        params: Mapping[str, Tensor] | None,
        statistics: Statistics | None,
        record: Statistics | None = None,
    ) -> Tensor:
        weights = dict(self.params if params is None else params)
        work = current_work()
        if work is not None:
            trained = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in weights.values())
            work.add(len(x) * multiply_adds(self.spec, trained, self.first))
        with torch.autocast(x.device.type, torch.bfloat16) if is_autocast() else nullcontext():
            features: Tensor = functional_call(skeleton(self.spec), weights, (x, statistics, record, self.first))
        return features.to(x.dtype)

    def randomised(self, generator: torch.Generator) -> Self:
        return replace(self, params=placed(init_params(self.spec, generator), self.device), statistics=None, extras={})

    def starting_weights(self) -> Params:
        return self.params

    def split(self, depth: int) -> tuple[Trunk, Self]:
        module = skeleton(self.spec)
        n_stages = len(module.stages)
        if self.first or not 0 < depth < n_stages:
            raise MisuseError(
                f"a {self.spec.backbone} has {n_stages} stages, so a whole one can be split after stage 1 to "
                f"{n_stages - 1}, but depth is {depth}"
                + (f" of the tail after stage {self.first}." if self.first else ".")
            )
        if self.needs_statistics and self.statistics is None:
            raise DataError("a network with BatchNorm needs frozen statistics to be split; see freeze_statistics.")

        def run(x: Tensor, image_size: int | None) -> Tensor:  # one that it can take: the trunk has checked
            work = current_work()
            if work is not None:
                work.add(len(x) * (multiply_adds(self.spec, False) - multiply_adds(self.spec, False, depth)))
            inputs = (x, self.statistics, None, 0, depth)
            activations: Tensor = functional_call(skeleton(self.spec), self.params, inputs)
            return activations

        kept = _prefixes(module, depth)
        statistics = (
            None if self.statistics is None else with_prefix(kept, {f"{k}.": v for k, v in self.statistics.items()})
        )
        tail = replace(
            self,
            first=depth,
            params=with_prefix(kept, self.params),
            statistics=None if statistics is None else {name.removesuffix("."): t for name, t in statistics.items()},
        )
        return Trunk(self, depth, run), tail

    def movable(self, depth: int) -> Self:
        raise MisuseError(
            f"a {self.spec.backbone} that was trained here moves as a whole, so its first {depth} stages are not frozen: "
            "give it to the learner as it is, or use the tail of `split`."
        )

    def save(self, path: Path, details: Mapping[str, Any] | None = None) -> None:
        if self.first:
            raise MisuseError("a tail is not saved alone: save the network that it was split from.")
        about = {"kind": KIND, "spec": self.spec.model_dump(mode="json"), "about": dict(details or {})}
        save_tensors(path, "network", self.tensors(), about)

    def tensors(self) -> dict[str, Tensor]:
        return named(params=self.params, statistics=self.statistics, extras=self.extras)

    @classmethod
    def load(cls, path: Path) -> tuple["TrainedNetwork", dict[str, Any]]:
        """Read a network and its details."""
        return cls.restored(path, *load_tensors(path, "network"))

    @classmethod
    def restored(
        cls, path: Path, tensors: Mapping[str, Tensor], details: Mapping[str, Any]
    ) -> tuple["TrainedNetwork", dict[str, Any]]:
        """As `load`, from what the file at `path` holds."""
        stored, statistics, extras = grouped(tensors, "params", "statistics", "extras")
        try:
            spec = NetworkSpec.model_validate(details["spec"])
        except (KeyError, TypeError, ValidationError) as error:
            raise StorageError(f"{path} does not say which network it holds.") from error
        _check_shapes(path, spec, stored)
        params = {name: stored[name] for name, _ in skeleton(spec).named_parameters()}
        return cls(spec, in_layout(params), statistics or None, extras), dict(details.get("about", {}))

    def _shape(self) -> str:
        spec, tail = self.spec, f", from stage {self.first} on" if self.first else ""
        return f"{spec.backbone} of width {spec.width} for {spec.channels}×{spec.image_size}×{spec.image_size}{tail}"


def init_network(spec: NetworkSpec, generator: torch.Generator) -> TrainedNetwork:
    """A network with random weights."""
    return TrainedNetwork(spec, init_params(spec, generator))


def init_params(spec: NetworkSpec, generator: torch.Generator) -> Params:
    """Random weights: convolutions N(0, 2 / fan-out), linear layers N(0, 1 / fan-in), norms 1 and biases 0."""
    params = {}
    for name, shaped in skeleton(spec).named_parameters():
        tensor = torch.empty(shaped.shape)
        if tensor.ndim == 4:
            nn.init.kaiming_normal_(tensor, mode="fan_out", nonlinearity="relu", generator=generator)
        elif tensor.ndim == 2:
            nn.init.kaiming_normal_(tensor, nonlinearity="linear", generator=generator)
        else:
            nn.init.constant_(tensor, 1.0 if name.endswith("weight") else 0.0)
        params[name] = tensor
    return in_layout(params)


def _check_shapes(path: Path, spec: NetworkSpec, params: Params) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in skeleton(spec).named_parameters()}
    found = {name: tuple(tensor.shape) for name, tensor in params.items()}
    if expected != found:
        wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise StorageError(
            f"{path} does not fit a {spec.backbone} of width {spec.width}: {wrong[0]!r} should have shape "
            f"{expected.get(wrong[0])} and has {found.get(wrong[0])}."
        )
