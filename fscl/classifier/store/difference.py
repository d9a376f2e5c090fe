"""A state as what differs from the state before it, so that a lesson costs what it brings and not all that is known.

Values of JSON: an *edit* is {"is": value}, {"keep": n, "at": [[position, value], …], "add": [value, …]} for a list, or
{"of": {key: edit}, "without": [key, …]} for an object. Tensors: rows that changed or came, and where they go.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from fscl.errors import StorageError

FIRST_ROOM = 64  # rows

Edit = dict[str, Any]
Spans = list[list[int]]  # [start, stop] of rows


def difference(old: Any, new: Any) -> Edit:
    """What makes `new` of `old`, both values that JSON can hold."""
    if isinstance(old, dict) and isinstance(new, dict):
        changed = {key: value for key, value in new.items() if key not in old or not _same(old[key], value)}
        edits = {key: difference(old[key], value) if key in old else {"is": value} for key, value in changed.items()}
        return {"of": edits, "without": [key for key in old if key not in new]}
    if isinstance(old, list) and isinstance(new, list):
        keep = min(len(old), len(new))
        at = [[position, new[position]] for position in range(keep) if not _same(old[position], new[position])]
        if 2 * len(at) <= keep:
            return {"keep": keep, "at": at, "add": new[keep:]}
    return {"is": new}


def apply_edit(value: Any, edit: Edit) -> Any:
    """What `difference` was made from; lists and objects of `value` are changed in place."""
    if "is" in edit:
        return edit["is"]
    if "of" in edit:
        for key in edit["without"]:
            del value[key]
        for key, inner in edit["of"].items():
            value[key] = apply_edit(value.get(key), inner)
        return value
    del value[edit["keep"] :]
    for position, each in edit["at"]:
        value[position] = each
    value.extend(edit["add"])
    return value


def added(edit: Edit) -> list[Any]:
    """The values that an edit of a list brings in."""
    if "is" in edit:
        return list(edit["is"])
    return [*(value for _, value in edit["at"]), *edit["add"]]


def changed_rows(old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The rows that make `new` of `old`; and for each tensor how many rows it has and where the rows go.

    A tensor that has to be stored whole has no such note; one that is in neither is gone.
    """
    rows, notes = {}, {}
    for name, tensor in new.items():
        before = old.get(name)
        spans = None if before is None else _spans(before, tensor)
        if spans is None:
            rows[name] = tensor
        else:
            notes[name] = {"n": len(tensor), "at": spans}
            if spans:
                rows[name] = torch.cat([tensor[start:stop] for start, stop in spans])
    return rows, notes


class Assembly:
    """A state that is put together from a whole one and what differs, one after another."""

    def __init__(self) -> None:
        self._details: dict[str, Any] = {}
        self._tensors: dict[str, _Rows] = {}

    def start(self, details: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """A whole state."""
        self._details, self._tensors = details, {name: _Rows(tensor) for name, tensor in tensors.items()}

    def follow(self, edit: Edit, notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """The state after it."""
        try:
            self._details = apply_edit(self._details, edit)
            kept = {name: self._tensors[name] for name in notes}
            for name, note in notes.items():
                kept[name].change(int(note["n"]), note["at"], tensors.get(name))
            kept |= {name: _Rows(tensor) for name, tensor in tensors.items() if name not in notes}
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise StorageError(f"a state does not follow from the one before it ({error!r}).") from error
        self._tensors = kept

    def details(self) -> dict[str, Any]:
        """A copy."""
        return deepcopy(self._details)

    def tensors(self) -> dict[str, Tensor]:
        """Copies."""
        return {name: rows.copy() for name, rows in self._tensors.items()}


class _Rows:
    """A tensor with room for more rows, so that a thousand lessons do not copy it a thousand times."""

    def __init__(self, tensor: Tensor) -> None:
        self._room = tensor
        self._n = len(tensor) if tensor.ndim else None
        self._owned = False

    def change(self, n: int, spans: Spans, rows: Tensor | None) -> None:
        if self._n is None or not 0 <= n <= self._n + (0 if rows is None else len(rows)):
            raise ValueError(f"{n} rows do not fit")
        if n > len(self._room) or not self._owned:
            room = torch.empty((max(2 * n, FIRST_ROOM), *self._room.shape[1:]), dtype=self._room.dtype)
            room[: self._n] = self._room[: self._n]
            self._room, self._owned = room, True
        taken, covered = 0, self._n
        for start, stop in spans:
            if rows is None or not 0 <= start < stop <= n or rows.dtype != self._room.dtype or start > covered:
                raise ValueError(f"rows {start} to {stop} do not fit")
            self._room[start:stop] = rows[taken : taken + stop - start]
            taken, covered = taken + stop - start, max(covered, stop)
        if covered < n or taken != (0 if rows is None else len(rows)):
            raise ValueError("rows are missing, or too many")
        self._n = n

    def copy(self) -> Tensor:
        return self._room.clone() if self._n is None else self._room[: self._n].clone()


def _spans(old: Tensor, new: Tensor) -> Spans | None:
    """Where rows of `new` differ from those of `old`, bit for bit; None where it is better stored whole."""
    if old.dtype != new.dtype or not old.ndim or old.shape[1:] != new.shape[1:] or not len(old) or not new.numel():
        return None
    n = min(len(old), len(new))
    differs = torch.ones(len(new), dtype=torch.bool)
    differs[:n] = (_bits(old[:n]) != _bits(new[:n])).any(1)
    if 2 * int(differs[:n].sum()) > n:
        return None
    edges = torch.diff(
        differs.int(), prepend=torch.zeros(1, dtype=torch.int32), append=torch.zeros(1, dtype=torch.int32)
    )
    starts, stops = (edges == 1).nonzero()[:, 0].tolist(), (edges == -1).nonzero()[:, 0].tolist()
    return [[start, stop] for start, stop in zip(starts, stops, strict=True)]


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().reshape(len(tensor), -1).view(torch.uint8)


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON writes them: 1, 1.0 and true are three values."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return repr(one) == repr(other) if isinstance(one, float) else bool(one == other)
