"""Which data sets there are: files of `fscl/data/sets/`, entry points of `fscl.datasets`, and `package.module:NAME`."""

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint
from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from fscl.data.dataset import DataSet, Progress, Tell
from fscl.data.pool import Splits
from fscl.data.sets.glyphs import GLYPHS
from fscl.errors import MisuseError, unknown_name
from fscl.plugins import entry_points_of, is_reference, load_entry_point, load_object, modules_in

GROUP = "fscl.datasets"
DEFAULT = GLYPHS  # for a configuration that names none: it is always here
_WHAT = "data set"


@cache
def built_in_data_sets() -> dict[str, DataSet]:
    """The data sets that come with the package, by name."""
    return {
        value.name: value
        for module in modules_in("fscl.data.sets")
        for value in vars(module).values()
        if isinstance(value, DataSet) and type(value).__module__ == module.__name__
    }


def data_set_names() -> list[str]:
    """Every name that is found without a reference: what comes with the package, then what other packages add."""
    return [*built_in_data_sets(), *(name for name in entry_points_of(GROUP) if name not in built_in_data_sets())]


def find_data_set(name: str) -> DataSet:
    """A data set by its name or as `package.module:NAME`, or an error with the nearest name.

    Examples:
        >>> find_data_set("omniglot")
        <data set 'omniglot'>
    """
    if is_reference(name):
        return _checked(load_object(name, what=_WHAT), f"the data set {name!r}")
    built_in, points = built_in_data_sets(), entry_points_of(GROUP)
    if name in built_in and name in points:
        raise MisuseError(
            f"the entry point {name!r} of the group {GROUP!r} ({points[name].value}) has the name of a data set that comes "
            "with fscl. Rename it, or uninstall its package."
        )
    if name in points:
        return _of_entry_point(points[name])
    if name not in built_in:
        raise unknown_name(_WHAT, name, data_set_names())
    return built_in[name]


def known_data_set(name: str) -> DataSet | None:
    """A data set by a name that a file or a pool carries; None for others'. No module is imported for a reference."""
    if name in built_in_data_sets():
        return built_in_data_sets()[name]
    if is_reference(name):
        return _imported(name)
    points = entry_points_of(GROUP)
    return _of_entry_point(points[name]) if name in points else None


def _imported(reference: str) -> DataSet | None:
    if reference.partition(":")[0] not in sys.modules:
        return None
    try:
        return find_data_set(reference)
    except MisuseError:
        return None  # a pool that happens to be called so


def _of_entry_point(point: EntryPoint) -> DataSet:
    called = f"the entry point {point.name!r} of the group {GROUP!r}"
    data_set = _checked(load_entry_point(point, what=_WHAT), called)
    if data_set.name != point.name:
        raise MisuseError(f"{called} is broken: its data set is called {data_set.name!r}. Give both the same name.")
    return data_set


def _checked(found: object, called: str) -> DataSet:
    if isinstance(found, type) and issubclass(found, DataSet):
        raise MisuseError(f"{called} is broken: {found.__name__} is a class. Name an instance of it.")
    if not isinstance(found, DataSet):
        raise MisuseError(
            f"{called} is broken: it is a {type(found).__name__}, not an instance of a subclass of fscl's DataSet."
        )
    missing = [key for key in ("name", "summary") if not isinstance(getattr(found, key, None), str)]
    if missing:
        raise MisuseError(f"{called} is broken: it has no {missing[0]}. Give its class one, a string.")
    if not (isinstance(found.Options, type) and issubclass(found.Options, DataSet.Options)):
        raise MisuseError(f"{called} is broken: its Options are not a subclass of DataSet.Options.")
    return found


# ---- options, as a configuration gives them ----


def read_options(given: Any) -> Any:
    """The options of the data set that a `[data]` section names, checked; what is no table is left to pydantic.

    Examples:
        >>> read_options({"name": "cub", "split": "few-shot"}).image_size
        64
    """
    if not isinstance(given, Mapping):
        return given
    name = given.get("name", DEFAULT.name)
    try:
        options = find_data_set(str(name)).Options
    except MisuseError as error:
        problem = PydanticCustomError("unknown_name", "{sentence}", {"sentence": str(error)})
        line = InitErrorDetails(type=problem, loc=("name",), input=name)
        raise ValidationError.from_exception_data("data", [line]) from error
    try:
        return options.model_validate({**given, "name": name})
    except ValidationError as error:
        raise _with_known_keys(error, options) from error


def _with_known_keys(error: ValidationError, options: type[DataSet.Options]) -> ValidationError:
    """The same problems; a key that the set does not have comes with those that it has, a missing one with what it is."""
    lines = []
    for problem in error.errors():
        message, context, place = problem["msg"], dict(problem.get("ctx", {})), problem["loc"]
        if problem["type"] == "extra_forbidden" and len(place) == 1:
            context["known"] = sorted(options.model_fields)
        if problem["type"] == "missing" and len(place) == 1:
            description = options.model_fields[str(place[0])].description
            message = "is needed" if description is None else f"is needed: {description}"
        kind = PydanticCustomError(problem["type"], message, context)
        lines.append(InitErrorDetails(type=kind, loc=place, input=problem["input"]))
    return ValidationError.from_exception_data(error.title, lines)


DataSpec = Annotated[SerializeAsAny[DataSet.Options], BeforeValidator(read_options)]


def load_splits(options: DataSet.Options, progress: Progress | None = None, tell: Tell | None = None) -> Splits:
    """The three pools of a data set; `tell` is called with a sentence for each file that is skipped."""
    return find_data_set(options.name).load(options, progress, tell)


# ---- which classes are the same ----


def recorded(options: DataSet.Options) -> dict[str, Any]:
    """The options for the details of a base, with what its class names mean: no module need be imported to compare them."""
    content = options.model_dump(mode="json")
    return {**content, "vocabulary": find_data_set(options.name).vocabulary(content)}


def share_names(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a class of the same name is the same class in both of two data sets, given as `recorded`.

    Examples:
        >>> share_names({"name": "mini-imagenet"}, {"name": "tiered-imagenet"})
        True
    """
    return _vocabulary(one) == _vocabulary(other)


def _vocabulary(record: Mapping[str, Any]) -> str | None:
    name, vocabulary = record.get("name"), record.get("vocabulary")
    if isinstance(vocabulary, str):
        return vocabulary
    data_set = known_data_set(str(name))
    return name if data_set is None else data_set.vocabulary(record)
