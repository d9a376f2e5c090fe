"""The journal of a model: a lesson is written here, and flushed, before it is learned.

A lesson whose state was committed is done; one that a killed process left is completed by the next writer. Numbers tell
which: a lesson bears the number of the state that it leads to, and numbers are never used twice.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fscl.classifier.knowledge import CallName, Lesson
from fscl.classifier.labels import plain_labels
from fscl.errors import DataError, StorageError
from fscl.storage import load_tensors, save_tensors, sync_folder

_ENTRY = re.compile(r"\d{6,}\.safetensors")
CALLS: dict[str, CallName] = {"fit": "fit", "learn": "learn", "correct": "correct"}


@dataclass(frozen=True)
class Journal:
    """The folder `journal/` of a model."""

    folder: Path

    def write(self, number: int, lesson: Lesson, originals: Sequence[str] = ()) -> None:
        """From here on the lesson cannot be lost; `originals` are the names of those that were kept before."""
        details = {
            "labels": list(lesson.labels),
            "sources": list(lesson.sources),
            "call": lesson.call,
            "when": lesson.when,
            "originals": list(originals),
            **({} if lesson.id is None else {"id": lesson.id}),
        }
        save_tensors(self.path(number), "lesson", {"examples": lesson.examples}, details)
        sync_folder(self.folder)

    def pending(self, next_number: int) -> bool:
        """Whether there is a lesson that was written down and not learned."""
        return self.path(next_number).is_file()

    def read(self, number: int) -> tuple[Lesson, tuple[str, ...]]:
        """A lesson, and the names of its originals."""
        path = self.path(number)
        if path.is_symlink():
            raise StorageError(f"{path} is a link; nothing outside the model's folder is read. Remove the link.")
        tensors, details = load_tensors(path, "lesson")
        try:
            labels = tuple(plain_labels(details["labels"]))
            originals = tuple(map(str, details.get("originals", ())))
            lesson = Lesson(
                examples=tensors["examples"],
                labels=labels,
                sources=tuple(map(str, details["sources"])),
                call=CALLS[details["call"]],
                when=str(details["when"]),
                id=None if details.get("id") is None else str(details["id"]),
            )
        except (KeyError, TypeError, DataError) as error:
            raise StorageError(f"{path} is not a whole lesson ({error}).") from error
        fits = len(lesson.examples) == len(labels) == len(lesson.sources)
        if not fits or len(originals) not in (0, len(labels)):
            raise StorageError(f"{path} is not a whole lesson: its examples and labels do not fit.")
        return lesson, originals

    def clear(self) -> None:
        """Remove every entry, once they are learned or given up."""
        for path in self.entries():
            path.unlink()

    def entries(self) -> list[Path]:
        """What lies in the journal, done or not."""
        if self.folder.is_symlink() or not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if _ENTRY.fullmatch(path.name))

    def path(self, number: int) -> Path:
        """The file of a lesson."""
        return self.folder / f"{number:06}.safetensors"
