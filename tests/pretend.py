"""A device that is not there: its tensors hold real numbers on the CPU, and refuse to meet tensors that are on the CPU.

    with pretended("cuda"):
        network.to("cuda").embed(images)

A `Pretend` tensor says that it is on the device, and every operation on it is computed on the CPU. An operation that mixes
the two kinds raises, as a GPU would have it, but for what GPUs allow: copies between devices, CPU tensors as indices, and
CPU scalars (tensors without dimensions) in elementwise operations. As on real ones, a CPU generator draws nothing on
the device, `numpy()` is refused, and "mps" has no double precision. It cannot show that a GPU has a kernel for an
operation, nor that its kernels are right: only that nothing is left behind on the CPU.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

aten = torch.ops.aten
META = torch.device("meta")
COPIES = {aten._to_copy.default, aten.copy_.default}
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}


class Mixed(RuntimeError):
    """An operation met tensors of the device and of the CPU."""


class Pretend(torch.Tensor):
    """A tensor that says it is elsewhere.

    To torch it is on "meta", as a fake tensor is: there are no queues for the backward pass of a device that is not there.
    """

    held: torch.Tensor
    place: torch.device

    @staticmethod
    def __new__(cls, real: torch.Tensor, place: torch.device) -> "Pretend":
        if place.type == "mps" and real.dtype == torch.float64:
            raise TypeError("mps has no float64")
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            real.shape,
            strides=real.stride(),
            storage_offset=real.storage_offset(),
            dtype=real.dtype,
            device="meta",
        )
        made.held, made.place = real.detach(), place
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.place

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Pretend({self.held}, {self.place})"

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(from_list(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(from_list(index), value)

    def tolist(self) -> Any:
        return self.held.tolist()

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def numpy(self, **_: Any) -> Any:
        raise TypeError(f"a tensor on {self.place} cannot be a numpy array; copy it to the CPU first")

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


def from_list(index: Any) -> Any:
    """A list as an index becomes a tensor here, for torch would make one that holds no numbers."""
    return torch.tensor(index) if isinstance(index, list) else index


def compute(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What `func` gives, on the device if it is asked for there or if its tensors are there."""
    tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
    ours = [tensor for tensor in tensors if isinstance(tensor, Pretend)]
    asked = kwargs.get("device")
    asked = None if asked is None else torch.device(asked)
    if ours:
        refuse_mixed(func, args, tensors)
    elif asked is None or asked.type in ("cpu", "meta"):
        return func(*args, **kwargs)
    elif isinstance(kwargs.get("generator"), torch.Generator):
        raise Mixed(f"{func} draws on {asked} from a generator of the CPU")
    place = asked or (ours[0].place if ours else None)
    real_args, real_kwargs = tree_map(lambda v: v.held if isinstance(v, Pretend) else v, (tuple(args), dict(kwargs)))
    if asked is not None:
        real_kwargs["device"] = torch.device("cpu")
    found = func(*real_args, **real_kwargs)
    changed = written_to(func, args, kwargs)
    if changed is not None:
        return changed
    if place is None or place.type == "cpu":
        return found
    where = place
    return tree_map(lambda v: Pretend(v, where) if isinstance(v, torch.Tensor) else v, found)


def refuse_mixed(func: Any, args: Sequence[Any], tensors: Sequence[torch.Tensor]) -> None:
    """Raise where a real device would."""
    strangers = [tensor for tensor in tensors if not isinstance(tensor, Pretend)]
    if any(tensor.is_meta for tensor in strangers):
        raise Mixed(f"{func} met a tensor that holds no numbers: the pretence has a hole")
    if not strangers or func in COPIES:
        return
    if func in INDEXED:
        values = args[2] if len(args) > 2 else None
        if isinstance(args[0], Pretend) and (values is None or isinstance(values, Pretend) or values.ndim == 0):
            return
    elif torch.Tag.pointwise in func.tags and all(tensor.ndim == 0 for tensor in strangers):
        return
    shapes = [f"{tuple(t.shape)} on {t.device}" for t in tensors]
    raise Mixed(f"{func} expects all tensors on one device, but got {', '.join(shapes)}")


def written_to(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The argument that an operation in place gives back, so that it is the same tensor and not a new one."""
    if len(func._schema.returns) != 1 or func._schema.returns[0].alias_info is None:
        return None
    if not func._schema.returns[0].alias_info.is_write:
        return None
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            return args[number] if number < len(args) else kwargs[argument.name]
    return None


class _Factories(TorchDispatchMode):
    """Catches what no tensor of the device takes part in: new tensors, and copies to it.

    What torch itself makes beside a tensor of ours it makes on "meta"; it is ours, unless the caller said "meta".
    """

    def __init__(self, place: torch.device) -> None:
        super().__init__()
        self.place, self.means_meta = place, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if given.get("device") == META and not self.means_meta:
            given = {**given, "device": self.place}
        return compute(func, args, given)


class _Calls(TorchFunctionMode):
    """Calls the device by its number, because torch would ask its driver for the current one."""

    def __init__(self, factories: _Factories) -> None:
        super().__init__()
        self.factories = factories

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {key: numbered(value) for key, value in (kwargs or {}).items()}
        before, self.factories.means_meta = self.factories.means_meta, given.get("device") in (META, "meta")
        try:
            return func(*map(numbered, args), **given)
        finally:
            self.factories.means_meta = before


def numbered(value: Any) -> Any:
    """A device with its number; anything else as it is."""
    if isinstance(value, str) and value in ("cuda", "mps"):
        value = torch.device(value)
    is_bare = isinstance(value, torch.device) and value.type in ("cuda", "mps") and value.index is None
    return torch.device(value.type, 0) if is_bare else value


@contextmanager
def pretended(name: str) -> Iterator[torch.device]:
    """A machine with this device, for as long as the block lasts."""
    with (
        mock.patch("torch.cuda._lazy_init"),
        mock.patch("torch.cuda.is_available", return_value=name == "cuda"),
        mock.patch("torch.backends.mps.is_available", return_value=name == "mps"),
        _Factories(torch.device(name, 0)) as factories,
        _Calls(factories),
    ):
        yield torch.device(name)
