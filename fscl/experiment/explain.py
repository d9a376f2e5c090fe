"""What is wrong with a configuration, in the words of its file: one line a problem, with the nearest known name."""

import re
from collections.abc import Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from fscl.errors import suggestion


def explain(problem: ErrorDetails, root: type[BaseModel], above: tuple[str, ...] = ()) -> str:
    """One line for one problem that pydantic found in a value of type `root`, which stands under the keys `above`."""
    keys, section = _walk(problem["loc"], root)
    where = ".".join([*map(quoted_key, above), *keys]) or "the whole"
    context, given = problem.get("ctx", {}), problem["input"]
    match problem["type"]:
        case "extra_forbidden":
            known = context.get("known") or sorted(section.model_fields)  # a data set brings its own
            return f"{where}: no such key.{suggestion(keys[-1], known) or ' Known here: ' + ', '.join(known) + '.'}"
        case "union_tag_not_found":
            return f"{where}.{_discriminator(context)}: is needed, because the other keys depend on it."
        case "union_tag_invalid":
            tag, known = str(context["tag"]), _quoted(context["expected_tags"])
            near = f"{suggestion(tag, known)} Known: {', '.join(known)}."
            return f"{where}.{_discriminator(context)}: there is no {tag!r}.{near}"
    message = problem["msg"].removeprefix("Value error, ")
    near = suggestion(given, _quoted(context.get("expected"))) if isinstance(given, str) else ""
    return f"{where}: {message[:1].lower()}{message[1:]}{'.' if near else ''}{near}"


def _discriminator(context: Mapping[str, Any]) -> str:
    """The key that says which kind a section is."""
    return str(context["discriminator"]).strip("'")


def quoted_key(name: str) -> str:
    """A key as TOML wants it."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


def _quoted(text: object) -> list[str]:
    return re.findall(r"'([^']+)'", str(text))


def _walk(location: tuple[int | str, ...], root: type[BaseModel]) -> tuple[list[str], type[BaseModel]]:
    """The keys as they stand in the file, without pydantic's marks for unions, and the section that they lead into."""
    here: Any = root
    section, keys = root, []
    for part in location:
        if part == "[key]":
            continue
        here = _without_none(here)
        if get_origin(here) in (Union, UnionType):  # the part says which member was tried; the file has no such key
            here = next((option for option in get_args(here) if _tag(option) == part), None)
        elif _is_section(here):
            keys.append(str(part))
            field = here.model_fields.get(str(part))
            here = None if field is None else field.annotation
        else:
            keys.append(str(part))
            here = {dict: get_args(here)[-1:], tuple: get_args(here)[:1]}.get(get_origin(here), (None,))[0]
        section = here if _is_section(here) else section
    return keys, section


def _without_none(annotation: Any) -> Any:
    """The section that may be left out: pydantic makes no mark for a choice between one type and nothing."""
    kept = [option for option in get_args(annotation) if option is not type(None)]
    return kept[0] if get_origin(annotation) in (Union, UnionType) and len(kept) == 1 else annotation


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _tag(annotation: Any) -> Any:
    """By what value of its discriminator a section is chosen."""
    fields = annotation.model_fields if _is_section(annotation) else {}
    return next((fields[key].default for key in ("method", "kind", "name") if key in fields), None)
