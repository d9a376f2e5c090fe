"""A classifier over time: its present state, and those before, in memory or in a folder."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from fscl.classifier.estimate import estimate_of
from fscl.classifier.inputs import Shape
from fscl.classifier.knowledge import Lesson
from fscl.classifier.settings import ClassifierSettings
from fscl.classifier.store.folder import READ_ATTEMPTS, ModelFolder
from fscl.classifier.store.lock import TIMEOUT
from fscl.classifier.store.originals import OriginalStore
from fscl.classifier.teacher import Snapshot, Teacher
from fscl.errors import MisuseError, ModelBusy, StorageError
from fscl.nets.network import Network
from fscl.storage import tensor_digest

Change = Callable[[Teacher, Snapshot], Snapshot]


class Model:
    """Holds one `Snapshot` after another. Read `snapshot` once a question: a change replaces it by one assignment.

    Changes from several threads take turns; questions never wait.
    """

    def __init__(self, teacher: Teacher, *, folder: ModelFolder | None = None) -> None:
        self.teacher = teacher
        self.folder = folder
        self.past: list[Snapshot] = []
        self.undone: list[Snapshot] = []  # the next one to be done again last
        self.snapshot = teacher.empty()
        self._changing = threading.RLock()

    @classmethod
    def load(cls, folder: Path, *, timeout: float = TIMEOUT) -> "Model":
        """The model in a folder."""
        opened = ModelFolder(folder, timeout=timeout)
        snapshot = opened.read()
        model = cls(opened.teacher(), folder=opened)
        model.snapshot = snapshot
        return model

    @property
    def settings(self) -> ClassifierSettings:
        return self.teacher.settings

    @property
    def network(self) -> Network:
        return self.teacher.network

    @property
    def has_rows(self) -> bool:
        """Whether it learns rows of numbers, and no pictures."""
        return self.network.picture_shape is None

    @property
    def shape(self) -> Shape:
        """What pictures are brought to."""
        channels, image_size = self.network.picture_shape or (1, 1)
        return Shape(image_size, channels, self.settings.invert)

    def has_only_rows_of_another_width(self, rows: Tensor | None) -> bool:
        """Whether it had learned rows of another width, and all of that was undone or forgotten."""
        known = bool(self.snapshot.knowledge.classes)
        if rows is None or self.network.picture_shape is not None or known or self.folder is not None:
            return False
        return self.network.n_features != rows.shape[1]

    def learn(self, lesson: Lesson, *, before_commit: Callable[[], None] | None = None) -> None:
        """Learn a lesson; in a folder it is a transaction, which `before_commit` may still refuse by raising."""
        with self._changing:
            if self.folder is None:
                self.change(lambda teacher, before: teacher.learned(before, lesson))
            else:
                with self._in_step():
                    self.snapshot = self.folder.teach(lesson, before_commit=before_commit)

    def change(self, made: Change, *, final: bool = False) -> None:
        """Replace what is known by what `made` makes of it; `final` leaves no way back."""
        with self._changing:
            if self.folder is not None:
                with self._in_step():
                    self.snapshot = self.folder.change(made, final=final)
                return
            after = made(self.teacher, self.snapshot)
            self._keep([] if final else [*self.past, self.snapshot])
            self.snapshot = after

    @contextmanager
    def _in_step(self) -> Iterator[None]:
        """What is stopped in the middle leaves this as the folder is: before the change, or after it."""
        try:
            yield
        except BaseException:
            with suppress(Exception):
                self.refresh()
            raise

    def follow(self, before: "Model") -> None:
        """What another model knew can be gone back to, if it had the same base and settings."""
        if before.settings == self.settings and _same(before.network, self.network):
            self._keep([*before.past, before.snapshot])

    def undo(self, n_calls: int) -> None:
        """Go back by so many calls."""
        if not isinstance(n_calls, int) or isinstance(n_calls, bool):
            raise MisuseError(f"undo takes back a whole number of calls, but n_calls is a {type(n_calls).__name__}.")
        if n_calls < 1:
            raise MisuseError(f"undo takes back 1 call or more, but n_calls is {n_calls}.")
        with self._changing:
            if self.folder is not None:
                with self._in_step():
                    self.snapshot = self.folder.undo(n_calls)
                return
            if n_calls > len(self.past):
                raise MisuseError(
                    f"{n_calls} {'call' if n_calls == 1 else 'calls'} cannot be undone: {len(self.past)} can "
                    "(no state is kept from before a forget, or beyond keep_states)."
                )
            self.undone = [*self.undone, self.snapshot, *reversed(self.past[len(self.past) - n_calls + 1 :])]
            self.snapshot = self.past[-n_calls]
            self.past = self.past[:-n_calls]

    def redo(self, n_calls: int) -> None:
        """Bring back so many calls that were undone, unless the model has changed since."""
        with self._changing:
            if self.folder is not None:
                with self._in_step():
                    self.snapshot = self.folder.redo(n_calls)
                return
            if not 1 <= n_calls <= len(self.undone):
                raise MisuseError(
                    f"{n_calls} {'call' if n_calls == 1 else 'calls'} cannot be done again: {len(self.undone)} can "
                    "(the first change after an undo drops what was undone)."
                )
            for _ in range(n_calls):
                self.past = [*self.past, self.snapshot]
                self.snapshot = self.undone.pop()

    def refresh(self) -> bool:
        """See what another process has changed in the folder; whether there was something."""
        with self._changing:
            before = self.snapshot
            if self.folder is not None:
                self.snapshot = self.folder.read()
            return self.snapshot is not before and self.snapshot.knowledge.details() != before.knowledge.details()

    @property
    def keeps_originals(self) -> bool:
        """Whether pictures are kept as they were given, too: in a folder, unless the settings say no."""
        return self.folder is not None and self.settings.originals and not self.has_rows

    def save(self, folder: Path, *, originals: OriginalStore | None = None, timeout: float = TIMEOUT) -> None:
        """Write all of it as a new folder, and go on there; with the originals of the old one, or those given."""
        with self._changing:
            states = [*self.past, self.snapshot] if self.folder is None else self.folder.states()
            if self.folder is not None and originals is None:
                originals = self.folder.images.originals
            self.folder = ModelFolder.create(folder, self.teacher, states, originals=originals, timeout=timeout)
            self.past = []  # the folder has them

    def waiting(self) -> bool:
        """Whether a lesson that was cut short waits in the folder's journal."""
        return self.folder is not None and self.folder.waiting()

    def recover(self) -> bool:
        """Complete a lesson that a killed process left in the folder's journal; whether there was one."""
        with self._changing:
            if self.folder is None or not self.folder.waiting():
                return False
            self.snapshot = self.folder.complete()
            return True

    def about(self) -> dict[str, Any]:
        """What is known, as a JSON value: settings, classes with their stored examples and accuracy, bytes, history."""
        for _ in range(READ_ATTEMPTS):
            asked = self.snapshot
            try:
                return self._about()
            except StorageError:  # a writer may have dropped the state that we have
                self.refresh()
                if self.snapshot is asked:
                    raise
        raise ModelBusy("the model is being changed all the time; try again.")

    def _about(self) -> dict[str, Any]:
        snapshot, folder = self.snapshot, self.folder
        knowledge = snapshot.knowledge
        memory = knowledge.memory_use(self.settings.memory_bytes)
        return {
            "settings": self.settings.model_dump(mode="json"),
            "classes": [
                {"label": label, "examples": memory.per_class[label], "accuracy": accuracy}
                for label, accuracy in knowledge.class_accuracy.items()
            ],
            "accuracy": knowledge.calibration.accuracy,
            "estimate": asdict(estimate_of(knowledge)),
            "memory": {"examples": memory.n_examples, "bytes": memory.n_bytes, "bound": memory.max_bytes},
            "learner_bytes": snapshot.learner.stored_bytes(),
            "folder_bytes": None if folder is None else folder.n_bytes(),
            "waiting": self.waiting(),
            "history": [vars(event) for event in knowledge.history],
        }

    def _keep(self, states: list[Snapshot]) -> None:
        bound = self.settings.keep_states
        self.past = states if bound is None else states[max(0, len(states) - bound) :]
        self.undone = []

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_changing"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _changing=threading.RLock())


def _same(one: Network, other: Network) -> bool:
    if one is other:
        return True
    return one.n_features == other.n_features and tensor_digest(one.tensors()) == tensor_digest(other.tensors())
