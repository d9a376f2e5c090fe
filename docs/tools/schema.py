"""What a schema says of itself: keys, types, defaults and the sentences of its docstring, for tables."""

import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

ENTRY = re.compile(r"^(?P<names>[a-z_]+(?:, [a-z_]+)*): (?P<text>.*)$")


def sentences(schema: type) -> dict[str, str]:
    """What the docstring of a class, or of one that it extends, says of each attribute."""
    found: dict[str, str] = {}
    for part in reversed(schema.__mro__):
        names: list[str] = []
        for line in (part.__doc__ or "").partition("Attributes:\n")[2].splitlines():
            entry = ENTRY.match(line.strip())
            if entry:
                names = entry["names"].split(", ")
                found |= dict.fromkeys(names, entry["text"])
            elif line.strip():
                found |= {name: f"{found[name]} {line.strip()}" for name in names}
            else:
                names = []
    return found


def rows(schema: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Key, type, default and meaning of every field; a section within is followed by its own keys."""
    told = sentences(schema)
    for name, field in schema.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel) and inner.model_fields and not field.is_required():
            yield from rows(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", type_of(field), default_of(field), told.get(name, field.description or "")


def table(lines: Iterator[tuple[str, str, str, str]]) -> list[str]:
    """Rows as Markdown."""
    result = ["| key | type | default | |", "|---|---|---|---|"]
    for key, kind, default, text in lines:
        result.append(f"| `{key}` | {_cell(kind)} | {f'`{_cell(default)}`' if default else ''} | {_cell(text)} |")
    return result


def type_of(field: FieldInfo) -> str:
    """The type of a field in the words of TOML, with its bounds."""
    bounds = []
    for rule in field.metadata:
        for sign, name in (("≥", "ge"), (">", "gt"), ("≤", "le"), ("<", "lt")):
            limit = getattr(rule, name, None)
            if limit is not None:
                bounds.append(f"{sign} {limit:,}" if isinstance(limit, int) else f"{sign} {limit}")
    return ", ".join([_type(field.annotation), *bounds])


def default_of(field: FieldInfo) -> str:
    """The default as TOML would have it; nothing for what must be given, and for what is left out unless given."""
    value = field.get_default(call_default_factory=True, validated_data={}) if not field.is_required() else None
    if value is None or isinstance(value, BaseModel) or value == {}:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return "[" + ", ".join(f'"{item}"' if isinstance(item, str) else str(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _type(annotation: Any) -> str:
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f'"{value}"' if isinstance(value, str) else str(value).lower() for value in inside)
    if hasattr(annotation, "__metadata__"):
        return _type(inside[0])
    if origin in (tuple, list):
        return f"list of {_type(inside[0])}"
    if origin is dict:
        return "section"
    if inside:
        return " or ".join(dict.fromkeys(_type(part) for part in inside if part is not type(None)))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        kind = annotation.model_fields.get("kind")
        return f'"{kind.default}"' if kind else "section"
    words = {int: "whole number", float: "number", bool: "true or false", str: "text"}
    return words.get(annotation, getattr(annotation, "__name__", str(annotation)).lower())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
