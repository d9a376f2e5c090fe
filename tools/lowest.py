"""Print the lowest versions that `pyproject.toml` allows, as pins: what `make test-lowest` installs.

Every direct dependency and those of the extras and dependency groups named, at its lower bound; torch is as in
`constraints.txt`, because older builds are not to be had for every Python.

    python tools/lowest.py export,photos dev > lowest.txt
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([A-Za-z0-9,._-]+)\])?\s*(?:(?:>=|==)\s*([0-9][0-9A-Za-z.]*))?")


def lowest_pins(content: dict[str, Any], parts: list[str], fixed: dict[str, str]) -> list[str]:
    """The pins of a project's dependencies, and of its extras and groups named `parts`.

    Args:
        content: a `pyproject.toml`, read.
        parts: names of extras and of dependency groups.
        fixed: versions that are taken instead of the lower bounds.
    """
    project = content["project"]
    name, optional = project["name"], project.get("optional-dependencies", {})
    known = optional | content.get("dependency-groups", {})
    pins: dict[str, str] = {}

    def add(requirements: list[str | dict[str, str]]) -> None:
        for requirement in requirements:
            if isinstance(requirement, dict):
                add(known[requirement["include-group"]])
                continue
            found = REQUIREMENT.fullmatch(requirement)
            if found is None:
                raise SystemExit(f"{requirement!r} has no single lower bound; write it as 'name>=version'.")
            package, parts, version = found.groups()
            if package == name:  # an extra that takes in another one
                for part in parts.split(","):
                    add(optional[part])
            elif version is None:
                raise SystemExit(f"{requirement!r} has no lower bound; write it as 'name>=version'.")
            else:
                pins[package] = fixed.get(package, version)

    add(project["dependencies"])
    for part in parts:
        if part not in known:
            raise SystemExit(f"no extra or group named {part!r}. Known: {', '.join(known)}.")
        add(known[part])
    return [f"{package}=={version}" for package, version in pins.items()]


def main() -> None:
    content = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    constraints = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    versions = dict(line.split("==") for line in constraints if "==" in line and not line.startswith("#"))
    parts = [part for argument in sys.argv[1:] for part in argument.split(",")]
    print("\n".join(lowest_pins(content, parts, {"torch": versions["torch"]})))


if __name__ == "__main__":
    main()
