"""The replay memory: what is kept of earlier tasks, as uint8 images, within bounds that are never exceeded.

Four kinds: all shots; shots within bounds; images that a small GAN makes up in their place (generator.py); nothing.
"""

from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from fscl.continual.generator import GeneratorSpec, generate, parameter_counts
from fscl.continual.learner import Remembered
from fscl.continual.parts import Part, as_section
from fscl.data.contact_sheet import contact_sheet
from fscl.data.pool import Examples
from fscl.nets.network import Network
from fscl.nets.params import Params, class_sums
from fscl.rng import child_seed

LABEL_BYTES = torch.int64.itemsize
MAX_ROWS = 10  # classes on one sheet
GAP = 4  # pixels between its images
Bound = Annotated[int, Field(ge=0)] | Literal["all"]


class _Kind(Part):
    """What the kinds of memory share.

    Attributes:
        always: replay also where tasks bring new instances of known classes. As in the TSC paper those are learned without
            replay, unless replay is what a method is.
    """

    always: bool = False

    keeps_shots: ClassVar[bool] = True

    def check(self, network: Network) -> None:
        """Refuse a network whose images cannot be kept so."""
        return

    def empty(self) -> "ReplayMemory":
        """A memory of this kind that holds nothing."""
        return ReplayMemory()

    def per_class_of(self, n_shots: int) -> int:
        """How many images of a class of so many shots are kept, where no other bound is met."""
        return n_shots

    def remembered(self, support: Examples, *, seed: int, n_tasks: int) -> Examples:
        """What is to be kept of a task, before any bound."""
        return support

    def pictures(self, shots: Examples, memory: "ReplayMemory") -> dict[str, bytes]:
        """Files for the report."""
        return {}


class AllShots(_Kind):
    """Every shot of every task."""

    kind: Literal["shots"] = "shots"

    def within(self, n_bytes: int) -> "BoundedShots":
        """The same within a bound."""
        return BoundedShots(bytes=n_bytes, always=self.always)


class _Bounded(_Kind):
    """What is kept within bounds: the first images of each class, as many of every class as there is room for.

    Attributes:
        per_class: images of one class at most.
        images: images in all at most.
        bytes: bytes of images and labels at most.
    """

    per_class: Bound = "all"
    images: Bound = "all"
    bytes: Bound = "all"

    def empty(self) -> "ReplayMemory":
        return ReplayMemory(_limit(self.per_class), _limit(self.images), _limit(self.bytes))

    def per_class_of(self, n_shots: int) -> int:
        return n_shots if self.per_class == "all" else min(n_shots, self.per_class)

    def within(self, n_bytes: int) -> Self:
        """The same within another bound."""
        return self.model_copy(update={"bytes": n_bytes})


class BoundedShots(_Bounded):
    """Shots within bounds."""

    kind: Literal["bounded"] = "bounded"


class GeneratedImages(_Bounded):
    """Images that a generator of each class leaves behind, instead of its shots; within bounds likewise."""

    kind: Literal["generated"] = "generated"
    generator: GeneratorSpec = GeneratorSpec()

    keeps_shots: ClassVar[bool] = False

    def check(self, network: Network) -> None:
        if network.image_size is not None and network.picture_shape is not None:
            parameter_counts(self.generator, *network.picture_shape)  # refuses what does not fit

    def empty(self) -> "ReplayMemory":
        made = self.generator.images_per_class  # a class that comes again does not leave as many behind again
        per_class = made if self.per_class == "all" else min(self.per_class, made)
        return ReplayMemory(per_class, _limit(self.images), _limit(self.bytes), generated=True)

    def remembered(self, support: Examples, *, seed: int, n_tasks: int) -> Examples:
        if self.empty().keeps_nothing:
            return support
        labels = torch.unique(support.labels)
        made = [
            generate(
                support.images[support.labels == label],
                self.generator,
                seed=child_seed(seed, "generated", int(label), n_tasks),
            )
            for label in labels
        ]
        return Examples(torch.cat(made), labels.repeat_interleave(len(made[0])))

    def pictures(self, shots: Examples, memory: "ReplayMemory") -> dict[str, bytes]:
        """A sheet: in each row the shots of a class, and beside them the images generated from them."""
        if memory.stored is None:
            return {}
        sides = shots.to("cpu"), memory.stored.to("cpu")
        both = sorted(set(sides[0].labels.tolist()) & set(sides[1].labels.tolist()))[:MAX_ROWS]
        rows = [[side.images[side.labels == label] for side in sides] for label in both]
        return {"generated.png": contact_sheet(rows, gap=GAP, row_gap=GAP, group_gap=4 * GAP)}


class NoMemory(_Kind):
    """No replay."""

    kind: Literal["none"] = "none"

    def empty(self) -> "ReplayMemory":
        return ReplayMemory(0)

    def per_class_of(self, n_shots: int) -> int:
        return 0

    def within(self, n_bytes: int) -> "NoMemory":
        """Nothing is within any bound."""
        return self


AnyMemory = Annotated[
    Annotated[AllShots | BoundedShots | GeneratedImages | NoMemory, Field(discriminator="kind")],
    BeforeValidator(as_section),
]


