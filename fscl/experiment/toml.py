"""Configurations as TOML: those that come with the package and files, overrides, and the way back to text."""

import json
import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from fscl.errors import ConfigError, suggestion

MAX_CONFIG_BYTES = 2**20
OVERRIDE = re.compile(r'((?:"[^"]*"|[^".=]*)(?:\.(?:"[^"]*"|[^".=]*))*)=(.*)', re.DOTALL)
KEY_PART = re.compile(r'(?:^|\.)\s*(?:"([^"]*)"\s*|([^".]*))')


def shipped_configs() -> dict[str, str]:
    """The configurations that come with the package: name to text."""
    folder = files("fscl.experiment") / "configs"
    return {
        entry.name.removesuffix(".toml"): entry.read_text("utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".toml")
    }


def read_toml(name_or_path: str) -> dict[str, Any]:
    """The content of a shipped configuration by name, or of a TOML file by path."""
    source, text = _read(name_or_path)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source} is not valid TOML: {error}.") from error


def _read(name_or_path: str) -> tuple[str, str]:
    shipped = shipped_configs()
    if name_or_path in shipped:
        return name_or_path, shipped[name_or_path]
    path = Path(name_or_path)
    if path.suffix != ".toml" and not path.exists():
        near = suggestion(name_or_path, shipped)
        raise ConfigError(
            f"no configuration named {name_or_path!r}.{near} Shipped: {', '.join(shipped)}; or give a .toml file."
        )
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ConfigError(f"{path} has more than {MAX_CONFIG_BYTES:,} bytes; a configuration is a small TOML file.")
        return str(path), path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text in UTF-8, so it is no TOML file.") from error


def merged(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`content` with the values of `changes`, section by section."""
    result = dict(content)
    for key, value in changes.items():
        known = result.get(key)
        result[key] = merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return result


def apply_override(content: dict[str, Any], override: str) -> None:
    """Set one value of `content` by `key=value`, as on the command line."""
    found = OVERRIDE.fullmatch(override)
    key, value = found.groups() if found else ("", "")
    parts = [quoted or bare.strip() for quoted, bare in KEY_PART.findall(key)]
    if not all(parts) or not parts:
        raise ConfigError(f"the override {override!r} is not of the form key=value, such as stream.n_tasks=5.")
    try:
        table = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        table = {}
    parsed = table["value"] if table.keys() == {"value"} else value.strip()  # a bare word is a string
    section = content
    for part in parts[:-1]:
        section = section.setdefault(part, {})
        if not isinstance(section, dict):
            raise ConfigError(f"the override {override!r} goes into {part!r}, which is a value and not a section.")
    section[parts[-1]] = parsed


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Values by their path as sections: `{"a.b": 1}` is `{"a": {"b": 1}}`."""
    result: dict[str, Any] = {}
    for path, value in flat.items():
        inner = value
        for key in reversed(path.split(".")):
            inner = {key: inner}
        result = merged(result, inner)
    return result


def toml_text(content: Mapping[str, Any]) -> str:
    """A file with these values; those that are None are left out."""
    return "\n".join(_section((), content)).strip() + "\n"


def _section(path: tuple[str, ...], content: Mapping[str, Any]) -> list[str]:
    values = {key: value for key, value in content.items() if not isinstance(value, dict) and value is not None}
    sections = {key: value for key, value in content.items() if isinstance(value, dict)}
    lines = ["", f"[{'.'.join(_key(part) for part in path)}]"] if path and values else []
    lines += [f"{_key(key)} = {toml_value(value)}" for key, value in values.items()]
    for key, inner in sections.items():
        lines += _section((*path, key), inner)
    return lines


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def toml_value(value: Any) -> str:
    """A JSON value without objects; JSON and TOML agree on those."""
    return json.dumps(value, ensure_ascii=False)
