"""A Network is all that passes from meta-training to continual learning: a specification and weights, as one value.

It is never changed. Learning makes new weights; `network.features(x, params)` evaluates any weights of the same shape.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from torch import Tensor, nn
from torch.func import functional_call

from fscl.device import is_autocast
from fscl.errors import DataError, StorageError
from fscl.nets.conv4 import Conv4
from fscl.nets.fast.patches import Patches, cut
from fscl.nets.norm import BatchNorm, NormName, Statistics
from fscl.nets.params import Params, in_layout, placed
from fscl.nets.resnet import ResNet18
from fscl.nets.resnet12 import ResNet12
from fscl.nets.work import current_work
from fscl.storage import load_tensors, save_tensors

Backbone = Conv4 | ResNet12 | ResNet18
BackboneName = Literal["conv4", "resnet12", "resnet18"]
BACKBONES: dict[BackboneName, type[Backbone]] = {"conv4": Conv4, "resnet12": ResNet12, "resnet18": ResNet18}
Featurer = Callable[[Params, Statistics | None], Tensor]
"""Features of some inputs, from weights and from the statistics that BatchNorm uses; None for those of the inputs."""
Scaling = Literal["unit", "imagenet"]
IMAGENET_MEAN, IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of its photographs, in [0, 1]
PREDICT_BATCH = 250  # images; keeps the buffers of a prediction small enough to stay in use


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
        scaling: what pixels become: numbers in [0, 1], or those less the mean of photographs, over their deviation.
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
        """Whether the first block can be computed by patches (patches.py)."""
        return self.backbone == "conv4" and self.channels == 1 and self.image_size % 2 == 0

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without a key that came later and is not used: what is known of earlier bases stays as it is."""
        content: dict[str, Any] = write(self)
        return {key: value for key, value in content.items() if key != "scaling" or value != "unit"}


@lru_cache(maxsize=16)
def _skeleton(spec: NetworkSpec) -> Backbone:
    """The layers without weights; every call brings its own."""
    with torch.device("meta"):
        module = BACKBONES[spec.backbone](
            channels=spec.channels, width=spec.width, image_size=spec.image_size, norm=spec.norm
        )
    for name, layer in module.named_modules():
        if isinstance(layer, BatchNorm):
            layer.key = name
    return module


@lru_cache(maxsize=32)
def multiply_adds(spec: NetworkSpec, trained: bool) -> int:
    """What one image costs in the convolutions: on its way forward, or (`trained`) forward and backward."""
    from torch.utils.flop_counter import FlopCounterMode  # rarely needed

    module = _skeleton(spec)
    x = torch.empty(1, spec.channels, spec.image_size, spec.image_size, device="meta")
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(trained):
        features = module(x, None, None)
        if trained:
            torch.autograd.grad(features.sum(), list(module.parameters()))
    return int(counter.get_total_flops()) // 2