class ReplayMemory:
    """Keeps the first images of each class, as many of every class as the bounds allow.

    Images stay on the device that they come on; labels are always on the CPU, where it is decided what is kept.

    Args:
        per_class: images of one class at most; all of them if None, nothing if 0.
        n_images: images in all at most.
        n_bytes: bytes of images and labels at most.
        generated: whether the images are made up, and so are no examples that anyone taught.
    """

    def __init__(
        self,
        per_class: int | None = None,
        n_images: int | None = None,
        n_bytes: int | None = None,
        *,
        generated: bool = False,
    ) -> None:
        self.per_class = per_class
        self.max_images = n_images
        self.max_bytes = n_bytes
        self.generated = generated
        self.stored: Examples | None = None
        self.kept = torch.zeros(0, dtype=torch.int64)  # what the last `add` returned

    def __len__(self) -> int:
        return 0 if self.stored is None else len(self.stored)

    @property
    def keeps_nothing(self) -> bool:
        return 0 in (self.per_class, self.max_images, self.max_bytes)

    @property
    def n_bytes(self) -> int:
        """Bytes of the images and labels held."""
        return 0 if self.stored is None else self.stored.images.nbytes + self.stored.labels.nbytes

    def with_new(self, support: Examples) -> Examples:
        """The replay set of a task: what is remembered, then what is new."""
        if self.stored is None:
            return support
        return Examples(
            torch.cat([self.stored.images, support.images]), torch.cat([self.stored.labels, support.labels])
        )

    def add(self, support: Examples) -> Tensor:
        """Remember a task, within the bounds; which images of `with_new(support)` are kept, as positions.

        Copies, so that the caller's tensors stay the caller's.
        """
        both = self.with_new(support)
        room = self._room(both.images[0].nbytes + LABEL_BYTES)
        if self.per_class == 0 or room == 0:
            return torch.zeros(0, dtype=torch.int64)
        kept = balanced(both.labels, self.per_class, room)
        self.stored, self.kept = Examples(both.images[kept], both.labels[kept]), kept
        return kept

    def remembered(self) -> Remembered | None:
        """The examples that are held, and which those of the last `add` were; None for generated images."""
        return None if self.stored is None or self.generated else Remembered(self.stored, self.kept)

    def without_class(self, label: int) -> None:
        """Drop the images of a class; classes above it move down by one."""
        if self.stored is None:
            return
        stay = self.stored.labels != label
        labels = self.stored.labels[stay]
        left = Examples(self.stored.images[stay.to(self.stored.images.device)], labels - (labels > label).long())
        self.hold(left if len(left) else None)

    def hold(self, examples: Examples | None) -> None:
        """Hold these from now on, not copied: what is held is replaced, and never changed in place."""
        self.stored = None if examples is None else Examples(examples.images, examples.labels.cpu())
        self.kept = torch.arange(len(self))

    @property
    def examples(self) -> Examples | None:
        """What is held and was taught."""
        return None if self.generated else self.stored

    def tensors(self) -> Params:
        """What is held and was not taught, by name, for storage."""
        if self.stored is None or not self.generated:
            return {}
        return {"images": self.stored.images.clone(), "labels": self.stored.labels.clone()}

    def restore(self, tensors: Params, examples: Examples | None) -> None:
        """Hold what `tensors` and `examples` returned."""
        if self.generated:
            examples = Examples(tensors["images"], tensors["labels"]) if tensors else None
        self.hold(examples)

    def _room(self, bytes_each: int) -> int | None:
        """How many images fit in all; None for any number."""
        rooms = [self.max_images, None if self.max_bytes is None else self.max_bytes // bytes_each]
        return min((room for room in rooms if room is not None), default=None)


def _limit(bound: int | Literal["all"]) -> int | None:
    return None if bound == "all" else bound


def balanced(labels: Tensor, per_class: int | None, room: int | None) -> Tensor:
    """Positions to keep, in order: the first image of every class, then the second of every class, and so on.

    Where the room ends within a round, the classes that came first have theirs.
    """
    turns = turns_of(labels)
    in_turn = torch.argsort(turns * (int(labels.max()) + 1) + labels, stable=True)
    if per_class is not None:
        in_turn = in_turn[turns[in_turn] < per_class]
    return in_turn[:room].sort().values


def within(room: int | Literal["all"], examples: Examples) -> Examples:
    """All examples, or where there is less room as many of every class as it has place for."""
    if room == "all" or len(examples) <= room:
        return examples
    kept = balanced(examples.labels, None, room)
    return Examples(examples.images[kept], examples.labels[kept])


def turns_of(labels: Tensor) -> Tensor:
    """Of each image, how many of its class come before it."""
    by_class = torch.argsort(labels, stable=True)
    counts = torch.bincount(labels)
    turns = torch.empty_like(labels)
    turns[by_class] = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[by_class]]
    return turns


def with_evicted(evicted: Params, features: Tensor, labels: Tensor, kept: Tensor) -> Params:
    """Of each class, how many shots were not kept and the sum of their features, with those of one more task.

    With them a class's mean is that of all its shots, the evicted ones as the embedding saw them when it let them go.
    """
    gone = torch.ones(len(labels), dtype=torch.bool, device=labels.device)
    gone[kept] = False
    if not bool(gone.any()):
        return evicted
    n_classes = len(evicted["counts"]) if evicted else int(labels.max()) + 1
    sums, counts = class_sums(features[gone], labels[gone], n_classes)
    if not evicted:
        return {"sums": sums, "counts": counts}
    return {"sums": sums + evicted["sums"], "counts": counts + evicted["counts"]}


def grown(evicted: Params, n_classes: int) -> Params:
    """With rows of nothing for classes that are new."""
    missing = n_classes - len(evicted["counts"]) if evicted else 0
    return {name: torch.cat([tensor, tensor.new_zeros(missing, *tensor.shape[1:])]) for name, tensor in evicted.items()}
