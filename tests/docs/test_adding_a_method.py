"""The page "Adding a method", word for word: outside the package, with no other file touched."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from fscl.estimator import ContinualClassifier
from tests.children import FSCL, run_child
from tests.conftest import ROOT
from tests.plugging import installed

PAGE = (ROOT / "docs" / "tutorials" / "adding-a-method.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of somebody else's, with the module and the configuration of the page."""
    module, test = blocks("python")
    (tmp_path / "my_methods.py").write_text(module)
    (tmp_path / "test_my_methods.py").write_text(test)
    (tmp_path / "medians.toml").write_text(blocks("toml")[0])
    return tmp_path


def run(folder: Path, *arguments: str) -> str:
    paths = os.pathsep.join([str(folder), str(ROOT)])
    return run_child(arguments, cwd=folder, env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "200"}).stdout


@pytest.mark.slow
def test_the_method_of_the_page_goes_through_a_run_with_two_workers_and_its_report(outside: Path):
    printed = run(outside, *FSCL, "run", "medians.toml", "--workers", "2", "--out", "out")
    assert "my_methods:Medians" in printed
    assert printed.splitlines()[-1] == str(Path("out") / "report.html")
    assert "shots = 3" in (outside / "out" / "report.html").read_text()
    shown = run(outside, *FSCL, "show", "my_methods:Medians")
    assert "Answers with the class of the nearest median feature." in shown
    assert 'settings."my_methods:Medians".KEY' in shown
    assert "shots = 100" in shown


def test_an_entry_point_gives_it_a_name(outside: Path):
    (name, value) = re.findall(r'^(\w+) = "(.*)"$', blocks("toml")[1], re.MULTILINE)[0]
    installed(outside, "fscl.methods", {name: value})
    assert "medians       Answers with the class of the nearest median" in run(outside, *FSCL, "methods")
    short = (outside / "medians.toml").read_text().replace('"my_methods:Medians"', '"medians"')
    (outside / "short.toml").write_text(short)
    assert "valid" in run(outside, *FSCL, "check", "short.toml")


def test_the_test_of_the_page_passes(outside: Path):
    assert "1 passed" in run(
        outside, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_methods.py"
    )


@pytest.mark.slow
def test_the_module_of_the_page_is_well_typed(outside: Path):
    printed = run(
        outside, sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(outside / "cache"), "my_methods.py"
    )
    assert "Success" in printed


@pytest.mark.slow
def test_the_classifier_takes_it(outside: Path, monkeypatch: pytest.MonkeyPatch):
    """Teach, ask, forget, undo, explain, save, load, export."""
    monkeypatch.syspath_prepend(str(outside))
    monkeypatch.delitem(sys.modules, "my_methods", raising=False)
    random = np.random.default_rng(0)
    patterns = random.integers(0, 256, (3, 32, 32), dtype=np.uint8)
    pictures = np.concatenate([np.clip(pattern + random.normal(0, 20, (4, 32, 32)), 0, 255) for pattern in patterns])
    pictures, labels = pictures.astype(np.uint8), np.repeat(["a", "b", "c"], 4)
    model = ContinualClassifier("glyphs-protonet-conv4", "my_methods:Medians", settings={"shots": 3})
    model.partial_fit(pictures[:8], labels[:8]).partial_fit(pictures[8:], labels[8:])
    assert model.predict(pictures).tolist() == labels.tolist()
    assert model.explain(pictures[9]).label == "c"
    assert model.undo().classes_.tolist() == ["a", "b"]
    model.partial_fit(pictures[8:], labels[8:]).forget("a")
    assert model.classes_.tolist() == ["b", "c"]
    model.save(outside / "model")
    again = ContinualClassifier.load(outside / "model")
    assert np.array_equal(again.predict_proba(pictures), model.predict_proba(pictures))
    assert again.export(outside / "model.onnx").largest_difference < 1e-4
