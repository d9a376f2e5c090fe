"""Every public name has an example that runs, and says what its parameters are."""

import doctest
import inspect
from importlib import import_module
from pathlib import Path

import pytest

import fscl
from docs.tools.api_reference import public_names
from tests.conftest import ROOT, real_path

MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "fscl").rglob("*.py"))
    if ">>> " in path.read_text("utf-8")
]
NEEDS_DATA = {"fscl.data.sets.omniglot": "omniglot"}


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str, monkeypatch: pytest.MonkeyPatch):
    if name in NEEDS_DATA:
        monkeypatch.setenv("FSCL_DATA", str(real_path(NEEDS_DATA[name]).parent))
    failed, tried = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    assert tried
    assert not failed


@pytest.mark.parametrize("name", public_names())
def test_a_public_name_has_an_example_and_tells_its_parameters(name: str):
    thing = inspect.unwrap(import_from(name))
    text = inspect.getdoc(thing) or ""
    assert ">>> " in text
    if issubclass(thing, Exception) if inspect.isclass(thing) else False:
        return
    told = text.partition("Args:\n")[2] or text.partition("Attributes:\n")[2]
    for parameter in inspect.signature(thing).parameters:
        assert f" {parameter}:" in told or f"{parameter}," in told or f", {parameter}:" in told, parameter


def import_from(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def test_every_name_of_the_package_is_in_the_reference():
    listed = {name.rpartition(".")[2] for name in public_names()}
    assert set(fscl.__all__) - {"__version__"} <= listed
    assert Path(fscl.__file__).with_suffix(".pyi").exists()
