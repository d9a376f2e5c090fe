"""The methods that can be compared, by name: those of the package, those of other packages, and those of a module.

A method is found in a file of `fscl/continual/methods/`, through an entry point of the group `fscl.methods`, or as
`package.module:Class`. A file or an entry point holds one `Method`, several, or a learner's class alone.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from fscl.continual.learner import ContinualLearner, LearnerSettings
from fscl.errors import MisuseError, unknown_name
from fscl.nets.network import Network
from fscl.plugins import entry_points_of, is_reference, load_entry_point, load_object, modules_in

GROUP = "fscl.methods"
VARIANT = re.compile(r"[A-Za-z0-9._=-]{1,32}")


@dataclass(frozen=True)
class Method:
    """A learner under a name, with the settings that make it this method.

    Examples:
        >>> find_method("tsc_paper").settings_in_force().slow_rate
        0.01

    Attributes:
        name: as in configurations and in `fscl methods`.
        learner: the class that learns.
        summary: what it does, in a sentence.
        source: who published it, and when.
        settings: what differs from the defaults of the learner's `Settings`.
        on_frozen: the method that a classifier takes instead where the base's own weights may not move.
    """

    name: str
    learner: type[ContinualLearner]
    summary: str
    source: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    on_frozen: str | None = None

    @property
    def module(self) -> str:
        """The module that holds the learner."""
        return self.learner.__module__

    def settings_in_force(self) -> LearnerSettings:
        """Its settings, every one of them."""
        return self.learner.Settings.model_validate(self.settings)


@cache
def methods() -> dict[str, Method]:
    """Every method of this package and of those installed beside it, by name.

    Examples:
        >>> "tsc" in methods()
        True
    """
    found: dict[str, Method] = {}
    families = sorted(modules_in("fscl.continual.methods"), key=lambda module: -len(module.METHODS))
    for module in families:  # the largest first, as they are listed
        found |= {method.name: method for method in module.METHODS}
    for name, point in entry_points_of(GROUP).items():
        for method in _as_methods(name, load_entry_point(point, what="method")):
            if method.name in found:
                raise MisuseError(
                    f"the entry point {name!r} of the group {GROUP!r} brings a method {method.name!r}, and there is one of "
                    f"that name in {found[method.name].module}. Give it another name."
                )
            found[method.name] = method
    return found


def find_method(name: str) -> Method:
    """A method by name, or an error with the nearest name.

    "tsc@k=20" is a variant: the method `tsc` under a name of its own, so that its settings can be set apart.

    Examples:
        >>> find_method("prototypes").summary
        'Class means on the frozen embedding; nothing is trained.'

    Args:
        name: as in `fscl methods`, or `package.module:Class`; a variant has a label after an "@".
    """
    known, label = method_name(name), name.partition("@")[2]
    if "@" in name and not VARIANT.fullmatch(label):
        raise MisuseError(
            f"{name!r} needs a label of letters, digits, '.', '=', '_' or '-' after its '@', such as tsc@k=20."
        )
    if is_reference(known):
        (method, *others) = _as_methods(known, load_object(known, what="method"))
        return replace(method, name=known) if not others else method
    if known not in methods():
        raise unknown_name("method", known, methods())
    return methods()[known]


def method_for(name: str, network: Network) -> Method:
    """The method that a classifier means by a name: on frozen features of pictures, the one made for them."""
    method = find_method(name)
    frozen = not network.params and network.picture_shape is not None
    return find_method(method.on_frozen) if frozen and method.on_frozen is not None else method


def method_name(name: str) -> str:
    """The method of a variant: `tsc` for "tsc@k=20"."""
    return name.partition("@")[0]


def with_changes(settings: LearnerSettings, changes: Mapping[str, Any]) -> LearnerSettings:
    """Settings with some of them changed, checked anew. A value that is given always counts."""
    return type(settings).model_validate(merged(settings.model_dump(), changes))


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with those of `changes`, section by section; a section of another `kind` replaces the old one whole."""
    result = dict(values)
    for key, given in changes.items():
        before = result.get(key)
        if isinstance(before, Mapping) and "kind" in before and isinstance(given, str):
            given = {"kind": given}
        sections = isinstance(before, Mapping) and isinstance(given, Mapping)
        result[key] = merged(before or {}, given) if sections and _same_kind(before, given) else given
    return result


def _same_kind(before: Any, given: Any) -> bool:
    return bool(given.get("kind", before.get("kind")) == before.get("kind"))


def make_learner(
    name: str, network: Network, *, seed: int = 0, settings: Mapping[str, Any] | LearnerSettings | None = None
) -> ContinualLearner:
    """A fresh learner by name.

    Learners with the same seed draw the same new head rows, so that methods are compared on common random numbers.

    Examples:
        >>> import fscl
        >>> fscl.make_learner("tsc", fscl.load_base("glyphs-protonet-conv4"), settings={"slow_rate": 0.1})
        <Consolidation 'tsc': 0 classes learned>

    Args:
        name: as in `fscl methods`, or `package.module:Class`; "tsc@mine" is `tsc` under another name.
        network: what it starts from.
        seed: of every random number.
        settings: those that differ from the method's own; or all of them, checked.
    """
    method = find_method(name)
    if not isinstance(settings, LearnerSettings):
        settings = with_changes(method.settings_in_force(), settings or {})
    learner = method.learner(network, settings, seed=seed)
    learner.name = name
    return learner


def _as_methods(name: str, thing: object) -> list[Method]:
    """What an entry point or a reference leads to, as methods; a class alone is one method under that name."""
    if isinstance(thing, type) and issubclass(thing, ContinualLearner):
        summary = (thing.__doc__ or "A method without a description.").strip().splitlines()[0]
        return [Method(name, thing, summary)]
    if isinstance(thing, Method):
        return [thing]
    if isinstance(thing, Iterable):
        found = list(thing)
        if found and all(isinstance(each, Method) for each in found):
            return found
    raise MisuseError(
        f"{name!r} leads to {type(thing).__name__}, but a method is a class that extends ContinualLearner, a "
        "fscl.continual.registry.Method, or several of these."
    )
