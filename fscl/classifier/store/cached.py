"""What a learner has computed from each stored example and would not compute again, such as a trunk's activations.

One file a lesson, named by its SHA-256; an example's rows are found by the name of its picture. The files are read when they
are first needed, which asking a question never does.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import Tensor

from fscl.classifier.store.addressed import verified_content
from fscl.errors import StorageError
from fscl.nets.params import Params
from fscl.storage import save_tensors, sync_folder, tensors_from_bytes

KIND = "classifier-cache"
MAX_BYTES = 2 * 2**30
_NAME = re.compile(r"([0-9a-f]{64}):(\d{1,8})")


@dataclass
class CachedRows:
    """The folder `cache/` of a model. Remembers what is where, so that nothing is written twice.

    Attributes:
        lost: files that were damaged and put aside.
    """

    folder: Path
    names: dict[str, str] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)

    def write(self, examples: Sequence[str], rows: Mapping[str, Tensor], *, anew: bool = False) -> list[str]:
        """Store rows (n, …) of examples with these names, those that are not stored yet in a new file; the name of each.

        Args:
            examples: the names of their pictures.
            rows: by name, one for each example.
            anew: write all of them, so that the old files can be deleted.
        """
        if anew:
            self.names = {}
        new = [position for position, example in enumerate(examples) if not self._has(example)]
        new = list({examples[position]: position for position in new}.values())  # a picture may be stored twice
        if new:
            part = self.folder / "rows.part"
            save_tensors(part, KIND, {name: tensor[new] for name, tensor in rows.items()})
            name = hashlib.sha256(part.read_bytes()).hexdigest()
            part.replace(self.path(name))
            sync_folder(self.folder)
            self.names |= {examples[position]: f"{name}:{row}" for row, position in enumerate(new)}
        return [self.names[example] for example in examples]

    def read(self, examples: Sequence[str], names: Sequence[str]) -> "LazyRows | None":
        """The rows of these names, once they are asked for; None where a file is lost: they can be computed again."""
        if self.lost & set(map(file_of, names)):
            return None
        self.names |= dict(zip(examples, names, strict=True))
        return LazyRows(partial(self._gathered, names))

    def path(self, name: str) -> Path:
        """The file of a name."""
        return self.folder / f"{name}.safetensors"

    def content(self, name: str) -> bytes:
        """A verified file."""
        return verified_content(self.path(name), max_bytes=MAX_BYTES, what="file of activations")

    def _has(self, example: str) -> bool:
        return example in self.names and self.path(file_of(self.names[example])).is_file()

    def _gathered(self, names: Sequence[str]) -> Params:
        files = {}
        for file in dict.fromkeys(map(file_of, names)):
            files[file] = tensors_from_bytes(self.path(file), KIND, self.content(file))[0]
        try:
            return {
                key: torch.stack([files[file_of(name)][key][int(name.partition(":")[2])] for name in names])
                for key in files[file_of(names[0])]
            }
        except (KeyError, IndexError, RuntimeError) as error:
            raise StorageError(f"{self.folder} does not hold whole rows ({error}). Restore it from a copy.") from error


class LazyRows(Mapping[str, Tensor]):
    """Tensors by name that are read, or computed, when they are first asked for.

    Args:
        load: reads them.
        known: those that are at hand.
    """

    def __init__(self, load: Callable[[], Params], known: Params | None = None) -> None:
        self._load = load
        self._known = known or {}

    @cached_property
    def _rows(self) -> Params:
        return self._load()

    def __getitem__(self, name: str) -> Tensor:
        return self._known[name] if name in self._known else self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def file_of(name: object) -> str:
    """The file that a row is in. It is a SHA-256 and nothing else, so that it cannot lead out of the folder."""
    found = _NAME.fullmatch(str(name))
    if found is None:
        raise StorageError(f"{name!r} is not the name of a stored row; the model was altered. Restore it from a copy.")
    return found[1]
