"""The base learners there are, by name: each is one file, in this package or in another one.

`base.learner.method` in a configuration names a learner of this package, one that an installed package offers as an entry
point in the group `fscl.bases`, or any class by its reference, such as `my_package.my_module:MyLearner`.
"""

import inspect
from functools import cache

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from fscl.errors import MisuseError, suggestion
from fscl.meta.base import BaseLearner
from fscl.plugins import entry_points_of, is_reference, load_entry_point, load_object, modules_in

GROUP = "fscl.bases"
KIND = "base learner"


def base_learners() -> dict[str, type[BaseLearner]]:
    """Every base learner of this package and of installed ones, by name.

    Examples:
        >>> [name for name in base_learners() if name.startswith("maml")]
        ['maml', 'maml++']
    """
    found = dict(_own_learners())
    for name, point in entry_points_of(GROUP).items():
        if name in found:
            raise MisuseError(
                f"the entry point {name!r} of the group {GROUP!r} ({point.value}) has the name of a base learner of fscl. "
                "Give it another one."
            )
        learner = _checked(load_entry_point(point, what=KIND), point.value)
        if learner.model_fields["method"].get_default() != name:
            raise MisuseError(
                f"the entry point {name!r} of the group {GROUP!r} leads to {point.value}, whose `method` is "
                f"{learner.model_fields['method'].get_default()!r}. Give both the same name."
            )
        found[name] = learner
    return dict(sorted(found.items()))


def find_learner(name: str) -> type[BaseLearner]:
    """The base learner of this name or reference.

    Examples:
        >>> find_learner("protonet").__name__, find_learner("fscl.meta.protonet:ProtoNet").__name__
        ('ProtoNet', 'ProtoNet')
    """
    if is_reference(name):
        return _checked(load_object(name, what=KIND), name)
    learners = base_learners()
    if name not in learners:
        raise MisuseError(
            f"there is no {name!r}.{suggestion(name, learners)} Known: {', '.join(learners)}; or package.module:Class."
        )
    return learners[name]


def read_learner(content: object) -> object:
    """The learner that a table of a configuration describes: `method` says which, and it checks the other keys.

    Anything but a table passes, for pydantic to judge.
    """
    if not isinstance(content, dict):
        return content
    if "method" not in content:
        raise _problem("method", "is needed, because the other keys depend on it.", content)
    try:
        learner = find_learner(str(content["method"]))
    except MisuseError as error:
        raise _problem("method", str(error), content["method"]) from error
    try:
        return learner.model_validate(content)
    except ValidationError as error:
        raise _with_nearest_keys(error, learner) from error


def summary_of(learner: type[BaseLearner]) -> str:
    """What it does, in one line: the first paragraph of its documentation."""
    return " ".join((inspect.getdoc(learner) or "").partition("\n\n")[0].split())


@cache
def _own_learners() -> dict[str, type[BaseLearner]]:
    own = (
        value
        for module in modules_in("fscl.meta")
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, BaseLearner) and value.__module__ == module.__name__
    )
    return {learner.model_fields["method"].get_default(): learner for learner in own if not inspect.isabstract(learner)}


def _checked(found: object, reference: str) -> type[BaseLearner]:
    if not isinstance(found, type) or not issubclass(found, BaseLearner) or inspect.isabstract(found):
        raise MisuseError(
            f"{reference} is no base learner: it must be a subclass of fscl.meta.base.BaseLearner without abstract methods."
        )
    return found


def _problem(key: str, message: str, given: object) -> ValidationError:
    line = InitErrorDetails(type=_custom(message), loc=(key,), input=given)
    return ValidationError.from_exception_data("base.learner", [line])


def _with_nearest_keys(error: ValidationError, learner: type[BaseLearner]) -> ValidationError:
    """The same problems; a key that the learner does not have is answered with the nearest, which pydantic cannot."""
    lines = []
    for problem in error.errors(include_url=False):
        kind: str | PydanticCustomError = problem["type"]
        context = problem.get("ctx", {})
        if kind == "extra_forbidden":
            known, key = sorted(learner.model_fields), str(problem["loc"][-1])
            near = suggestion(key, known) or f" Known here: {', '.join(known)}."
            kind, context = _custom(f"no such key.{near}"), {}
        elif "error" in context:  # raised by a validator of the learner
            kind, context = _custom(str(context["error"])), {}
        lines.append(InitErrorDetails(type=kind, loc=problem["loc"], input=problem["input"], ctx=context))
    return ValidationError.from_exception_data("base.learner", lines)


def _custom(message: str) -> PydanticCustomError:
    return PydanticCustomError("base_learner", "{message}", {"message": message})
