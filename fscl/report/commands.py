"""How to make a run again: its command, and its configuration as a file."""

import shlex
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from fscl.errors import ConfigError
from fscl.experiment.config import load_config, load_plan
from fscl.experiment.toml import shipped_configs, toml_text, toml_value
from fscl.storage import leaves


def run_command(config: dict[str, Any], folder: str | None) -> str | None:
    """The command that makes this run from a shipped configuration (in its usual folder unless one is given); None where
    only the listing can."""
    out = [] if folder is None else ["--out", folder]
    name = str(config["name"])
    for plan in _plans_with(name):
        if any(part.resolved() == config for part in load_plan(plan).configs):
            return shlex.join(["fscl", "run", plan, "--part", name, *out])
    if name not in shipped_configs() or _plans_with(name):
        return None
    shipped = load_config(name).resolved()
    before, now = leaves(shipped), leaves(config)
    changed = {key: value for key, value in now.items() if value is not None and value != before.get(key)}
    if any(isinstance(value, str) and shown_path(value) != value for value in changed.values()):
        return None
    overrides = [f"{key}={toml_value(value)}" for key, value in changed.items()]
    try:
        if load_config(name, overrides).resolved() != config:
            return None
    except ConfigError:
        return None
    return shlex.join(["fscl", "run", name, *overrides, *out])


def _plans_with(name: str) -> list[str]:
    """The shipped configurations of several parts, one of which is called so."""
    plans = {plan: load_plan(plan).configs for plan in shipped_configs()}
    return [plan for plan, parts in plans.items() if len(parts) > 1 and any(part.name == name for part in parts)]


def toml_listing(config: dict[str, Any]) -> str:
    """A configuration file with every value in force; absolute paths are cut to their last part."""
    content = {key: value for key, value in config.items() if value is not None}
    base = content["base"]
    if base.get("use") is not None:
        tail = {"tail": base["tail"]} if base.get("tail") else {}
        content["base"] = {"use": shown_path(base["use"]), **tail}  # the rest of the section had no effect
    for key in ("data", "base_data"):
        if (content.get(key) or {}).get("path") is not None:
            content[key] = {**content[key], "path": shown_path(content[key]["path"])}
    return toml_text(content)


def shown_path(path: str) -> str:
    """A path as it was given; of an absolute one, which says more of the machine than of the run, the last part."""
    for flavour in (PurePosixPath(path), PureWindowsPath(path)):
        if flavour.is_absolute():
            return flavour.name
    return path
