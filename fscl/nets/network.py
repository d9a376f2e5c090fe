"""A Network is all that passes from meta-training to continual learning: a specification and weights, as one value.

It is never changed, and evaluating it in many threads at once is exact. Learning makes new weights;
`network.features(x, params)` evaluates any weights of the same shape. There are three kinds, all final: `TrainedNetwork`
(meta-trained here), `PretrainedNetwork` (trained elsewhere) and `PrecomputedFeatures` (features that another model made).

`network.split(depth)` gives a frozen `Trunk` and a tail, which is itself a Network, on the trunk's activations: a learner
moves the tail's weights, and the trunk runs once an image. `network.movable(depth)` is the same as one network that takes
images: any learner moves the tail alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import BaseModel
from torch import Tensor

from fscl.errors import DataError, MisuseError
from fscl.nets.norm import Statistics
from fscl.nets.params import Params

Featurer = Callable[[Params, Statistics | None], Tensor]
"""Features of some inputs, from weights and from the statistics that BatchNorm uses; None for those of the inputs."""
PREDICT_BATCH = 250  # images; keeps the buffers of a prediction small enough to stay in use


@dataclass(frozen=True, eq=False)
class Network(ABC):
    """Maps images to features.

    Examples:
        >>> import fscl
        >>> network = fscl.load_base("glyphs-protonet-conv4")
        >>> network.embed(fscl.load_glyphs().test.of_class(0)).shape
        torch.Size([20, 128])

    Attributes:
        spec: the shape, for the record.
        params: the weights that a learner may move (θ^e in the TSC paper); none if the network is frozen.
        statistics: what BatchNorm normalises with at prediction, frozen from the training classes.
        extras: tensors that a base carries beside its weights, by name, such as statistics of its training classes.
    """

    spec: BaseModel
    params: Params
    statistics: Statistics | None = None
    extras: Params = field(default_factory=dict)

    # what it is

    @property
    @abstractmethod
    def n_features(self) -> int:
        """How many numbers an image becomes."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The type of the weights, and so of all arithmetic."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the weights are, and so where all arithmetic is done."""

    @property
    @abstractmethod
    def picture_shape(self) -> tuple[int, int] | None:
        """Channels and side of the pictures that it looks at; None where its inputs are no pictures."""

    @property
    def image_size(self) -> int | None:
        """The side that images must have; None where any will do."""
        return None

    @property
    def fixed(self) -> Params:
        """Weights that no learner can move."""
        return {}

    @property
    def needs_statistics(self) -> bool:
        """Whether it has BatchNorm layers that must be given frozen statistics before it can predict."""
        return False

    @property
    def n_stages(self) -> int:
        """How many stages it can be split between; 0 where there is nothing to split."""
        return 0

    @property
    def inputs_are_cheap(self) -> bool:
        """Whether `to_input` costs next to nothing; where it runs frozen stages, images are not varied in each step."""
        return True

    @property
    def is_meta_trained(self) -> bool:
        """Whether it was meta-trained here, on classes that are known."""
        return False

    @property
    def seen(self) -> str | None:
        """Data that the weights were trained on elsewhere, so that tables can say so."""
        return None

    # evaluating it

    @abstractmethod
    def to_input(self, images: Tensor) -> Tensor:
        """Images as the network wants them: floats, scaled, on its device. Says so if they do not fit."""

    @abstractmethod
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

    def featurer(self, x: Tensor) -> Featurer:
        """`features` of these inputs, made ready for training steps: the same up to rounding, and differentiable once."""
        return lambda params, statistics: self.features(x, params, statistics=statistics)

    def embed(
        self, images: Tensor, params: Mapping[str, Tensor] | None = None, *, statistics: Statistics | None = None
    ) -> Tensor:
        """Features of images for prediction: in batches, without gradients, each image alone.

        BatchNorm uses `statistics`, or else those that the network carries.
        """
        with torch.no_grad():
            inputs = (self.to_input(piece) for piece in self.in_turn(images))
            parts = [self.embed_inputs(x, params, statistics=statistics) for x in inputs]
        return torch.cat(parts) if parts else torch.zeros(0, self.n_features, device=self.device)

    def embed_inputs(
        self, x: Tensor, params: Mapping[str, Tensor] | None = None, *, statistics: Statistics | None = None
    ) -> Tensor:
        """What `embed` makes of the images of which these are the network inputs."""
        frozen = self.statistics if statistics is None else statistics
        if frozen is None and self.needs_statistics:
            raise DataError("a network with BatchNorm needs frozen statistics to predict with; see freeze_statistics.")
        with torch.no_grad():
            parts = [self.features(piece, params, statistics=frozen) for piece in self.in_turn(x)]
        return torch.cat(parts) if parts else torch.zeros(0, self.n_features, device=self.device)

    def in_turn(self, images: Tensor) -> Sequence[Tensor]:
        """`pieces` of images; in an exported graph, which has no loop, all of them at once."""
        return (images,) if torch.compiler.is_compiling() else self.pieces(images)

    def pieces(self, images: Tensor) -> Sequence[Tensor]:
        """Images as they pass through the network at prediction: as many together as is fast and needs little memory."""
        return list(images.split(PREDICT_BATCH))

    def freeze_statistics(self, x: Tensor, params: Mapping[str, Tensor] | None = None) -> Statistics | None:
        """The BatchNorm statistics of inputs `x`, to predict with from now on; None for networks that need none."""
        if not self.needs_statistics:
            return None
        record: Statistics = {}
        with torch.no_grad():
            self.features(x, params, record=record)
        return record

    # making another of it

    @abstractmethod
    def to(self, device: torch.device | str) -> Self:
        """The same network on a device; what is made from it works there."""

    @abstractmethod
    def with_weights(self, params: Params, statistics: Statistics | None = None) -> Self:
        """The same network with other weights; the original is left unchanged."""

    def extra(self, name: str, what_for: str) -> Tensor:
        """One of the `extras`, or an error that says what needs it and how a base comes by it."""
        if name not in self.extras:
            carried = ", ".join(sorted(self.extras)) or "nothing"
            raise MisuseError(
                f"{what_for} needs {name!r} from the base, and this one carries {carried}. Take a base that has it: "
                "`fscl bases` lists what each carries, and `fscl train` adds statistics of the training classes."
            )
        return self.extras[name]

    def randomised(self, generator: torch.Generator) -> Self:
        """A network of the same shape with fresh random weights."""
        raise MisuseError(
            f"{self!r} cannot start from random weights, which is what the method 'naive' (start = \"random\") asks for; "
            "leave it out."
        )

    def starting_weights(self) -> Params:
        """Weights that meta-training can start from; only a network that was meta-trained here has them."""
        raise MisuseError(f"{self!r} was not meta-trained here, so no training starts from it; take it as it is.")

    def split(self, depth: int) -> "tuple[Trunk, Network]":
        """The first `depth` stages as a frozen trunk, and the rest as a network on its activations."""
        raise MisuseError(
            f"{self!r} has no stages to split between; use a base that has, or move all of it or nothing."
        )

    def movable(self, depth: int) -> "Network":
        """The same network with weights to move from stage `depth` on; the stages before are frozen, part of `to_input`."""
        raise MisuseError(
            f"{self!r} has no stages of which some could be frozen; use a base that has, or move all of it or nothing."
        )

    # keeping it

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the network by name."""

    @abstractmethod
    def save(self, path: Path, details: Mapping[str, Any] | None = None) -> None:
        """Write the network as one safetensors file; `details` is any JSON value that says where it comes from."""

    def __repr__(self) -> str:
        weights = sum(tensor.numel() for tensor in self.params.values())
        return f"<{type(self).__name__}: {self._shape()}, {self.n_features} features, {weights:,} weights to move>"

    @abstractmethod
    def _shape(self) -> str:
        """What it is in a few words, for its repr."""


