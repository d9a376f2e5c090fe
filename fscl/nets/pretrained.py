"""A base out of any module that maps images to vectors: features that somebody else has trained.

    base = fscl.pretrained_base(module, image_size=224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    learner = fscl.make_learner("prototypes", base, seed=0)

The module is copied, put in eval mode and never changed: BatchNorm keeps the statistics it came with, so that prediction is
inductive, and a module whose features of one image depend on the others in its batch is refused. Images of any size are
resized to what the module was made for, inside `features`, a few at a time; grey ones are given to all channels.

The features are frozen unless `trainable`: there are then no weights to move, and a learner that moves its embedding holds
it still and learns the head alone.
"""

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self, final
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.func import functional_call

from fscl.device import is_autocast
from fscl.errors import DataError, MisuseError
from fscl.nets.network import Network, Trunk, named, with_prefix
from fscl.nets.norm import Statistics
from fscl.nets.params import Params, frozen_copy, in_layout, placed
from fscl.nets.work import current_work
from fscl.storage import save_tensors, tensor_digest

BATCH_PIXELS = 32 * 224 * 224  # of images that pass through the module together; more need memory and save no time
TOLERANCE = 1e-3  # of the largest feature: how far rounding may move one when its image has company

KIND = "pretrained"

Seen = Literal["imagenet"]


