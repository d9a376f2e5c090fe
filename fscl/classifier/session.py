"""A classifier over time: what it knows now, and the states before, in memory or in a folder."""

from pathlib import Path

from fscl.classifier.knowledge import Knowledge, Lesson
from fscl.classifier.manifest import Settings
from fscl.classifier.model_folder import Change, ModelFolder
from fscl.classifier.pictures import Shape
from fscl.classifier.teaching import Teacher
from fscl.errors import MisuseError
from fscl.nets.network import Network
from fscl.storage import tensor_digest


class Session:
    """Holds one `Knowledge` after another, with a learner that knows the present one."""

    def __init__(self, network: Network, settings: Settings, *, folder: ModelFolder | None = None) -> None:
        self.settings = settings
        self.teacher = Teacher(network, settings.method, settings.settings, settings.seed, settings.memory_bytes)
        self.folder = folder
        self.past: list[Knowledge] = []
        self.use(Knowledge())

    @classmethod
    def load(cls, folder: Path) -> "Session":
        """The model in a folder."""
        opened = ModelFolder(folder)
        network, settings, knowledge = opened.read()
        session = cls(network, settings, folder=opened)
        session.use(knowledge)
        return session

    @property
    def shape(self) -> Shape:
        """What pictures are brought to."""
        channels, image_size = self.teacher.network.picture_shape or (1, 1)
        return Shape(image_size, channels, self.settings.invert)

    def use(self, knowledge: Knowledge) -> None:
        """From now on this is what is known."""
        self.knowledge = knowledge
        self.learner = self.teacher.learner(knowledge)
        self.order = sorted(range(len(knowledge.classes)), key=lambda i: knowledge.classes[i])

    def learn(self, lesson: Lesson) -> None:
        """Learn a lesson; in a folder it is a transaction."""
        if self.folder is None:
            self.change(lambda teacher, before: teacher.learned(before, lesson))
        else:
            self.use(self.folder.teach(self.teacher, lesson))

    def change(self, made: Change, *, final: bool = False) -> None:
        """Replace what is known by what `made` makes of it; `final` leaves no way back."""
        if self.folder is not None:
            self.use(self.folder.change(self.teacher, made, final=final))
            return
        after = made(self.teacher, self.knowledge)
        kept, bound = [] if final else [*self.past, self.knowledge], self.settings.keep_states
        self.past = kept if bound is None else kept[max(0, len(kept) - bound) :]
        self.use(after)

    def follow(self, before: "Session") -> None:
        """What another session knew can be gone back to, if it had the same base and settings."""
        if before.settings == self.settings and _same(before.teacher.network, self.teacher.network):
            kept, bound = [*before.past, before.knowledge], self.settings.keep_states
            self.past = kept if bound is None else kept[max(0, len(kept) - bound) :]

    def undo(self, n_calls: int) -> None:
        """Go back by so many calls."""
        if n_calls < 1:
            raise MisuseError(f"undo takes back 1 call or more, but n_calls is {n_calls}.")
        if self.folder is not None:
            self.use(self.folder.undo(n_calls))
            return
        if n_calls > len(self.past):
            raise MisuseError(
                f"{n_calls} {'call' if n_calls == 1 else 'calls'} cannot be undone: {len(self.past)} can "
                "(no state is kept from before a forget, or beyond keep_states)."
            )
        self.use(self.past[-n_calls])
        self.past = self.past[:-n_calls]

    def save(self, folder: Path) -> None:
        """Write all of it as a new folder, and go on there."""
        states = [*self.past, self.knowledge] if self.folder is None else self.folder.states()
        self.folder = ModelFolder.create(folder, self.teacher.network, self.settings, states)

    def recover(self) -> bool:
        """Complete a lesson that a killed process left in the folder's journal; whether there was one."""
        if self.folder is None or not self.folder.waiting():
            return False
        self.use(self.folder.complete(self.teacher))
        return True


def _same(one: Network, other: Network) -> bool:
    if one is other:
        return True
    return one.n_features == other.n_features and tensor_digest(one.tensors()) == tensor_digest(other.tensors())
