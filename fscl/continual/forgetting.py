"""Taking a class out of what a learner keeps: its rows go, and the classes after it move up.

Only where that is exact: heads, class means, stored shots and features. A method that has mixed classes in a shared sum (a
covariance, a Gram matrix) cannot unmix them, and has to learn the others again.
"""

import torch
from torch import Tensor

from fscl.continual.learner import LearnerState

BY_EXAMPLE = ({"features", "labels"}, {"memory/images", "memory/labels"})
BY_CLASS = ("slow_head/", "fast_head/", "lost/")


def state_without(state: LearnerState, label: int) -> LearnerState | None:
    """The state as if the class had no rows; None for a method that has to learn the others again."""
    tensors = dict(state.tensors)
    consolidation = "fast_head/bias" in tensors
    if not consolidation and tensors.keys() not in ({"sums", "counts"}, {"features", "labels"}):
        return None
    for names in BY_EXAMPLE:
        if names <= tensors.keys():
            values, labels = sorted(names)
            tensors |= _without_examples(tensors, values, labels, label)
    for name in tensors:
        if name.startswith(BY_CLASS) or name in ("sums", "counts"):
            tensors[name] = torch.cat([tensors[name][:label], tensors[name][label + 1 :]])
    if "memory/labels" in tensors and len(tensors["memory/labels"]) == 0:
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("memory/")}
    return LearnerState(tensors, dict(state.details))


def renumbered(labels: Tensor, gone: int) -> Tensor:
    """Labels once a class is gone: those above it move down by one."""
    return labels - (labels > gone).long()


def _without_examples(tensors: dict[str, Tensor], values: str, labels: str, gone: int) -> dict[str, Tensor]:
    stay = tensors[labels] != gone
    return {values: tensors[values][stay], labels: renumbered(tensors[labels][stay], gone)}
