"""The settings of each method in a run: its own < what the run asks of all < `settings.all` < `settings.<method>`.

A value that is set always counts, whether it equals a default or not.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from fscl.continual.learner import LearnerSettings, RunConditions
from fscl.continual.registry import find_method, method_name, with_changes
from fscl.continual.registry import methods as all_methods
from fscl.errors import suggestion
from fscl.experiment.explain import explain
from fscl.storage import leaves

ALL = "all"
Sections = Mapping[str, Mapping[str, Any]]


def settings_of(method: str, sections: Sections, conditions: RunConditions) -> LearnerSettings:
    """The settings in force of a method. A variant such as tsc@k=20 has those of tsc here, and then its own.

    Of `settings.all` a method takes what it has: `settings.all.regulariser.strength` concerns those that have a penalty.
    """
    settings = find_method(method).settings_in_force().for_run(conditions)
    shared = _known_part(settings.model_dump(), sections.get(ALL, {}))
    for given in (shared, *(sections.get(name, {}) for name in dict.fromkeys((method_name(method), method)))):
        settings = with_changes(settings, given)
    return settings


def problems_with(sections: Sections, methods: Iterable[str], conditions: RunConditions) -> Iterator[str]:
    """What is wrong with the settings, a line each, in the words of the file."""
    run = list(methods)
    for section, given in sections.items():
        if section == ALL:
            yield from _unknown_to_all(given, [*run, *all_methods()], conditions)
            concerned = [(method, {ALL: given}) for method in run]
        else:
            concerned = [(section, {section: given})]
        for method, only in concerned:
            try:
                settings_of(method, only, conditions)
            except ValidationError as error:
                schema = find_method(method).learner.Settings
                yield from (explain(problem, schema, ("settings", section)) for problem in error.errors())


def _known_part(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Of what is given, section by section, the keys that `values` has; a section that names its kind is taken whole."""
    known: dict[str, Any] = {}
    for key, value in given.items():
        before = values.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping) and "kind" not in value:
            inner = _known_part(before, value)
            known |= {key: inner} if inner else {}
        elif key in values:
            known[key] = value
    return known


def _unknown_to_all(given: Mapping[str, Any], methods: list[str], conditions: RunConditions) -> Iterator[str]:
    values = [settings_of(method, {}, conditions).model_dump() for method in methods]
    taken = {path for each in values for path in leaves(_known_part(each, dict(given)))}
    known = sorted({path for each in values for path in (*each, *leaves(each))})
    for path in leaves(dict(given)):
        if path not in taken:
            near = suggestion(path, known) or f" Known here: {', '.join(key for key in known if '.' not in key)}."
            yield f"settings.{ALL}.{path}: no method has such a setting.{near}"
