"""The pins that `make test-lowest` installs are the lower bounds of `pyproject.toml`."""

import sys
import tomllib

import pytest

from tests.children import run_child
from tests.conftest import ROOT
from tools.lowest import lowest_pins

PROJECT = {
    "name": "toy",
    "dependencies": ["torch>=2.4", "rich>=14.3"],
    "optional-dependencies": {"dev": ["pytest>=8.2", "toy[more]"], "more": ["onnx==1.17"], "other": ["ray>=2"]},
}


def test_pins_are_the_lower_bounds_of_dependencies_and_of_the_extras_that_an_extra_takes_in():
    pins = lowest_pins(PROJECT, ["dev"], {"torch": "2.13.0"})
    assert pins == ["torch==2.13.0", "rich==14.3", "pytest==8.2", "onnx==1.17"]


@pytest.mark.parametrize("requirement", ["rich", "rich<15", "rich>=14,<15"])
def test_a_dependency_without_one_lower_bound_is_refused(requirement: str):
    with pytest.raises(SystemExit, match="write it as 'name>=version'"):
        lowest_pins({"name": "toy", "dependencies": [requirement]}, [], {})


def test_every_direct_dependency_of_the_package_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = run_child([sys.executable, "tools/lowest.py", "dev"]).stdout.split()
    names = [pin.partition("==")[0] for pin in pins]
    assert {name.partition(">=")[0] for name in project["dependencies"]} <= set(names)
    assert {"pytest", "onnxscript"} <= set(names)
    assert len(set(names)) == len(names)
