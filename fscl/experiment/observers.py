"""The observers that a configuration names, with their settings."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from fscl.errors import MisuseError
from fscl.evaluation.observer import Observer, find_observer
from fscl.experiment.explain import explain, quoted_key

Sections = Mapping[str, Mapping[str, Any]]


def observers_of(sections: Sections) -> dict[str, tuple[type[Observer], Observer.Settings]]:
    """The class and the settings of each observer, by name."""
    found = {name: find_observer(name) for name in sections}
    return {name: (observer, observer.Settings.model_validate(sections[name])) for name, observer in found.items()}


def observers_in_force(sections: Sections) -> dict[str, dict[str, Any]]:
    """Each section with every value in force, as JSON."""
    return {name: settings.model_dump(mode="json") for name, (_, settings) in observers_of(sections).items()}


def problems_with_observers(sections: Sections, n_tasks: int) -> Iterator[str]:
    """What is wrong with them, a line each, in the words of the file."""
    for name, given in sections.items():
        try:
            ((_, settings),) = observers_of({name: given}).values()
        except MisuseError as error:
            yield f"observe.{quoted_key(name)}: {error}"
        except ValidationError as error:
            schema = find_observer(name).Settings
            yield from (explain(problem, schema, ("observe", name)) for problem in error.errors())
        else:
            last = settings.last_moment()
            if last > n_tasks:
                yield (
                    f"observe.{quoted_key(name)}: it looks after {last} tasks, but a stream has {n_tasks}. Look earlier, or "
                    "raise stream.n_tasks."
                )
