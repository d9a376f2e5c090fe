"""Print the lowest versions that `pyproject.toml` allows, as pins: what `make test-lowest` installs.

Every direct dependency and those of the extras named, at its lower bound; torch is as in `constraints.txt`, because older
builds are not to be had for every Python.

    python tools/lowest.py dev > lowest.txt
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([A-Za-z0-9,._-]+)\])?\s*(?:(?:>=|==)\s*([0-9][0-9A-Za-z.]*))?")


def lowest_pins(project: dict[str, object], extras: list[str], fixed: dict[str, str]) -> list[str]:
    """The pins of a project's dependencies and of its extras; a package in `fixed` has the version given there."""
    name, optional = project["name"], project.get("optional-dependencies", {})
    assert isinstance(optional, dict)
    pins: dict[str, str] = {}

    def add(requirements: list[str]) -> None:
        for requirement in requirements:
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

    dependencies = project["dependencies"]
    assert isinstance(dependencies, list)
    add(dependencies)
    for extra in extras:
        if extra not in optional:
            raise SystemExit(f"no extra named {extra!r}. Known: {', '.join(optional)}.")
        add(optional[extra])
    return [f"{package}=={version}" for package, version in pins.items()]


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    constraints = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    versions = dict(line.split("==") for line in constraints if "==" in line and not line.startswith("#"))
    print("\n".join(lowest_pins(project, sys.argv[1:], {"torch": versions["torch"]})))


if __name__ == "__main__":
    main()
