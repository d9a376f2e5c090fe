"""The pins that `make test-lowest` installs are the lower bounds of `pyproject.toml`."""

import sys
import tomllib

import pytest

from tests.children import run_child
from tests.conftest import ROOT
from tools.lowest import lowest_pins

TOY = {
    "project": {
        "name": "toy",
        "dependencies": ["torch>=2.4", "rich>=14.3"],
        "optional-dependencies": {
            "serve": ["starlette>=1.3", "toy[more]"],
            "more": ["onnx==1.17"],
            "other": ["ray>=2"],
        },
    },
    "dependency-groups": {"dev": ["pytest>=8.2", {"include-group": "docs"}], "docs": ["zensical==0.0.73"]},
}


def test_pins_are_the_lower_bounds_of_dependencies_extras_and_groups_with_all_that_they_take_in():
    pins = lowest_pins(TOY, ["serve", "dev"], {"torch": "2.13.0"})
    assert pins == [
        "torch==2.13.0",
        "rich==14.3",
        "starlette==1.3",
        "onnx==1.17",
        "pytest==8.2",
        "zensical==0.0.73",
    ]


def test_an_unknown_group_is_named():
    with pytest.raises(SystemExit, match=r"no extra or group named 'doc'\. Known: serve, more, other, dev, docs"):
        lowest_pins(TOY, ["doc"], {})


@pytest.mark.parametrize("requirement", ["rich", "rich<15", "rich>=14,<15"])
def test_a_dependency_without_one_lower_bound_is_refused(requirement: str):
    with pytest.raises(SystemExit, match="write it as 'name>=version'"):
        lowest_pins({"project": {"name": "toy", "dependencies": [requirement]}}, [], {})


def test_every_direct_dependency_of_the_package_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = run_child([sys.executable, "tools/lowest.py", "export,photos,serve", "dev"]).stdout.split()
    names = [pin.partition("==")[0] for pin in pins]
    assert {name.partition(">=")[0] for name in project["dependencies"]} <= set(names)
    assert {"pytest", "onnxscript"} <= set(names)
    assert len(set(names)) == len(names)