class PretrainedSpec(BaseModel):
    """What a pretrained base is, for the record.

    Attributes:
        module: the name by which `sources.py` can build it again; None for a module that only its owner can build.
        weights: a digest of everything the module holds.
        image_size, channels: what the module is given; images are resized to it.
        mean, std: of each channel, taken off and divided by after pixels are scaled to [0, 1].
        multiply_adds: of one image on its way forward.
        trainable: whether learners may move the weights.
        seen: data that the weights were trained on, so that tables can say so.
        norm: the module's own, with the statistics it came with.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    module: str | None
    weights: str
    image_size: int = Field(ge=8, le=2048)
    channels: int = Field(ge=1, le=16)
    mean: tuple[float, ...]
    std: tuple[float, ...]
    n_features: int = Field(ge=1)
    multiply_adds: int = Field(ge=0)
    trainable: bool = False
    seen: Seen | None = None
    norm: Literal["own"] = "own"


@final
@dataclass(frozen=True, eq=False, repr=False)
class PretrainedNetwork(Network):
    """A base that was trained elsewhere; made by `pretrained_base`. `params` is empty unless its weights may move.

    Attributes:
        module: what computes the features; its own weights are used where `params` has none.
        first: the first stage that it has; of a tail the inputs are what the stages before it make of images.
    """

    spec: PretrainedSpec
    module: nn.Module = field(kw_only=True)
    first: int = 0

    @property
    def n_features(self) -> int:
        return self.spec.n_features

    @property
    def dtype(self) -> torch.dtype:
        return _dtype(self.module)

    @property
    def device(self) -> torch.device:
        return next((tensor.device for tensor in _tensors(self.module)), torch.device("cpu"))

    @property
    def picture_shape(self) -> tuple[int, int] | None:
        return None if self.first else (self.spec.channels, self.spec.image_size)

    @property
    def fixed(self) -> Params:
        state = _state(self.module)
        own = with_prefix(self._prefixes(), state) if self.first else state
        return {name: tensor for name, tensor in own.items() if name not in self.params}

    @property
    def seen(self) -> str | None:
        return self.spec.seen

    def to(self, device: torch.device | str) -> Self:
        module, place = deepcopy(self.module).to(device), torch.device(device)
        return replace(self, module=module, params=placed(self.params, place), extras=placed(self.extras, place))

    def with_weights(self, params: Params, statistics: Statistics | None = None) -> Self:
        return replace(self, params=params)

    def to_input(self, images: Tensor) -> Tensor:
        """uint8 images of any size as floats in [0, 1]; `features` does the rest, because resized ones take much room."""
        if self.first:
            return images.to(self.device).to(self.dtype)
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, self.spec.channels):
            raise DataError(
                f"the base takes uint8 images (n, channels, height, width) of {self.spec.channels} channel(s) or of 1, but "
                f"got {images.dtype} of shape {tuple(images.shape)}."
            )
        return images.to(self.device).to(self.dtype).div_(255)

    def features(
        self,
        x: Tensor,
        params: Mapping[str, Tensor] | None = None,
        *,
        statistics: Statistics | None = None,
        record: Statistics | None = None,
    ) -> Tensor:
        """Features (n, n_features) of network inputs, with other weights if given. The module has statistics of its own."""
        weights = dict(self.params if params is None else params)
        work = current_work()
        if work is not None:
            trained = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in weights.values())
            work.add(len(x) * self.spec.multiply_adds * (3 if trained else 1))
        parts = self._run(x, weights, *((self.first,) if self.first else ()))
        return torch.cat([part.flatten(1) for part in parts]).to(x.dtype) if parts else x.new_zeros(0, self.n_features)

    def _run(self, x: Tensor, weights: Mapping[str, Tensor], *stages: int) -> list[Tensor]:
        """What the module makes of inputs, a few at a time; `stages` says where to begin and end."""
        at_once = max(1, BATCH_PIXELS // self.spec.image_size**2)
        pieces = (x,) if torch.compiler.is_compiling() else x.split(at_once)  # an exported graph has no loop
        module = self.module if torch.compiler.is_compiling() else _own_module(self.module)
        begins_inside = bool(stages and stages[0])
        with torch.autocast(x.device.type, torch.bfloat16) if is_autocast() else nullcontext():
            return [
                functional_call(
                    module, dict(weights), (piece if begins_inside else prepared(piece, self.spec), *stages)
                )
                for piece in pieces
            ]

    def split(self, depth: int) -> tuple[Trunk, Self]:
        """As every network; the tail's weights may be moved, whether those of the whole may or not."""
        stages = getattr(self.module, "stages", None)
        if stages is None:
            return super().split(depth)  # type: ignore[return-value]  # it raises
        if self.first or not 0 < depth < len(stages):
            raise MisuseError(
                f"{self.spec.module or 'this module'} has {len(stages)} stages, so a whole one can be split after stage 1 "
                f"to {len(stages) - 1}, but depth is {depth}."
            )

        def run(x: Tensor) -> Tensor:
            return torch.cat(self._run(x, self.params, 0, depth))

        tail = replace(self, first=depth)
        weights = with_prefix(tail._prefixes(), dict(self.module.named_parameters()) | self.params)
        return Trunk(self, depth, run), replace(tail, params=in_layout(frozen_copy(weights)))

    def _prefixes(self) -> tuple[str, ...]:
        stages: tuple[tuple[str, ...], ...] = getattr(self.module, "stages", ())
        return tuple(prefix for stage in stages[self.first :] for prefix in stage)

    def tensors(self) -> dict[str, Tensor]:
        return named(module={**_state(self.module), **self.params}, extras=self.extras)

    def save(self, path: Path, details: Mapping[str, Any] | None = None) -> None:
        """Write the weights, and the name by which the module is built again."""
        if self.first:
            raise MisuseError("a tail is not saved alone: save the network that it was split from.")
        if self.spec.module is None:
            raise MisuseError(
                "a base of your own module cannot be saved or used in `fscl run`: nobody else can build it again. Use "
                "it in your own process, or take one by name (docs/pretrained.md)."
            )
        tensors = {name: tensor.clone() for name, tensor in self.tensors().items()}  # some modules use one tensor twice
        about = {"kind": KIND, "spec": self.spec.model_dump(mode="json"), "about": dict(details or {})}
        save_tensors(path, "network", tensors, about)

    def _shape(self) -> str:
        tail = f", from stage {self.first} on" if self.first else ""
        return (
            f"{self.spec.module or type(self.module).__name__} at {self.spec.image_size}×{self.spec.image_size}{tail}"
        )


def pretrained_base(
    module: nn.Module,
    *,
    image_size: int,
    channels: int = 3,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    trainable: bool = False,
    seen: Seen | None = None,
    name: str | None = None,
) -> PretrainedNetwork:
    """A base that every learner takes, out of a module that maps (n, channels, size, size) to features of each image.

    Args:
        image_size, channels: what the module was made for; images of other sizes are resized to it.
        mean, std: what it wants taken off and divided by, of pixels in [0, 1]; one number, or one a channel.
        trainable: let learners that move their embedding move the module's weights. Takes memory and time for all of them.
        seen: "imagenet" if the weights were trained on it, so that figures on parts of ImageNet carry a warning.
        name: for modules that `sources.py` can build again; yours has none.
    """
    own = deepcopy(module).eval().requires_grad_(False)
    shape = {"image_size": image_size, "channels": channels}
    scaling = {"mean": _per_channel("mean", mean, channels), "std": _per_channel("std", std, channels)}
    if not all(value > 0 for value in scaling["std"]):
        raise MisuseError(f"std divides, so it is above 0 for each channel, but it is {scaling['std']}.")
    spec = PretrainedSpec.model_validate(
        {
            **shape,
            **scaling,
            "module": name,
            "weights": tensor_digest(_state(own)),
            "n_features": 1,
            "multiply_adds": 0,
            "trainable": trainable,
            "seen": seen,
        }
    )
    params = in_layout(frozen_copy(dict(own.named_parameters()))) if trainable else {}
    network = PretrainedNetwork(spec, params, module=own)
    n_features, multiply_adds = _measured(network)
    spec = spec.model_copy(update={"n_features": n_features, "multiply_adds": multiply_adds})
    return PretrainedNetwork(spec, params, module=own)


