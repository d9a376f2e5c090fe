"""A base out of any module that maps images to vectors: features that somebody else has trained.

    base = fscl.pretrained_base(module, image_size=224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    learner = fscl.make_learner("prototypes", base, seed=0)

The module is copied, put in eval mode and never changed: BatchNorm keeps the statistics it came with, so that prediction is
inductive, and a module whose features of one image depend on the others in its batch is refused. Images of any size are
resized to what the module was made for, inside `features`, a few at a time; grey ones are given to all channels.

The features are frozen unless `trainable`: there are then no weights to move, and a learner that moves its embedding holds
it still and learns the head alone. `base.movable(depth)` has weights to move from one stage on; those before it are frozen.
"""

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
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
from fscl.nets.measuring import checked_features, multiply_adds, n_outputs
from fscl.nets.network import Network, Trunk, named, with_prefix
from fscl.nets.norm import Statistics
from fscl.nets.params import Params, frozen_copy, in_layout, placed
from fscl.nets.stages import Staged, Stages, staged, stages_of
from fscl.nets.work import current_work
from fscl.storage import save_tensors, tensor_digest

BATCH_PIXELS = 16 * 224 * 224  # of images that pass through the module together: more need memory and save no time
BATCH = 16  # large images: with fewer together, torch takes other routines on a CPU, at 1.4 times the time an image

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
        trainable: whether learners may move all of the weights.
        stages: the parts that the module is a chain of; None for a module that is no chain, and stays frozen or moves whole.
        tail: the first stage whose weights learners may move, where those before it are frozen (`movable`).
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
    stages: Stages | None = None
    tail: int | None = Field(default=None, ge=1)
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
    def n_stages(self) -> int:
        return 0 if self.first else len(stages_of(self.module))

    @property
    def inputs_are_cheap(self) -> bool:
        return self.spec.tail is None

    @property
    def fixed(self) -> Params:
        state = _state(self.module)
        own = with_prefix(self._prefixes(self.first), state) if self.first else state
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
        """uint8 images of any size as floats in [0, 1], or what the frozen stages of a movable network make of them.

        `features` does the rest, because resized images take much room.
        """
        if self.first:
            return self._activations(images)
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, self.spec.channels):
            raise DataError(
                f"the base takes uint8 images (n, channels, height, width) of {self.spec.channels} channel(s) or of 1, but "
                f"got {images.dtype} of shape {tuple(images.shape)}."
            )
        x = images.to(self.device).to(self.dtype).div_(255)
        return x if self.spec.tail is None else self._trunk(self.spec.tail, x)

    def _activations(self, x: Tensor) -> Tensor:
        if not x.is_floating_point():
            raise DataError(
                f"this tail takes activations of the trunk before stage {self.first}, but got {x.dtype} of shape "
                f"{tuple(x.shape)}. Pass images through the trunk first."
            )
        x = x.to(self.device).to(self.dtype)
        return x.to(memory_format=torch.channels_last) if x.ndim == 4 else x

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
        begin = self.first or self.spec.tail or 0
        work = current_work()
        if work is not None:
            trained = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in weights.values())
            each = multiply_adds(_own_module(self.module), x, begin) if begin else self.spec.multiply_adds
            work.add(len(x) * each * (3 if trained else 1))
        parts = self._run(x, weights, begin)
        return torch.cat([part.flatten(1) for part in parts]).to(x.dtype) if parts else x.new_zeros(0, self.n_features)

    def _run(
        self, x: Tensor, weights: Mapping[str, Tensor], first: int, last: int | None = None, size: int | None = None
    ) -> list[Tensor]:
        """What the stages from `first` to `last` make of their inputs, a few at a time; images are resized to `size`."""
        is_exported = torch.compiler.is_compiling()
        pieces = (x,) if is_exported else self.pieces(x, first)  # an exported graph has no loop
        module = self.module if is_exported else _own_module(self.module)
        stages = (first, last) if first or last else ()
        with torch.autocast(x.device.type, torch.bfloat16) if is_autocast() else nullcontext():
            return [
                functional_call(module, dict(weights), (piece if first else prepared(piece, self.spec, size), *stages))
                for piece in pieces
            ]

    def pieces(self, images: Tensor, first: int | None = None) -> Sequence[Tensor]:
        """As every network; of inputs of stage `first`, more at once where they come from smaller images."""
        area, first = self.spec.image_size**2, self.first if first is None else first
        at_once = max(1, BATCH_PIXELS // area, min(BATCH, 4 * BATCH_PIXELS // area))
        if first:
            usual = n_outputs(_own_module(self.module), self._blank(self.spec.image_size), 0, first) or 1
            at_once = max(1, at_once * usual // max(1, images.shape[1:].numel()))
        return images.tensor_split(max(1, len(images) // at_once))  # no small piece is left over

    def _blank(self, size: int) -> Tensor:
        return torch.zeros(1, self.spec.channels, size, size, dtype=self.dtype, device=self.device)

    def _trunk(self, depth: int, x: Tensor, size: int | None = None) -> Tensor:
        """What the first stages make of pixels in [0, 1], without gradients."""
        if size is not None:
            self._check_size(size)
        with torch.no_grad():
            parts = self._run(x, self.params, 0, depth, size)
            work = current_work()
            if work is not None and len(x):
                pixels = prepared(x[:1], self.spec, size)
                work.add(len(x) * multiply_adds(_own_module(self.module), pixels, 0, depth))
            return torch.cat(parts).to(self.dtype)

    def _check_size(self, size: int) -> None:
        """Refuse a size of images that the module cannot take, or of which it makes another number of features."""
        if n_outputs(_own_module(self.module), self._blank(size)) != self.n_features:
            side = self.spec.image_size
            raise MisuseError(
                f"{self!r} does not have {self.n_features} features of images of {size}×{size}. Leave out image_size, "
                f"for its own {side}×{side}."
            )

    def split(self, depth: int) -> tuple[Trunk, Self]:
        """As every network; the tail's weights may be moved, whether those of the whole may or not."""
        self._check_depth(depth, "split after")
        whole = replace(self, spec=self.spec.model_copy(update={"tail": None}))
        tail = replace(whole, first=depth, params=self._weights_from(depth))
        return Trunk(whole, depth, partial(whole._trunk, depth)), tail

    def movable(self, depth: int) -> Self:
        """The same network whose first `depth` stages are frozen: they run in `to_input`, without gradients.

        `params` are the weights of the stages after them, so that a learner moves these alone. What was moved before stays.
        """
        self._check_depth(depth, "frozen up to")
        module = self.module
        if self.params:  # weights that may differ from those in the module
            module = deepcopy(module)
            module.load_state_dict(self.params, strict=False)
        spec = self.spec.model_copy(update={"tail": depth, "trainable": False})
        return replace(self, spec=spec, params=self._weights_from(depth), module=module)

    def _check_depth(self, depth: int, what: str) -> None:
        n_stages = len(stages_of(self.module))
        if not n_stages:
            (super().split if what == "split after" else super().movable)(depth)  # says what is wrong
        if self.first or not 0 < depth < n_stages:
            raise MisuseError(
                f"{self.spec.module or 'this module'} has {n_stages} stages, so a whole one can be {what} stage 1 "
                f"to {n_stages - 1}, but depth is {depth}"
                + (f" of the tail after stage {self.first}." if self.first else ".")
            )

    def _weights_from(self, depth: int) -> Params:
        weights = dict(self.module.named_parameters()) | self.params
        return in_layout(frozen_copy(with_prefix(self._prefixes(depth), weights)))

    def _prefixes(self, first: int) -> tuple[str, ...]:
        return tuple(prefix for stage in stages_of(self.module)[first:] for prefix in stage)

    def tensors(self) -> dict[str, Tensor]:
        return named(module={**_state(self.module), **self.params}, extras=self.extras)

    def save(self, path: Path, details: Mapping[str, Any] | None = None) -> None:
        """Write the weights, and the name by which the module is built again."""
        if self.first:
            raise MisuseError("a tail is not saved alone: save the network that it was split from.")
        if self.spec.module is None:
            raise MisuseError(
                "a base of your own module cannot be saved or used in `fscl run`: nobody else can build it again. Use "
                "it in your own process, or take one by name (docs/how-to/pretrained.md)."
            )
        tensors = {name: tensor.clone() for name, tensor in self.tensors().items()}  # some modules use one tensor twice
        about = {"kind": KIND, "spec": self.spec.model_dump(mode="json"), "about": dict(details or {})}
        save_tensors(path, "network", tensors, about)

    def _shape(self) -> str:
        tail = f", from stage {self.first} on" if self.first else ""
        tail = f", frozen up to stage {self.spec.tail}" if self.spec.tail else tail
        return f"{self.spec.module or self.module._get_name()} at {self.spec.image_size}×{self.spec.image_size}{tail}"


def pretrained_base(
    module: nn.Module,
    *,
    image_size: int,
    channels: int = 3,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    trainable: bool = False,
    seen: Seen | None = None,
    stages: Sequence[str] | None = None,
    name: str | None = None,
) -> PretrainedNetwork:
    """A base that every learner takes, out of a module that maps (n, channels, size, size) to features of each image.

    Examples:
        >>> network = pretrained_base(torch.nn.Flatten(), image_size=8, channels=1)
        >>> network.embed(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).shape
        torch.Size([2, 64])

    Args:
        module: maps images to vectors.
        image_size: what the module was made for, in pixels; images of other sizes are resized to it.
        channels: likewise: 1 for grey, 3 for colour.
        mean: what it wants taken off, of pixels in [0, 1]; one number, or one a channel.
        std: what it wants them divided by, likewise.
        trainable: let learners that move their embedding move the module's weights. Takes memory and time for all of them.
        seen: "imagenet" if the weights were trained on it, so that figures on parts of ImageNet carry a warning.
        stages: names of submodules, such as "stem" and "blocks.0", that run one after another are the module (and then the
            mean over space, if it ends with that): between them it can be split. Found without your help where the parts
            were registered in that order.
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
    random = torch.rand(3, channels, image_size, image_size, generator=torch.Generator().manual_seed(0))
    x = prepared(random.to(_dtype(own)), spec)
    features, cost = checked_features(lambda images: functional_call(own, params, (images,)), x)
    chain = staged(own, stages, x, features)
    found = chain.chain_.record if isinstance(chain, Staged) else None
    spec = spec.model_copy(update={"n_features": features[0].numel(), "multiply_adds": cost, "stages": found})
    return PretrainedNetwork(spec, params, module=chain)


def prepared(x: Tensor, spec: PretrainedSpec, size: int | None = None) -> Tensor:
    """Pixels in [0, 1] as the module wants them: its number of channels, its size or another, its scale."""
    sides = (size or spec.image_size,) * 2
    if x.shape[-2:] != sides:
        x = F.interpolate(x, size=sides, mode="bilinear", align_corners=False, antialias=True)
    # not x.new_tensor, which torch cannot export
    mean, std = (torch.tensor(values, dtype=x.dtype).to(x.device)[:, None, None] for values in (spec.mean, spec.std))
    return (x - mean).div_(std)  # grey images become as many channels as there are means


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
