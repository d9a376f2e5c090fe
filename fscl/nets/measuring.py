"""What a module from elsewhere costs and gives, found by running it; one that cannot serve as a base is refused."""

from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fscl.errors import MisuseError
from fscl.nets.stages import FAULTS

TOLERANCE = 1e-3  # of the largest feature: how far rounding may move one when its image has company
Shape = tuple[int, ...]
_counted: WeakKeyDictionary[nn.Module, dict[tuple[Shape, int, int | None], int]] = WeakKeyDictionary()
_n_outputs: WeakKeyDictionary[nn.Module, dict[tuple[Shape, tuple[int, ...]], int | None]] = WeakKeyDictionary()


def checked_features(run: Callable[[Tensor], object], x: Tensor) -> tuple[Tensor, int]:
    """Features of three images, and the multiply-adds of one; refuses a module that cannot serve."""
    from torch.utils.flop_counter import FlopCounterMode  # rarely needed

    with torch.no_grad():
        try:
            with FlopCounterMode(display=False) as counter:
                alone = run(x[:1])
            together = run(x)
        except FAULTS as error:
            raise MisuseError(f"the module cannot take images of shape {tuple(x.shape[1:])}: {error}") from error
    if not isinstance(together, Tensor) or together.ndim < 2 or len(together) != len(x):
        found = f"shape {tuple(together.shape)}" if isinstance(together, Tensor) else type(together).__name__
        raise MisuseError(
            f"the module shall map n images to a tensor of n rows, but for {len(x)} images it gives {found}. Wrap it in one "
            "that does."
        )
    if not together.is_floating_point() or not bool(torch.isfinite(together).all()):
        raise MisuseError(
            "the module's features of a random image are not finite floating-point numbers. Check its weights."
        )
    assert isinstance(alone, Tensor)  # as of three images
    if float((alone - together[:1]).abs().max()) > TOLERANCE * float(together.abs().max()):
        raise MisuseError(
            "the module's features of an image change with the other images in its batch, or from call to call; prediction "
            "must judge each image alone. Give its BatchNorm running statistics."
        )
    return together, int(counter.get_total_flops()) // 2


def multiply_adds(module: nn.Module, x: Tensor, first: int, last: int | None = None) -> int:
    """What one input like those of `x` costs in the stages from `first` to `last`, forward."""
    from torch.utils.flop_counter import FlopCounterMode  # rarely needed

    known = _counted.setdefault(module, {})
    shape = tuple(x.shape[1:])
    if (shape, first, last) not in known:
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            module(x.new_zeros(1, *shape), first, last)
        known[shape, first, last] = int(counter.get_total_flops()) // 2
    return known[shape, first, last]


def n_outputs(module: nn.Module, x: Tensor, *stages: int) -> int | None:
    """How many numbers the module, or its stages from the first given to the second, makes of one input; None if none."""
    known = _n_outputs.setdefault(module, {})
    key = (tuple(x.shape), stages)
    if key not in known:
        try:
            with torch.no_grad():
                known[key] = int(module(x, *stages).numel())
        except FAULTS:
            known[key] = None
    return known[key]