def prepared(x: Tensor, spec: PretrainedSpec) -> Tensor:
    """Pixels in [0, 1] as the module wants them: its number of channels, its size, its scale."""
    size = (spec.image_size, spec.image_size)
    if x.shape[-2:] != size:
        x = F.interpolate(x, size=size, mode="bilinear", align_corners=False, antialias=True)
    # not x.new_tensor, which torch cannot export
    mean, std = (torch.tensor(values, dtype=x.dtype).to(x.device)[:, None, None] for values in (spec.mean, spec.std))
    return (x - mean) / std  # grey images become as many channels as there are means


def _measured(network: PretrainedNetwork) -> tuple[int, int]:
    """How many features the module gives, and its multiply-adds; refuses one that cannot serve."""
    from torch.utils.flop_counter import FlopCounterMode  # rarely needed

    spec = network.spec
    shape = (spec.channels, spec.image_size, spec.image_size)
    x = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0)).to(network.dtype)
    with torch.no_grad():
        try:
            with FlopCounterMode(display=False) as counter:
                alone = functional_call(network.module, network.params, (prepared(x[:1], spec),))
            together = functional_call(network.module, network.params, (prepared(x, spec),))
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
            raise MisuseError(f"the module cannot take images of shape {shape}: {error}") from error
    if not isinstance(together, Tensor) or together.ndim < 2 or len(together) != 3:
        found = f"shape {tuple(together.shape)}" if isinstance(together, Tensor) else type(together).__name__
        raise MisuseError(
            f"the module shall map n images to a tensor of n rows, but for 3 images it gives {found}. Wrap it in one "
            "that does."
        )
    if not together.is_floating_point() or not bool(torch.isfinite(together).all()):
        raise MisuseError(
            "the module's features of a random image are not finite floating-point numbers. Check its weights."
        )
    if float((alone - together[:1]).abs().max()) > TOLERANCE * float(together.abs().max()):
        raise MisuseError(
            "the module's features of an image change with the other images in its batch, or from call to call; prediction "
            "must judge each image alone. Give its BatchNorm running statistics."
        )
    return together[0].numel(), int(counter.get_total_flops()) // 2


_threads = threading.local()


def _own_module(module: nn.Module) -> nn.Module:
    """The module for this thread: a copy of its layers around the same tensors.

    `functional_call` puts the weights of a call into the module while it runs, and a module may keep things besides.
    """
    known: WeakKeyDictionary[nn.Module, nn.Module] = vars(_threads).setdefault("modules", WeakKeyDictionary())
    if module not in known:
        known[module] = deepcopy(module, {id(tensor): tensor for tensor in _tensors(module)})
    return known[module]


def _state(module: nn.Module) -> Params:
    """Everything that a module holds by name; parts that are no tensors are left out."""
    return {name: tensor.detach() for name, tensor in module.state_dict().items() if isinstance(tensor, Tensor)}


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    """Its weights and buffers themselves: what `_state` detaches would be left over in an exported graph."""
    return itertools.chain(module.parameters(), module.buffers())


def _dtype(module: nn.Module) -> torch.dtype:
    return next((tensor.dtype for tensor in _tensors(module) if tensor.is_floating_point()), torch.float32)


def _per_channel(what: str, given: float | Sequence[float], channels: int) -> tuple[float, ...]:
    values = (float(given),) * channels if isinstance(given, int | float) else tuple(map(float, given))
    if len(values) != channels:
        raise MisuseError(f"{what} has {len(values)} numbers, but there are {channels} channels: give one for each.")
    return values