@dataclass(frozen=True, eq=False)
class Trunk:
    """The first stages of a network, frozen: images to activations, which a tail takes as its inputs."""

    whole: Network
    depth: int
    run: Callable[[Tensor, int | None], Tensor] = field(repr=False)

    def activations(self, images: Tensor, *, image_size: int | None = None) -> Tensor:
        """What the trunk makes of images, (n, channels, height, width): in batches, without gradients, each image alone.

        With `image_size` they are brought to that side instead of the network's own: smaller ones take less time, here and
        in the tail. A network that takes only one size refuses any other.
        """
        only = self.whole.image_size
        if image_size is not None and only not in (None, image_size):
            raise MisuseError(
                f"{self.whole!r} takes images of {only}×{only} only, so image_size cannot be {image_size}."
            )
        pieces = self.whole.in_turn(images)
        with torch.no_grad():
            return torch.cat([self.run(self.whole.to_input(piece), image_size) for piece in pieces])


def with_prefix(prefixes: tuple[str, ...], tensors: Mapping[str, Tensor]) -> Params:
    """The tensors of some layers: those whose names begin with one of the prefixes."""
    return {name: tensor for name, tensor in tensors.items() if name.startswith(prefixes)}


def named(**groups: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    """Tensors of several groups in one dict, as `group/name`."""
    return {f"{group}/{name}": tensor for group, tensors in groups.items() for name, tensor in (tensors or {}).items()}


def grouped(tensors: Mapping[str, Tensor], *groups: str) -> list[Params]:
    """What `named` put together, a dict a group; tensors of other groups are left out."""
    return [
        {name.removeprefix(f"{group}/"): tensor for name, tensor in tensors.items() if name.startswith(f"{group}/")}
        for group in groups
    ]
