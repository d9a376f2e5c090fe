"""What a continual learner is.

`learn_task` sees a support set and nothing else: no query images, no task label. `predict` scores every class seen so far
and changes nothing. The base network is a value that no learner can change.

A method is one file with a class like this one (`docs/tutorials/adding-a-method.md`). What others ask of it, it answers for
itself: everything below that is not abstract has a default that is right for a method without anything special.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fscl.continual.held_out import HeldOut
from fscl.data.pool import Examples
from fscl.data.stream import StreamSpec
from fscl.errors import DataError, StorageError
from fscl.nets.network import Network
from fscl.nets.params import Params


@dataclass(frozen=True)
class RunConditions:
    """What a run asks of every method, each in its own way.

    Attributes:
        early_stop: stop moving the embedding once a task is fitted (`run.preset = "quick"`).
        classes_return: tasks bring new instances of known classes.
        autocast: move embeddings in bfloat16 where torch thinks it safe.
    """

    early_stop: bool = False
    classes_return: bool = False
    autocast: bool = False


class LearnerSettings(BaseModel):
    """The settings of a method: its configuration schema. A subclass adds fields with defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def for_run(self, conditions: RunConditions) -> Self:
        """As a run under these conditions uses them, unless it sets them otherwise."""
        return self

    def for_classifier(self, *, n_new: int, memory_bytes: int | None) -> Self:
        """As the classifier uses them, unless they are set otherwise: quick, and within a bound on the stored examples.

        `n_new` examples have to be learned at once.
        """
        return self


@dataclass(frozen=True)
class LearnerState:
    """All that a learner has learned. Enough to go on as if never interrupted.

    Attributes:
        tensors: by name.
        details: a JSON value.
        examples: those that it was taught and keeps to replay, apart from the rest, so that whoever stores examples anyway
            stores them once; None where it keeps none. Generated images are no examples, and are among the `tensors`.
        cached: what can be computed again from each of the examples, a row each, by name; it may be left out, and costs
            time then.
    """

    tensors: dict[str, Tensor]
    details: dict[str, Any]
    examples: Examples | None = None
    cached: Mapping[str, Tensor] | None = None

    def __repr__(self) -> str:
        return f"<LearnerState: {len(self.tensors)} tensors, {n_bytes(self.tensors.values()):,} bytes>"


@dataclass(frozen=True)
class Remembered:
    """The examples that a learner keeps to replay, in the order in which they were taught.

    Attributes:
        examples: the same as in its state.
        kept: their positions in what was remembered before the last task, followed by the task's own examples.
        features: of each, as `features` would give, where the learner has them at hand.
        base_features: of each, by weights that have not learned from it, likewise.
    """

    examples: Examples
    kept: Tensor
    features: Tensor | None = None
    base_features: Tensor | None = None


@dataclass(frozen=True)
class HeldWeights:
    """How firmly each weight of the embedding is held: `strength` times `values`, which measure `measure`."""

    measure: str
    strength: float
    values: Params


@dataclass(frozen=True)
class Waypoint:
    """A state that a learner passes through while it learns a task: after so many steps, a network and a linear head."""

    step: int
    network: Network
    head: Params


