"""Observers: what looks inside a learner while it learns, and never changes it.

    [observe.drift]
    after = [1, 3, 10]

An observer is a class in a module of `fscl/analysis/`, by the module's name, or `package.module:Class`. Nothing imports one
unless a configuration names it. It sees the first sequence of a run; what it finds goes into the run directory.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib.util import find_spec
from inspect import isabstract
from pkgutil import iter_modules
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from fscl.continual.learner import ContinualLearner
from fscl.data.episode import Episode
from fscl.data.stream import Task
from fscl.errors import MisuseError, unknown_name
from fscl.nets.network import Network
from fscl.plugins import is_reference, load_object

HOME = "fscl.analysis"


class Finding(BaseModel):
    """What an observer found, as a value that goes into a run directory as JSON and comes back checked."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class TrainingPoint(Finding):
    """What an observer saw at one validation of meta-training, after so many steps."""

    step: int = Field(ge=0)


class Observer(ABC):
    """Looks at one learner along one stream.

    Examples:
        >>> class Counting(Observer):
        ...     def look(self, n_tasks, learner):
        ...         print(n_tasks, "tasks,", learner.n_classes, "classes")

    Args:
        settings: an instance of its own `Settings`.
        task: the first of the stream.
    """

    class Settings(BaseModel):
        """What is looked at, and when."""

        model_config = ConfigDict(frozen=True, extra="forbid")

        def last_moment(self) -> int:
            """After how many tasks it looks for the last time; a shorter stream is refused."""
            return 0

    finding: ClassVar[type[Finding]]

    def __init__(self, settings: Settings, task: Task) -> None:
        self.settings = settings
        self.task = task

    @abstractmethod
    def look(self, n_tasks: int, learner: ContinualLearner) -> None:
        """See what is due after so many tasks."""

    @abstractmethod
    def found(self, learner: ContinualLearner) -> Finding | None:
        """All that was seen, once the stream has ended; None if there was nothing to see."""

    # meta-training, for an observer that looks at that as well

    @classmethod
    def n_episodes(cls, settings: Settings) -> int:
        """On how many episodes of training classes it looks at each validation of meta-training; 0 for not at all."""
        return 0

    @classmethod
    def look_at_training(cls, network: Network, episodes: Sequence[Episode], step: int) -> TrainingPoint | None:
        """One point of the course of meta-training."""
        return None


def observer_names() -> list[str]:
    """The observers of the package; none is imported.

    Examples:
        >>> observer_names()
        ['drift', 'fisher', 'penalties']
    """
    package = find_spec(HOME)
    folders = package.submodule_search_locations if package else None
    return sorted(module.name for module in iter_modules(folders or []) if not module.name.startswith("_"))


def find_observer(name: str) -> type[Observer]:
    """The class of an observer by name: one of the package, or `package.module:Class`.

    Examples:
        >>> find_observer("drift").__name__
        'DriftObserver'
    """
    if not is_reference(name) and name not in observer_names():
        raise unknown_name("observer", name, observer_names())
    reference = name if is_reference(name) else f"{HOME}.{name}:OBSERVER"
    found = load_object(reference, what="observer")
    if not (isinstance(found, type) and issubclass(found, Observer)):
        raise MisuseError(f"{reference} is no observer: a class that extends fscl.evaluation.observer.Observer is.")
    if isabstract(found) or "finding" not in dir(found):
        raise MisuseError(f"{reference} is not a whole observer: it needs `look`, `found` and `finding`.")
    return found
