"""What people add from outside the package: found by a reference, by an entry point, or as a file of a package.

A plug-in that cannot be loaded is one sentence that names it, and the reason; nothing is passed over in silence.
"""

import re
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from types import ModuleType

from fscl.errors import MisuseError, UnknownName, suggestion

REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def is_reference(name: str) -> bool:
    """Whether a name has the form `package.module:Name`.

    Examples:
        >>> is_reference("my_package.data:TOY"), is_reference("omniglot")
        (True, False)
    """
    return REFERENCE.fullmatch(name) is not None


def load_object(reference: str, *, what: str) -> object:
    """The object that `package.module:Name` names; importing its module executes the code in it.

    Examples:
        >>> load_object("math:pi", what="number")
        3.141592653589793

    Args:
        reference: a module, a colon, and a name in the module; the name may have dots.
        what: the kind of thing that is asked for, for the error.
    """
    if not is_reference(reference):
        raise UnknownName(f"{what} {reference!r} is not of the form package.module:Name.")
    module_name, _, path = reference.partition(":")
    found: object = _import(module_name, reference, what)
    for part in path.split("."):
        if not hasattr(found, part):
            near = suggestion(part, [name for name in dir(found) if not name.startswith("_")])
            raise UnknownName(f"there is no {what} {reference!r}: {module_name} has no {path!r}.{near}")
        found = getattr(found, part)
    return found


def _import(name: str, reference: str, what: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):  # itself, or a package that it is in
            raise UnknownName(
                f"there is no {what} {reference!r}: no module {error.name!r} is installed or on the path. Install its "
                "package, or add its folder to PYTHONPATH."
            ) from error
        raise _unusable(name, reference, what, error) from error
    except Exception as error:  # a module may raise anything while it is imported
        raise _unusable(name, reference, what, error) from error


def _unusable(name: str, reference: str, what: str, error: Exception) -> MisuseError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return MisuseError(f"the {what} {reference!r} cannot be used: importing {name} failed ({reason}).")


def entry_points_of(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name, sorted; none is imported yet.

    Examples:
        >>> "fscl" in entry_points_of("console_scripts")
        True
    """
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            raise MisuseError(
                f"two packages have an entry point {point.name!r} in the group {group!r}: {other.value} and {point.value}. "
                "Remove one of them."
            )
    return found


def load_entry_point(point: EntryPoint, *, what: str) -> object:
    """The object of an entry point, or an error that names it."""
    try:
        return load_object(point.value, what=what)
    except MisuseError as error:
        raise type(error)(f"the entry point {point.name!r} of the group {point.group!r} is broken: {error}") from error


def modules_in(package: str) -> list[ModuleType]:
    """The modules of a package, imported, sorted by name; those whose names begin with an underscore are left out.

    Examples:
        >>> [module.__name__ for module in modules_in("fscl.data.sets")][0]
        'fscl.data.sets.birds'
    """
    folders = import_module(package).__path__
    names = sorted(module.name for module in iter_modules(folders) if not module.name.startswith("_"))
    return [import_module(f"{package}.{name}") for name in names]
