"""A page for each method: its idea, citation, equation, settings, where it departs from its paper, and its figures."""

import inspect
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from docs.tools.reproduction import is_first_edition
from docs.tools.runs import summaries
from docs.tools.schema import sentences, type_of
from docs.tools.site import DOCS, Made
from fscl.continual.registry import Method, methods
from fscl.plugins import modules_in
from fscl.report.summary import MethodSummary, Summary

DEPARTS = re.compile(r"^Departs from the papers?[^:]*:", re.MULTILINE)


def method_pages() -> Made:
    """An index, and a page for each method of the package."""
    homes = {method.name: module for module in modules_in("fscl.continual.methods") for method in module.METHODS}
    pages = {
        f"reference/methods/{name}.md": _page(method, homes[name])
        for name, method in methods().items()
        if name in homes
    }
    lines = [
        "# Methods",
        "",
        "What can be compared, and what a classifier can learn with. [A method of your "
        "own](../../tutorials/adding-a-method.md) is one file.",
        "",
        "| method | what it does | source |",
        "|---|---|---|",
    ]
    lines += [
        f"| [`{name}`]({name}.md) | {_cell(method.summary)} | {_cell(method.source)} |"
        for name, method in methods().items()
        if name in homes
    ]
    pages["reference/methods/index.md"] = "\n".join(lines) + "\n"
    return pages, {}


def equation_of(name: str) -> str:
    """What a method computes, from docs/reference/equations.toml."""
    known = tomllib.loads((DOCS / "reference" / "equations.toml").read_text("utf-8"))
    return str(known[known["same"].get(name, name)]).strip()


def _page(method: Method, home: Any) -> str:
    idea, departs = _idea(home, method)
    lines = [f"# `{method.name}`", "", method.summary, "", "## Idea", "", idea, ""]
    lines += [
        "## Source",
        "",
        method.source or "See the idea.",
        "",
        f"Code: `{method.module}`, named in `{home.__name__}`.",
        "",
    ]
    lines += ["## Equation", "", *(f"    {line}" for line in equation_of(method.name).splitlines()), ""]
    lines += ["## Settings", "", *_settings(method), "", "## Departs from the paper", "", departs, ""]
    lines += ["## Figures", "", *_figures(method.name)]
    return "\n".join(lines) + "\n"


def _idea(home: Any, method: Method) -> tuple[str, str]:
    """What the docstrings of the method's module and of its learner's say before and after "Departs from the paper"."""
    texts = [inspect.getdoc(import_module(method.module)) or ""]
    if home.__name__ != method.module:
        texts.append(inspect.getdoc(home) or "")
    parts = [DEPARTS.split(text, maxsplit=1) for text in texts]
    departs = "\n\n".join(part[1].strip() for part in parts if len(part) > 1)
    return "\n\n".join(part[0].strip() for part in parts), departs or "Nothing that we know of."


def _settings(method: Method) -> list[str]:
    settings = method.settings_in_force()
    told, fields = sentences(type(settings)), type(settings).model_fields
    values = settings.model_dump(mode="json")
    if not values:
        return ["None."]
    lines = [
        f"Set them with `settings.{method.name}.KEY=VALUE` in a configuration, or `settings={{…}}` in Python.",
        "",
        "| key | value | type | |",
        "|---|---|---|---|",
    ]
    for key, value in values.items():
        lines.append(f"| `{key}` | {_value(value)} | {_cell(type_of(fields[key]))} | {_cell(told.get(key, ''))} |")
    return lines


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "<br>".join(f"`{key}` = {_value(inner)}" for key, inner in value.items())
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "<br>".join(_value(inner) for inner in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _figures(name: str) -> list[str]:
    found = list(_rows(name))
    if not found:
        return ["No committed run has it yet."]
    return [
        "Accuracy in % at the end of each run that has it, mean ± 95 % interval, and the paired difference to class means.",
        "",
        "| run | row | sequences | classes | accuracy | minus class means |",
        "|---|---|---|---|---|---|",
        *found,
    ]


def _rows(name: str) -> Iterator[str]:
    for summary in summaries().values():
        for method in summary.methods:
            if method.method.split("@")[0] == name and method.accuracy:
                yield _row(summary, method)


def _row(summary: Summary, method: MethodSummary) -> str:
    last = list(method.accuracy)[-1]
    difference = method.minus_class_means.get(last)
    told = "" if difference is None else difference.show(signed=True)
    link = f"[{summary.name}](../../benchmarks/runs/{summary.name}.md)"
    edition = " (first edition)" if is_first_edition(method) else ""
    cells = (link, f"`{method.method}`{edition}", method.n_sequences, last, method.accuracy[last].show(), told)
    return f"| {' | '.join(map(str, cells))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
