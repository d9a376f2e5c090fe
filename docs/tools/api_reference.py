"""The pages of the API: one for each group of public names, rendered from their docstrings by mkdocstrings."""

import ast
from pathlib import Path

from docs.tools.site import ROOT, Made

GROUPS = {
    "classifier": ("A classifier of your own", "Teach, ask, correct, forget, undo, save.", ("fscl.estimator",)),
    "learners": ("Learners and methods", "What learns task after task.", ("fscl.continual", "fscl.testing")),
    "data": ("Data and streams", "Images by class, and the tasks drawn from them.", ("fscl.data",)),
    "evaluation": ("Evaluation", "Learning a stream, and what is measured.", ("fscl.evaluation",)),
    "networks": ("Networks and bases", "What every learner starts from.", ("fscl.nets", "fscl.meta")),
    "plumbing": ("Processes, random numbers, errors", "What every script begins with.", ("fscl",)),
}
"""A page each: its title, a sentence, and the packages whose names it shows; the first group that fits has a name."""

BESIDE = ("fscl.testing.check_learner", "fscl.evaluation.observer.Observer")
"""Names of submodules that people outside build on, beside those of `fscl` itself."""


def public_names() -> list[str]:
    """Every name that the reference has, with its module: those of `fscl/__init__.pyi`, and some beside."""
    listing = ast.parse((ROOT / "fscl" / "__init__.pyi").read_text("utf-8"))
    imports = [statement for statement in listing.body if isinstance(statement, ast.ImportFrom)]
    return [f"{statement.module}.{alias.name}" for statement in imports for alias in statement.names] + list(BESIDE)


def api_pages() -> Made:
    """An index with a line for each name, and the pages of the groups."""
    grouped: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name in public_names():
        group = next(
            group for group, (_, _, homes) in GROUPS.items() if any(name.startswith(f"{home}.") for home in homes)
        )
        grouped[group].append(name)
    index = ["# API", "", "All of it from `import fscl`, unless a name says its module. Examples run as tests.", ""]
    pages = {}
    for group, names in grouped.items():
        title, sentence, _ = GROUPS[group]
        index += [f"## [{title}]({group}.md)", "", sentence, ""]
        index += [f"- [`{_short(name)}`]({group}.md#{name})" for name in names] + [""]
        body = "\n".join(f"::: {name}\n" for name in names)
        pages[f"reference/api/{group}.md"] = f"# {title}\n\n{sentence}\n\n{body}"
    pages["reference/api/index.md"] = "\n".join(index)
    return pages, {}


def _short(name: str) -> str:
    return name if name in BESIDE else f"fscl.{Path(name).name.rpartition('.')[2]}"
