"""The file of a study: which bases are trained, which runs are made with them, and in what order that can be.

A base or a run is a table: the configuration that it is (`config`), and the keys in which it differs, as in the parts of a
configuration. `each` makes one run of every combination of its values.
"""

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fscl.errors import ConfigError
from fscl.experiment.config import Config, make_config
from fscl.experiment.explain import explain
from fscl.experiment.search.spec import refuse_search
from fscl.experiment.toml import apply_override, merged, nested, read_toml, toml_value
from fscl.meta.shipped import shipped_bases
from fscl.storage import leaves

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
MOST_RUNS = 1000
OWN_KEYS = ("name", "config", "processes", "each")


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = Field(pattern=NAME)
    config: str


class _BaseEntry(_Entry):
    processes: int = Field(default=1, ge=1, le=1024)


class _RunEntry(_Entry):
    each: dict[str, Any] = {}


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=NAME)
    bases: tuple[_BaseEntry, ...] = ()
    runs: tuple[_RunEntry, ...] = Field(min_length=1)


@dataclass(frozen=True)
class StudyBase:
    """A base that a study trains. `after` is the base of the study that its training starts from, if any."""

    name: str
    config: Config
    processes: int
    after: str | None


@dataclass(frozen=True)
class StudyRun:
    """A run of a study; `after` is the base of the study that it begins with, if any."""

    name: str
    config: Config
    after: str | None


@dataclass(frozen=True)
class Study:
    """What a file stands for: bases in an order in which they can be trained, and runs in the order of the file."""

    name: str
    bases: tuple[StudyBase, ...]
    runs: tuple[StudyRun, ...]


def load_study(path: str, overrides: Iterable[str] = ()) -> Study:
    """A study from its TOML file; `key=value` overrides go to every base and every run."""
    if Path(path).suffix != ".toml":
        raise ConfigError(f"a study is a .toml file with [[runs]], but {path!r} is not called so.")
    try:
        file = _File.model_validate(read_toml(path))
    except ValidationError as error:
        problems = "\n".join(f"  - {explain(problem, _File)}" for problem in error.errors())
        raise ConfigError(f"{path} is no study that can be made:\n{problems}") from error
    given = list(overrides)
    named = [base.name for base in file.bases]
    _refuse_names(path, named)
    bases = [_base(entry, named, given) for entry in file.bases]
    runs = [run for entry in file.runs for run in _runs(entry, named, given)]
    _refuse_twice(path, "runs", [run.name for run in runs])
    if len(runs) > MOST_RUNS:
        raise ConfigError(f"{path} stands for {len(runs)} runs; a study has at most {MOST_RUNS}.")
    used = {base.after for base in bases} | {run.after for run in runs}
    unused = [name for name in named if name not in used]
    if unused:
        raise ConfigError(
            f"{path} would train the base {unused[0]!r}, but no run has base.use = {unused[0]!r}; remove it."
        )
    return Study(file.name, _in_order(path, bases), tuple(runs))


def _refuse_names(path: str, names: list[str]) -> None:
    _refuse_twice(path, "bases", names)
    for name in names:
        if name in shipped_bases():
            raise ConfigError(
                f"{path} has a base {name!r}, but one of that name comes with fscl; give it another name."
            )


def _refuse_twice(path: str, what: str, names: list[str]) -> None:
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise ConfigError(f"{path} has two {what} of the name {twice[0]!r}; each needs its own.")


def _base(entry: _BaseEntry, named: list[str], overrides: list[str]) -> StudyBase:
    config = _config(entry, {}, entry.name, overrides)
    if config.base.use is not None:
        raise ConfigError(
            f"the base {entry.name!r} is to be trained, but {entry.config} has base.use = {config.base.use!r}, which brings "
            "one. Name a configuration for `fscl train`."
        )
    return StudyBase(entry.name, config, entry.processes, config.base.start if config.base.start in named else None)


def _runs(entry: _RunEntry, named: list[str], overrides: list[str]) -> list[StudyRun]:
    """One for every combination of the values of `each`."""
    each = leaves(entry.each)
    for path, values in each.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(
                f"the run {entry.name!r}: each.{path} is {toml_value(values)}, but it must be a list of values."
            )
    found = []
    for values in itertools.product(*each.values()):
        changes = nested(dict(zip(each, values, strict=True)))
        name = "-".join([entry.name, *map(_word, values)])
        if not re.fullmatch(NAME, name):
            raise ConfigError(f"{name!r} is no name for a run: at most 64 letters; shorten {entry.name!r}.")
        config = _config(entry, changes, name, overrides)
        found.append(StudyRun(name, config, config.base.use if config.base.use in named else None))
    return found


def _word(value: Any) -> str:
    text = Path(value).stem if isinstance(value, str) else str(value)
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-") or "x"


def _config(entry: _Entry, changes: Mapping[str, Any], name: str, overrides: list[str]) -> Config:
    own = {key: value for key, value in (entry.model_extra or {}).items() if key not in OWN_KEYS}
    content = merged(merged(read_toml(entry.config), own), changes)
    if "parts" in content:
        raise ConfigError(f"{name!r}: {entry.config} stands for several configurations; name one of them.")
    content["name"] = name
    for override in overrides:
        apply_override(content, override)
    refuse_search(content.get("search"), name)
    return make_config(content, source=f"{name}, of a study, made from {entry.config},")


def _in_order(path: str, bases: list[StudyBase]) -> tuple[StudyBase, ...]:
    """Each after the one that it starts from."""
    found: dict[str, StudyBase] = {}
    while len(found) < len(bases):
        ready = [base for base in bases if base.name not in found and (base.after is None or base.after in found)]
        if not ready:
            circle = ", ".join(base.name for base in bases if base.name not in found)
            raise ConfigError(
                f"{path}: of the bases {circle} each starts from another of them; one must start elsewhere."
            )
        found |= {base.name: base for base in ready}
    return tuple(found.values())
