"""Whether what was read is a state at all. A seal proves that nothing was altered by accident, not that it makes sense."""

import math
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import Tensor

from fscl.classifier.knowledge import Calibration, Event, Knowledge
from fscl.continual.learner import LearnerState
from fscl.data.pool import Examples
from fscl.errors import StorageError
from fscl.nets.network import Network

ROWS = 2  # dimensions of features
N_SCALES = 4
_CALIBRATION, _EVENTS = TypeAdapter(Calibration), TypeAdapter(tuple[Event, ...])


def read_labels(stored: Any, n_classes: int) -> Tensor:
    """Numbers of classes."""
    numbers = list(stored)
    if any(type(number) is not int or not 0 <= number < n_classes for number in numbers):
        raise ValueError(f"its labels are not numbers of its {n_classes} classes")
    return torch.tensor(numbers, dtype=torch.int64)


def read_calibration(stored: dict[str, Any], *, tells_unknown: bool) -> Calibration:
    """A threshold of an earlier version, of a distance, is left out."""
    found = _CALIBRATION.validate_python({**stored, "threshold": stored["threshold"] if tells_unknown else None})
    numbers = [found.temperature, found.accuracy, found.threshold, *found.per_class, *(found.interval or ())]
    if not all(number is None or math.isfinite(number) for number in numbers) or found.temperature <= 0:
        raise ValueError("its calibration has numbers that cannot be")
    return found


def read_history(stored: Any) -> tuple[Event, ...]:
    """The calls so far."""
    return _EVENTS.validate_python(stored)


def check_whole(knowledge: Knowledge, state: LearnerState | None, *, row_width: int | None) -> None:
    """Refuse a state whose parts do not fit together."""
    examples = knowledge.examples or Examples(torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    n, n_classes = len(examples.images), len(knowledge.classes)
    if (state is None) != (n_classes == 0):
        raise ValueError("its learner is missing")
    if len(set(knowledge.classes)) != n_classes or len(knowledge.calibration.per_class) != n_classes:
        raise ValueError("its classes do not fit")
    features = (knowledge.features, knowledge.base_features)
    if not all(len(each) == n for each in (examples.labels, knowledge.sources, *features)):
        raise ValueError("its examples and labels do not fit")
    for each in (*features, *([examples.images] if row_width is not None and n else [])):
        if each.ndim != ROWS or not each.is_floating_point() or not bool(torch.isfinite(each).all()):
            raise ValueError("its features are not rows of finite numbers")
        if row_width is None and n and each.dtype != torch.float32:
            raise ValueError(f"its features are {each.dtype} and not torch.float32")
    if row_width is not None and n and examples.images.shape[1] != row_width:
        raise ValueError(f"its rows have {examples.images.shape[1]} numbers, and those of the model {row_width}")
    for position, likelier, _ in knowledge.calibration.doubts:
        if not (0 <= position < n and 0 <= likelier < n_classes):
            raise ValueError("its doubts are of examples that it does not have")


def check_lesson(examples: Tensor, network: Network) -> None:
    """Refuse a lesson that is not of what a network takes."""
    shape = network.picture_shape
    if shape is None:
        fits = examples.ndim == ROWS and examples.dtype == torch.float64 and examples.shape[1] == network.n_features
        fits = fits and bool(torch.isfinite(examples).all())
    else:
        channels, size = shape
        fits = examples.dtype == torch.uint8 and examples.shape[1:] == (channels, size, size)
    if not fits:
        raise StorageError(
            f"it has examples of {examples.dtype} and {tuple(examples.shape)}, which the model does not take."
        )


def check_scales(scales: Tensor | None) -> None:
    """Refuse what cannot scale the score of unknown."""
    if scales is None:
        return
    if scales.shape != (N_SCALES,) or scales.dtype != torch.float32 or not bool(torch.isfinite(scales).all()):
        raise ValueError("its score of unknown does not fit")


def check_unknown(tensors: dict[str, Tensor], knowledge: Knowledge) -> None:
    """Refuse what the score of unknown cannot be computed with."""
    features = knowledge.base_features if knowledge.calibration.unknown_in_base else knowledge.features
    d, n = features.shape[1], tensors["offsets"].shape[0]
    shapes: dict[str, tuple[int, ...]] = {
        "centre": (d,),
        "exponent": (),
        "normals": (d, n),
        "offsets": (n,),
        "population": (),
        "population_directions": (d, tensors["population_directions"].shape[-1]),
        "scales": (N_SCALES,),
        "within": (),
        "within_directions": (d, tensors["within_directions"].shape[-1]),
    }
    fits = tensors.keys() == shapes.keys() and all(tensors[name].shape == shape for name, shape in shapes.items())
    if not fits or not all(
        each.dtype == torch.float32 and bool(torch.isfinite(each).all()) for each in tensors.values()
    ):
        raise ValueError("its score of unknown does not fit")