@dataclass(frozen=True, eq=False)
class Network:
    """A specification and its weights.

    Attributes:
        spec: the shape.
        params: the weights of the backbone (θ^e in the TSC paper).
        head: rows of a linear head that meta-training learned, if it learned one.
        statistics: what BatchNorm normalises with at prediction, frozen from the training classes.
    """

    spec: NetworkSpec
    params: Params
    head: Params | None = None
    statistics: Statistics | None = None

    @property
    def n_features(self) -> int:
        return _skeleton(self.spec).n_features

    @property
    def image_size(self) -> int | None:
        """The side of the images that it takes; None where any will do."""
        return self.spec.image_size

    @property
    def fixed(self) -> Params:
        """Weights that no learner can move; none, unless the base was made elsewhere (pretrained.py)."""
        return {}

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights, and so of all arithmetic."""
        return next(iter(self.params.values())).dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are, and so where all arithmetic is done; without weights, on the CPU."""
        return next((tensor.device for tensor in self.params.values()), torch.device("cpu"))

    def to(self, device: torch.device | str) -> "Network":
        """The same network on a device; what is made from it works there."""
        place = torch.device(device)
        head, statistics = (None if part is None else placed(part, place) for part in (self.head, self.statistics))
        return replace(self, params=placed(self.params, place), head=head, statistics=statistics)

    def to_input(self, images: Tensor) -> Tensor:
        """uint8 images as this network wants them: floats, scaled, on its device. Says so if they do not fit."""
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

    def features(
        self,
        x: Tensor,
        params: Mapping[str, Tensor] | None = None,
        *,
        statistics: Statistics | None = None,
        record: Statistics | None = None,
    ) -> Tensor:
        """Features (n, n_features) of network inputs, with other weights if given.

        Without `statistics`, BatchNorm uses those of `x` (as in training) and writes them to `record` if given.
        """
        return self._features(x, params, statistics, record)

    def featurer(self, x: Tensor) -> Featurer:
        """`features` of these inputs, made ready for training steps: the same up to rounding, and differentiable once."""
        if (
            isinstance(self.spec, NetworkSpec)
            and self.spec.fits_patches
            and x.device.type == "cpu"
            and not is_autocast()
        ):
            return partial(self._features, cut(x, each=self.spec.norm == "group"))
        return lambda params, statistics: self.features(x, params, statistics=statistics)

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
            work.add(len(x) * multiply_adds(self.spec, trained))
        with torch.autocast(x.device.type, torch.bfloat16) if is_autocast() else nullcontext():
            features: Tensor = functional_call(_skeleton(self.spec), weights, (x, statistics, record))
        return features.to(x.dtype)

    def embed(
        self, images: Tensor, params: Mapping[str, Tensor] | None = None, *, statistics: Statistics | None = None
    ) -> Tensor:
        """Features of uint8 images for prediction: in batches, without gradients, each image alone.

        BatchNorm uses `statistics`, or else those that the network carries.
        """
        frozen = self.statistics if statistics is None else statistics
        if frozen is None and self.spec.norm == "batch":
            raise DataError("a network with BatchNorm needs frozen statistics to predict with; see freeze_statistics.")
        with torch.no_grad():
            parts = [
                self.features(self.to_input(part), params, statistics=frozen) for part in images.split(PREDICT_BATCH)
            ]
        return torch.cat(parts) if parts else torch.zeros(0, self.n_features, device=self.device)

    def freeze_statistics(self, x: Tensor, params: Mapping[str, Tensor] | None = None) -> Statistics | None:
        """The BatchNorm statistics of inputs `x`, to predict with from now on; None for networks without BatchNorm."""
        if self.spec.norm != "batch":
            return None
        record: Statistics = {}
        with torch.no_grad():
            self.features(x, params, record=record)
        return record

    def randomised(self, generator: torch.Generator) -> "Network":
        """A network of the same shape with fresh random weights and no head."""
        fresh = placed(init_params(self.spec, generator), self.device)
        return replace(self, params=fresh, head=None, statistics=None)

    def save(self, path: Path, details: Mapping[str, Any] | None = None) -> None:
        """Write the network as one safetensors file; `details` is any JSON value that says where it comes from."""
        save_tensors(path, "network", self.tensors(), {"spec": self.spec.model_dump(), "about": dict(details or {})})

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the network by name."""
        groups = {"params": self.params, "head": self.head or {}, "statistics": self.statistics or {}}
        return {f"{group}/{name}": tensor for group, tensors in groups.items() for name, tensor in tensors.items()}

    @classmethod
    def load(cls, path: Path) -> tuple["Network", dict[str, Any]]:
        """Read a network and its details."""
        return cls.restored(path, *load_tensors(path, "network"))

    @classmethod
    def restored(
        cls, path: Path, tensors: Mapping[str, Tensor], details: Mapping[str, Any]
    ) -> tuple["Network", dict[str, Any]]:
        """As `load`, from what the file at `path` holds."""
        groups: dict[str, Params] = {"params": {}, "head": {}, "statistics": {}}
        for name, tensor in tensors.items():
            group, _, key = name.partition("/")
            groups.setdefault(group, {})[key] = tensor
        try:
            spec = NetworkSpec.model_validate(details["spec"])
        except (KeyError, TypeError, ValidationError) as error:
            raise StorageError(f"{path} does not say which network it holds.") from error
        _check_shapes(path, spec, groups["params"])
        params = {name: groups["params"][name] for name, _ in _skeleton(spec).named_parameters()}
        network = cls(spec, in_layout(params), groups["head"] or None, groups["statistics"] or None)
        return network, dict(details.get("about", {}))


def init_network(spec: NetworkSpec, generator: torch.Generator) -> Network:
    """A network with random weights."""
    return Network(spec, init_params(spec, generator))


def init_params(spec: NetworkSpec, generator: torch.Generator) -> Params:
    """Random weights: convolutions N(0, 2 / fan-out), norms 1 and 0."""
    params = {}
    for name, shaped in _skeleton(spec).named_parameters():
        tensor = torch.empty(shaped.shape)
        if tensor.ndim == 4:
            nn.init.kaiming_normal_(tensor, mode="fan_out", nonlinearity="relu", generator=generator)
        else:
            nn.init.constant_(tensor, 1.0 if name.endswith("weight") else 0.0)
        params[name] = tensor
    return in_layout(params)


def _check_shapes(path: Path, spec: NetworkSpec, params: Params) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in _skeleton(spec).named_parameters()}
    found = {name: tuple(tensor.shape) for name, tensor in params.items()}
    if expected != found:
        wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise StorageError(
            f"{path} does not fit a {spec.backbone} of width {spec.width}: {wrong[0]!r} should have shape "
            f"{expected.get(wrong[0])} and has {found.get(wrong[0])}."
        )