class ContinualLearner(ABC):
    """Learns tasks one after another. Labels are integers, numbered from 0 in order of arrival.

    Examples:
        >>> import fscl
        >>> pool = fscl.load_glyphs().test
        >>> stream = fscl.sample_stream(pool, fscl.StreamSpec(n_tasks=2), fscl.generator(0, "my stream"))
        >>> learner = fscl.make_learner("prototypes", fscl.load_base("glyphs-protonet-conv4"))
        >>> for number in range(len(stream)):
        ...     learner.learn_task(stream.task(pool, number).support)
        >>> learner.n_classes
        10

    Args:
        network: what it starts from; a value that the learner cannot change.
        settings: an instance of its own `Settings`.
        seed: of every random number.
    """

    class Settings(LearnerSettings):
        """None."""

    def __init__(self, network: Network, settings: LearnerSettings, *, seed: int) -> None:
        self.network = network
        self.settings = settings
        self.seed = seed
        self.name = type(self).__name__  # the name that it goes by in a run, once `make_learner` has set it

    # learning and answering

    @property
    @abstractmethod
    def n_classes(self) -> int:
        """How many classes can be predicted: the largest label learned so far, plus one."""

    @abstractmethod
    def learn_task(self, support: Examples) -> None:
        """Learn one more task, keeping what earlier tasks taught; or raise, and be as before.

        `support` is neither changed nor kept by reference, and may be on the CPU or on the learner's device.
        """

    def features(self, images: Tensor) -> Tensor:
        """What it answers from, (n, n_features): each image alone, on the learner's device."""
        return self.network.embed(images)

    @abstractmethod
    def scores(self, features: Tensor) -> Tensor:
        """Scores (n, n_classes) of what `features` gave; the largest wins. Tensor operations alone, so that an exported
        graph can hold them."""

    @final
    def predict(self, images: Tensor) -> Tensor:
        """Scores (n, n_classes) of images: `scores(features(images))`."""
        self.check_can_predict()
        return self.scores(self.features(images))

    @final
    def predict_together(self, images: Tensor) -> Tensor:
        """Scores of images that BatchNorm normalises by their own statistics: transductive, for comparison with papers."""
        self.check_can_predict()
        return self.scores(self.features_together(images) if self.network.needs_statistics else self.features(images))

    def features_together(self, images: Tensor) -> Tensor:
        """`features` of images that are normalised together, by a network that has BatchNorm."""
        statistics = self.network.freeze_statistics(self.network.to_input(images))
        return self.network.embed(images, statistics=statistics)

    def starting_point(self) -> Network:
        """The network that the next task would start from: what learning so far has made of the base."""
        return self.network

    @property
    def moves_embedding(self) -> bool:
        """Whether `features` changes with what is learned."""
        return False

    # keeping and forgetting

    @abstractmethod
    def state(self) -> LearnerState:
        """A copy of everything learned."""

    @abstractmethod
    def restore(self, state: LearnerState) -> None:
        """Go back to a state of a learner with the same settings and network; it may come from another device."""

    def reuse(self, state: LearnerState) -> None:
        """Take over what a state has computed of its examples, for when they are taught again; nothing is learned."""
        return

    def fresh(self) -> Self:
        """A learner like this one that has learned nothing."""
        made = type(self)(self.network, self.settings, seed=self.seed)
        made.name = self.name
        return made

    def without_class(self, label: int) -> bool:
        """Remove a class, so that nothing of it is left; classes above it move down by one.

        False where what was learned of classes is mixed: nothing is changed then, and the others must be taught again.
        """
        return False

    def remembered(self) -> Remembered | None:
        """The examples that it was taught and keeps to replay; None where it keeps none, or makes up its own."""
        return None

    # answers about itself

    def diagnostics(self) -> dict[str, float]:
        """Numbers about how the last task was learned, for the record."""
        return {}

    def stored_bytes(self) -> dict[str, int]:
        """What is kept from task to task, by kind: "weights" to answer with, and where a method has them "memory" (of
        examples) and "importance" (of weights)."""
        state = self.state()
        held = {"weights": n_bytes(state.tensors.values())}
        if state.examples is not None:
            held["memory"] = n_bytes([state.examples.images, state.examples.labels])
        return held

    def held_out_scores(self, features: Tensor, base_features: Tensor, labels: Tensor) -> HeldOut | None:
        """Scores of examples that were learned, each as if it had been left out; None where there is no cheap exact way.

        Args:
            features: of the examples, as the learner sees them.
            base_features: by weights that have not learned from them; the same where the embedding stands still.
            labels: their classes.
        """
        return None

    def check_stream(self, stream: StreamSpec) -> None:
        """Refuse a stream that it could not learn to the end, before anything is learned."""
        return

    def work(self, stream: StreamSpec, number: int) -> float:
        """About how many images pass through the network to learn and test one task; a backward pass counts as two."""
        queries = sum(stream.task_sizes[: number + 1]) * stream.n_query
        return stream.task_sizes[number] * stream.shots(number) + queries

    def artefacts(self, shots: Examples) -> dict[str, bytes]:
        """Files for the report by name, such as pictures; `shots` are all that were learned, to be shown beside them."""
        return {}

    def held_weights(self) -> HeldWeights | None:
        """How firmly a regulariser holds each weight of the embedding; None where nothing is held."""
        return None

    def course(self, support: Examples, steps: Sequence[int]) -> Iterator[Waypoint]:
        """The states that a fresh learner like this passes through while it learns a first task, after so many steps."""
        return iter(())

    def export_obstacle(self) -> str | None:
        """Why its answers cannot be one exported graph, and the way out; None if they can."""
        return None

    # help for subclasses

    def check_support(self, support: Examples) -> None:
        """Refuse what cannot be learned, before anything changes."""
        if len(support) == 0:
            raise DataError("a task needs at least one example, and this one has none.")
        if support.labels.dtype != torch.int64:
            raise DataError(f"labels are int64, but these are {support.labels.dtype}. Convert them with labels.long().")
        if len(support.images) != len(support.labels):
            raise DataError(
                f"a task needs one label an image, but has {len(support.images)} and {len(support.labels)}."
            )
        labels = set(support.labels.tolist())
        new = sorted(label for label in labels if label >= self.n_classes)
        if min(labels) < 0 or new != list(range(self.n_classes, self.n_classes + len(new))):
            raise DataError(
                f"labels are numbered from 0 in order of arrival: the next new one is {self.n_classes}, but the task has "
                f"{sorted(labels)}."
            )

    def check_can_predict(self) -> None:
        """Refuse to answer before anything was learned."""
        if self.n_classes == 0:
            raise DataError("nothing was learned yet, so there is nothing to predict; call learn_task first.")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {self.n_classes} classes learned>"


def n_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of tensors together; memory that two of them share counts once."""
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())


def expect_keys(tensors: dict[str, Tensor], keys: set[str], what: str) -> None:
    """Refuse a state that belongs to another learner."""
    if tensors.keys() != keys:
        wrong = sorted(tensors.keys() ^ keys)
        raise StorageError(f"this state is not one of {what}: {wrong[0]!r} is missing or too many.")


def without_row(tensor: Tensor, label: int) -> Tensor:
    """Without the row of a class; the rows after it move up."""
    return torch.cat([tensor[:label], tensor[label + 1 :]])


def renumbered(labels: Tensor, gone: int) -> Tensor:
    """Labels once a class is gone: those above it move down by one."""
    return labels - (labels > gone).long()
