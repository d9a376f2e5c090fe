"""Fast weights are values: a dict of tensors that functions take and return. Nothing here changes its arguments."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fscl.nets.work import current_work

Params = dict[str, Tensor]


def trainable_copy(params: Mapping[str, Tensor]) -> Params:
    """Fresh leaf tensors with the same values, ready for an optimiser; the originals are never touched."""
    return {name: tensor.detach().clone().requires_grad_() for name, tensor in params.items()}


def frozen_copy(params: Mapping[str, Tensor]) -> Params:
    """Copies without gradients."""
    return {name: tensor.detach().clone() for name, tensor in params.items()}


def in_layout(params: Mapping[str, Tensor]) -> Params:
    """Filters in channels-last order, which convolutions on a CPU run faster on.

    Weights that come from a file need this: another order gives other last bits. (`contiguous` would leave filters of one
    input channel as they are, and the whole network would then run in the slow order.)
    """
    return {
        name: tensor.to(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor
        for name, tensor in params.items()
    }


def placed(params: Mapping[str, Tensor], device: torch.device) -> Params:
    """On a device; tensors that are there already are not copied."""
    return {name: tensor.to(device) for name, tensor in params.items()}


def gradient_step(params: Mapping[str, Tensor], grads: Sequence[Tensor], rate: float) -> Params:
    """One step of gradient descent, as new tensors that remember how they were made."""
    return {name: tensor - rate * grad for (name, tensor), grad in zip(params.items(), grads, strict=True)}


def interpolate(start: Mapping[str, Tensor], end: Mapping[str, Tensor], rate: float) -> Params:
    """start + rate · (end - start); exactly `start` at 0 and exactly `end` at 1."""
    return {name: torch.lerp(tensor, end[name].detach(), rate) for name, tensor in start.items()}


def relative_distance(params: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> float:
    """How far weights are from where they started, as a share of the length of all of them there."""
    far, long = (
        math.hypot(*(float(torch.linalg.vector_norm(tensor.detach())) for tensor in tensors))
        for tensors in ((params[name] - tensor for name, tensor in start.items()), start.values())
    )
    return far / long if long else 0.0


def grow_head(head: Mapping[str, Tensor], n_rows: int, generators: Sequence[torch.Generator]) -> Params:
    """A linear head with one more row for each generator, up to `n_rows`; the old rows stay as they are.

    A new row is drawn as `torch.nn.Linear` draws it: uniform within ±1/√n_features, weight and bias alike.
    """
    n_features = head["weight"].shape[1]
    bound = n_features**-0.5
    missing = range(len(head["weight"]), n_rows)
    drawn = [torch.rand(n_features + 1, generator=generators[row]) * (2 * bound) - bound for row in missing]
    if not drawn:
        return frozen_copy(head)
    rows = torch.stack(drawn).to(head["weight"])  # drawn on the CPU, so that they are the same on any device
    return {
        "weight": torch.cat([head["weight"].detach(), rows[:, :-1]]),
        "bias": torch.cat([head["bias"].detach(), rows[:, -1]]),
    }


def empty_head(n_features: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> Params:
    """A linear head without rows."""
    weight = torch.zeros(0, n_features, dtype=dtype, device=device)
    return {"weight": weight, "bias": weight.new_zeros(0)}


def linear(head: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """Scores (n, n_rows) of features (n, n_features)."""
    work = current_work()
    if work is not None:
        trained = torch.is_grad_enabled() and (head["weight"].requires_grad, features.requires_grad)
        work.add(features.numel() * len(head["weight"]) * (1 + sum(trained or ())))
    return torch.nn.functional.linear(features, head["weight"], head["bias"])


def class_sums(features: Tensor, labels: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Sums (n_classes, n_features) and counts (n_classes,) of features by label; their ratio is the class means."""
    sums = features.new_zeros(n_classes, features.shape[1]).index_add(0, labels, features)
    return sums, torch.bincount(labels, minlength=n_classes)


def signed_root(features: Tensor) -> Tensor:
    """Square roots, with the sign kept: features after a rectifier are skewed, and their roots are less so."""
    return features.sign() * features.abs().sqrt()
