"""The settings of each method in a run: its own < what the run asks of all < `settings.all` < `settings.<method>`.

A value that is set always counts, whether it equals a default or not.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from fscl.continual.learner import LearnerSettings, RunConditions
from fscl.continual.registry import find_method, method_name, with_changes
from fscl.errors import suggestion
from fscl.experiment.explain import explain

ALL = "all"
Sections = Mapping[str, Mapping[str, Any]]


def settings_of(method: str, sections: Sections, conditions: RunConditions) -> LearnerSettings:
    """The settings in force of a method. A variant such as tsc@k=20 has those of tsc here, and then its own.

    Of `settings.all` a method takes what it has: a method without `steps` is not concerned by `settings.all.steps`.
    """
    settings = find_method(method).settings_in_force().for_run(conditions)
    fields = type(settings).model_fields
    shared = {key: value for key, value in sections.get(ALL, {}).items() if key in fields}
    for given in (shared, *(sections.get(name, {}) for name in dict.fromkeys((method_name(method), method)))):
        settings = with_changes(settings, given)
    return settings


def problems_with(sections: Sections, methods: Iterable[str], conditions: RunConditions) -> Iterator[str]:
    """What is wrong with the settings, a line each, in the words of the file."""
    run = list(methods)
    for section, given in sections.items():
        if section == ALL:
            yield from _unknown_to_all(given, run)
            concerned = [(method, {ALL: given}) for method in run]
        else:
            concerned = [(section, {section: given})]
        for method, only in concerned:
            try:
                settings_of(method, only, conditions)
            except ValidationError as error:
                schema = find_method(method).learner.Settings
                yield from (explain(problem, schema, ("settings", section)) for problem in error.errors())


def _unknown_to_all(given: Mapping[str, Any], methods: list[str]) -> Iterator[str]:
    known = sorted({key for method in methods for key in find_method(method).learner.Settings.model_fields})
    for key in given:
        if key not in known:
            near = suggestion(key, known) or f" Known here: {', '.join(known)}."
            yield f"settings.{ALL}.{key}: no method of this run has such a setting.{near}"
