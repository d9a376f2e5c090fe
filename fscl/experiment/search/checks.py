"""Whether a search can be made with the rest of its configuration."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import ValidationError

from fscl.continual.learner import RunConditions
from fscl.continual.registry import find_method
from fscl.experiment.explain import explain
from fscl.experiment.method_settings import Sections, settings_of
from fscl.experiment.search.spec import SearchSpec
from fscl.experiment.toml import merged, nested

if TYPE_CHECKING:
    from fscl.experiment.config import RunConfig

LONGEST_NAME = 57  # of a configuration with a search: that of its winner ends with "-winner"


def problems_with_search(
    search: SearchSpec | None, run: "RunConfig", sections: Sections, conditions: RunConditions
) -> Iterator[str]:
    """What is wrong with it, a line each, in the words of the file."""
    if search is None:
        return
    if run.split != "validation":
        yield test_classes_refused(run.split)
    if search.method not in run.methods:
        yield f"search.method: {search.method!r} is none of run.methods, which are {', '.join(run.methods)}"
        return
    if search.first > run.n_sequences:
        yield f"search.first: is {search.first}, but run.n_sequences is {run.n_sequences}; a trial ends with that many"
    for path, dimension in search.space.items():
        lines = {line for value in dimension.ends for line in _refusals(search, sections, conditions, {path: value})}
        yield from sorted(lines)


def test_classes_refused(split: str) -> str:
    """Why a search does not begin."""
    return (
        f"search: settings are chosen on validation classes alone, but run.split is {split!r}. Say run.split = "
        '"validation"; the winner can then be run with run.split=test'
    )


def _refusals(
    search: SearchSpec, sections: Sections, conditions: RunConditions, values: dict[str, object]
) -> Iterator[str]:
    given = merged(dict(sections), {search.method: nested(values)})
    try:
        settings_of(search.method, given, conditions)
    except ValidationError as error:
        schema = find_method(search.method).learner.Settings
        yield from (explain(problem, schema, ("search", "space")) for problem in error.errors())
