"""The stages of a module from elsewhere: between them it is split, and from one of them on its weights may move.

A module has stages if parts of it, run one after another, give what it gives. They are found by following the order in which
its parts were registered, or named by whoever knows the module; either way the chain is run and compared with the module. A
part without filters (a norm, an activation, a pooling) belongs to the stage of the part before it.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from fscl.errors import MisuseError
from fscl.nets.params import in_layout

# of a module that is given what it cannot take
FAULTS = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, AssertionError)
ROUNDING = 1e-5  # of the largest feature: how far the chain may be from the module


class Stages(BaseModel):
    """How a module is made of its parts, for the record.

    Attributes:
        parts: their names in the order in which an image passes through them.
        averaged: whether the features are the means of the last part's maps, over space.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    parts: tuple[str, ...]
    averaged: bool


@dataclass(frozen=True)
class Chain:
    """What a `Staged` module knows of itself.

    Attributes:
        name: of the class that the module was of.
        stages: for each stage the names of its parts.
    """

    name: str
    record: Stages
    stages: tuple[tuple[str, ...], ...]


class Staged(nn.Module):
    """A module as a chain of stages: the same layers and weights under the same names, called one stage after another."""

    chain_: Chain  # the only name of its own: any other might be that of a part

    def __init__(self, module: nn.Module, record: Stages) -> None:
        super().__init__()
        self.chain_ = Chain(module._get_name(), record, _grouped(module, record.parts))
        self._parameters, self._buffers, self._modules = module._parameters, module._buffers, module._modules
        self._non_persistent_buffers_set = module._non_persistent_buffers_set
        for weights in self.parameters():  # in the order that a CPU runs faster on, as inputs are
            weights.data = in_layout({"": weights.data})[""]
        self.train(module.training)

    def forward(self, x: Tensor, first: int = 0, last: int | None = None) -> Tensor:
        """Features of images, or of what the stages before `first` made of them; with `last`, what those before it make."""
        for stage in self.chain_.stages[first:last]:
            x = x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x
            for part in stage:
                x = self.get_submodule(part)(x)
        return x.mean((2, 3)) if last is None and self.chain_.record.averaged else x

    def _get_name(self) -> str:
        return self.chain_.name


def stages_of(module: nn.Module) -> tuple[tuple[str, ...], ...]:
    """For each stage, what the names of its weights begin with; none if the module has no stages."""
    if not isinstance(module, Staged):  # whatever a module of somebody else's calls `stages` is not meant
        return ()
    return tuple(tuple(f"{part}." for part in stage) for stage in module.chain_.stages)


def staged(module: nn.Module, parts: Sequence[str] | None, x: Tensor, expected: Tensor) -> nn.Module:
    """The module as a chain of stages, if it is one.

    Args:
        parts: names of submodules in order; a list that does not make the module is refused. None has them found: a module
            that is no chain then stays as it is.
        x, expected: inputs, and what the module makes of them.
    """
    if parts is not None:
        return _as_named(module, tuple(parts), x, expected)
    found = tuple(_parts(module))
    if len(_grouped(module, found)) < 2:
        return module
    return _compared(module, found, x, expected)[0] or module


def _as_named(module: nn.Module, parts: tuple[str, ...], x: Tensor, expected: Tensor) -> nn.Module:
    known = dict(module.named_modules())
    for part in parts:
        if part not in known or not part:
            raise MisuseError(
                f"stages names {part!r}, but the module has no such part. Its own are {', '.join(_parts(module))}."
            )
    if len(_grouped(module, parts)) < 2:
        raise MisuseError(
            f"the stages {', '.join(parts) or '(none)'} leave nothing to split between: name two parts with filters or more."
        )
    chain, reason = _compared(module, parts, x, expected)
    if chain is None:
        raise MisuseError(
            f"run one after another, the stages {', '.join(parts)} do not give what the module gives: {reason}. Name every "
            "part that an image passes through, in order, or leave out stages."
        )
    return chain


def _compared(module: nn.Module, parts: tuple[str, ...], x: Tensor, expected: Tensor) -> tuple[Staged | None, str]:
    """The chain of parts if it gives what the module gives, or why not."""
    reason, own = "", deepcopy(module)  # a chain lays out its weights anew
    for averaged in (False, True):
        chain = Staged(own, Stages(parts=parts, averaged=averaged))
        try:
            with torch.no_grad():
                output = chain(x).flatten(1)
        except FAULTS as error:
            return None, reason or " ".join(str(error).split())
        if output.shape == expected.flatten(1).shape:
            difference = float((output - expected.flatten(1)).abs().max())
            if difference <= ROUNDING * float(expected.abs().max()):
                return chain, ""
            reason = f"features differ by up to {difference:.2g}"
        else:
            reason = reason or f"it has {expected[0].numel()} features and they make {output.shape[1]} numbers"
    return None, reason


def _parts(module: nn.Module, prefix: str = "") -> Iterator[str]:
    """The parts of a module in order of registration; what only holds others in order is opened, a block is one part."""
    for name, child in module.named_children():
        holds_others = isinstance(child, nn.ModuleList) or type(child).forward is nn.Sequential.forward
        if holds_others:
            yield from _parts(child, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _grouped(module: nn.Module, parts: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Parts by stage: each part with filters begins one, but for the first."""
    groups: list[list[str]] = []
    has_filters = False
    for part in parts:
        filters = any(weights.ndim > 1 for weights in module.get_submodule(part).parameters())
        if not groups or (filters and has_filters):
            groups.append([])
            has_filters = False
        groups[-1].append(part)
        has_filters |= filters
    return tuple(map(tuple, groups)) if has_filters else ()
