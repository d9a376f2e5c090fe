"""The page of the command line, from the commands themselves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from docs.tools.site import Made


def cli_pages() -> Made:
    """Every command: what it does, how it is called, its arguments and options."""
    import typer

    from fscl.cli import app

    commands = dict(_commands(typer.main.get_command(app), "fscl"))
    lines = [
        "# Command line",
        "",
        "Results go to stdout, progress to stderr; the last line is the path that was written. Exit codes: 0 done, "
        "1 failed, 2 misused. `fscl COMMAND --help` prints the same as here.",
        "",
        "| command | what it does |",
        "|---|---|",
    ]
    lines += [
        f"| [`{name}`](#{name.replace(' ', '-')}) | {_first(command.help)} |" for name, command in commands.items()
    ]
    for name, command in commands.items():
        lines += ["", *_section(name, command)]
    return {"reference/command-line.md": "\n".join(lines) + "\n"}, {}


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, inner in command.commands.items():
        if hasattr(inner, "commands"):
            yield from _commands(inner, f"{path} {name}")
        elif not inner.hidden:
            yield f"{path} {name}", inner


def _first(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split()).replace("|", "\\|")


def _section(name: str, command: Any) -> list[str]:
    given = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter not in given]
    shown = [_argument(parameter) for parameter in given]
    call = " ".join([name, *shown, *(["[OPTIONS]"] if options else [])])
    lines = [f"## `{name}`", "", _first(command.help), "", f"    {call}"]
    if not command.params:
        return lines
    lines += ["", "| | | default |", "|---|---|---|"]
    lines += [f"| `{_cell(_argument(parameter))}` | {_first(parameter.help)} | |" for parameter in given]
    return lines + [_option(parameter) for parameter in options]


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _option(parameter: Any) -> str:
    names = ", ".join(parameter.opts)
    value = "" if parameter.is_flag else f" {parameter.metavar or _kind(parameter.type_descriptor.annotation)}"
    default = "" if parameter.default in (None, False) or callable(parameter.default) else f"`{parameter.default}`"
    return f"| `{_cell(names + value)}` | {_first(parameter.help)} | {default} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _kind(annotation: Any) -> str:
    for kind, name in ((int, "N"), (float, "NUMBER"), (Path, "PATH")):
        if kind in (annotation, *get_args(annotation)):
            return name
    return "TEXT"
