"""What is kept of a picture beside itself: the frozen stages' activations, of the whole picture and of some crops.

They depend on the picture, the base and the seed alone, so that they are computed once, kept in half precision, and could be
computed again from the picture if they were lost.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fscl.continual.tail.settings import TailSettings
from fscl.data.augment import Variation, jittered, varied
from fscl.nets.network import Network, Trunk
from fscl.nets.params import Params
from fscl.rng import generator

MOVING_SHARE = 0.39  # of the stages: the last 6 blocks and the top of EfficientNet-Lite0
CROP = 0.4  # of the side that a crop may lack
CROP_SCALE = 5 / 7  # of the picture's side: objects in a crop look as large as in the whole picture
GRAIN = 32  # pixels; what most networks divide a side by
PIECE = (
    16  # pictures that pass trunk or tail together, always: torch takes other routines for fewer, with other last bits
)


@dataclass(frozen=True, eq=False)
class Body:
    """A network taken apart: what stands still, and what may move. Without a tail all of it stands still."""

    network: Network
    trunk: Trunk | None
    tail: Network | None

    @classmethod
    def of(cls, network: Network, settings: TailSettings) -> "Body":
        """Split where the settings say; a network that cannot be split stays whole."""
        blind = network.needs_statistics and network.statistics is None
        if network.n_stages < 2 or network.picture_shape is None or blind:
            return cls(network, None, None)
        depth = settings.depth
        if depth == "auto":
            depth = network.n_stages - max(1, round(MOVING_SHARE * network.n_stages))
        return cls(network, *network.split(depth))

    @property
    def base(self) -> Params:
        """The weights that may move, as the base has them."""
        return {} if self.tail is None else self.tail.params

    @cached_property
    def crop_size(self) -> int | None:
        """The side of crops; None where a network takes pictures of one size, which are then jittered instead."""
        if self.network.image_size is not None or self.network.picture_shape is None:
            return None
        return max(GRAIN, round(self.network.picture_shape[1] * CROP_SCALE / GRAIN) * GRAIN)

    def codes(self, images: Tensor, settings: TailSettings, *, seed: int) -> Params:
        """Rows for each picture: "base" features, and where there is a tail "whole" and "crops" (n, views, …)."""
        if self.trunk is None or self.tail is None:
            rows = self.network.picture_shape is None
            return {"base": (self.network.embed(images) if rows else _in_pieces(self.network.embed, images)).cpu()}
        whole = _in_pieces(self.trunk.activations, images).half().cpu()
        crops = torch.cat([self._crops(piece, settings, seed=seed) for piece in images.split(PIECE)])
        return {"base": self.features(whole, self.base), "whole": whole, "crops": crops}

    def _crops(self, images: Tensor, settings: TailSettings, *, seed: int) -> Tensor:
        """Activations (n, views, …) of crops."""
        assert self.trunk is not None
        changed = []
        for image in images:
            one, name = image[None], content(image)
            for number in range(settings.views):
                random = generator(seed, "view", number, name)
                if self.crop_size is None:
                    changed.append(jittered(varied(one, Variation(flip=settings.mirror), random), 1.0, random))
                else:
                    changed.append(varied(one, Variation(flip=settings.mirror, crop=CROP), random))
        run = partial(self.trunk.activations, image_size=self.crop_size)
        crops = _in_pieces(run, torch.cat(changed)).half().cpu()
        return crops.view(len(images), settings.views, *crops.shape[1:])

    def features(self, codes: Tensor, params: Params) -> Tensor:
        """The tail's features of activations, to answer or to judge with; on the CPU."""
        tail = self.tail
        assert tail is not None
        with torch.no_grad():
            return _in_pieces(
                lambda piece: tail.features(tail.to_input(piece), params, statistics=tail.statistics), codes
            ).cpu()

    def cost(self, codes: Tensor) -> float:
        """Multiply-adds of the tail for one picture with activations of this shape."""
        if self.tail is None:
            return 0.0
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            self.tail.features(self.tail.to_input(codes[:1]), statistics=self.tail.statistics)
        return float(counter.get_total_flops()) / 2


def _in_pieces(run: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """`run` on pieces of one size, the last one filled up, so that what it makes of a row depends on that row alone."""
    missing = -len(rows) % PIECE
    filled = torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])])
    return torch.cat([run(piece) for piece in filled.split(PIECE)])[: len(rows)]


def content(image: Tensor) -> str:
    """A picture by its pixels."""
    return hashlib.sha256(image.cpu().contiguous().numpy().tobytes()).hexdigest()


def rounded(base: Params, weights: Params) -> Params:
    """Weights whose difference to the base's fits into half precision, as a stored state has it."""
    return onto_base(from_base(weights, base), base)


def from_base(weights: Params, base: Params) -> Params:
    """What weights add to the base's, in half precision."""
    return {name: (tensor - base[name]).half() for name, tensor in weights.items()}


def onto_base(differences: Params, base: Params) -> Params:
    """The base's weights with what was added to them, if anything was."""
    if not differences:
        return base
    return laid_out_as(base, {name: tensor + differences[name].to(tensor) for name, tensor in base.items()})


def laid_out_as(base: Params, tensors: Params) -> Params:
    """In the base's order in memory, which a file does not keep: sums in another order have other last bits."""
    return {name: torch.empty_like(base[name]).copy_(tensor) for name, tensor in tensors.items()}
