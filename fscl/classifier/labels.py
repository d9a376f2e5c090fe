"""Labels of any one kind: words, whole numbers, numbers, or truth values; as plain Python values that JSON can hold."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fscl.data.names import class_name, look
from fscl.errors import DataError

Label = str | int | float | bool
KINDS: tuple[type[Label], ...] = (bool, int, float, str)  # bool first: it is an int to Python
WORDS: dict[type, str] = {bool: "truth values", int: "whole numbers", float: "numbers", str: "words"}


def plain_labels(y: Iterable[Any], known: Sequence[Label] = ()) -> list[Label]:
    """Labels as plain values, all of one kind, and of the kind of the `known` ones."""
    labels = [_plain(value) for value in y]
    kinds = {type(label) for label in [*labels, *known[:1]]}
    if len(kinds) > 1:
        first = {kind: next(label for label in [*known[:1], *labels] if type(label) is kind) for kind in kinds}
        listed = " and ".join(sorted(f"{WORDS[kind]} ({label!r})" for kind, label in first.items()))
        raise DataError(f"labels are all of one kind, but these mix {listed}. Make them all words with str().")
    return labels


def as_array(labels: Sequence[Label]) -> NDArray[Any]:
    """Labels as an array of their own type; words as objects, so that none is cut short when longer ones arrive."""
    if labels and isinstance(labels[0], str):
        array = np.empty(len(labels), dtype=object)
        array[:] = labels
        return array
    return np.array(labels)


def _plain(value: object) -> Label:
    plain = value.item() if isinstance(value, np.generic) else value
    for kind in KINDS:
        if isinstance(plain, kind):
            label = kind(plain)
            break
    else:
        raise DataError(f"a label is a word, a number or a truth value, but {value!r} is a {type(value).__name__}.")
    if isinstance(label, float) and not np.isfinite(label):
        raise DataError(f"a label is a number that is finite, but this one is {label}. Leave out what has no label.")
    if isinstance(label, int) and not -(2**63) <= label < 2**63:
        raise DataError(
            f"a label that is a whole number has 64 bits at most, but one is {label}. Make it a word with str()."
        )
    return class_name(label) if isinstance(label, str) else label


def check_look(words: Iterable[Label]) -> None:
    """Refuse two names that nobody could tell apart."""
    seen: dict[str, str] = {}
    for word in words:
        if isinstance(word, str):
            other = seen.setdefault(look(word), word)
            if other != word:
                raise DataError(
                    f"the classes {other!r} and {word!r} look the same but are written differently; give both one name."
                )
