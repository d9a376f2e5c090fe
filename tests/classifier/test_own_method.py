"""A method from outside the package does all that the methods of the package do, with no other file touched."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from fscl import ContinualClassifier
from fscl.continual import registry
from fscl.errors import MisuseError
from fscl.testing import POOL, check_learner
from tests.classifier.models import BASE, examples

REFERENCE = "toy_method:Medians"
PROBE = POOL.images[:20, 0].numpy()


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.delitem(sys.modules, "toy_method", raising=False)


def test_a_method_by_reference_is_taught_asked_undone_saved_and_loaded(tmp_path: Path):
    model = ContinualClassifier(BASE, REFERENCE, settings={"scale": 2.0}).partial_fit(*examples(0, 1, 2))
    first = model.predict_proba(PROBE)
    model.partial_fit(*examples(3, 0, start=3))
    assert model.classes_.tolist() == ["class-0", "class-1", "class-2", "class-3"]
    assert model.memory_.per_class["class-0"] == 6
    assert np.array_equal(model.undo().predict_proba(PROBE), first)
    answer = model.explain(POOL.of_class(1)[0, 0].numpy())
    assert (answer.label, answer.nearest[0].distance) == ("class-1", pytest.approx(0, abs=1e-4))
    model.save(tmp_path / "model")
    model.partial_fit(*examples(3))
    again = ContinualClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(PROBE), model.predict_proba(PROBE))
    again.forget("class-1")  # it cannot take a class out, and is taught the others again
    never = ContinualClassifier(BASE, REFERENCE, settings={"scale": 2.0}).partial_fit(*examples(0, 2, 3))
    assert np.allclose(again.predict_proba(PROBE), never.predict_proba(PROBE))
    assert again.memory_.per_class == {"class-0": 3, "class-2": 3, "class-3": 3}


def test_a_method_by_reference_is_exported(tmp_path: Path):
    pytest.importorskip("onnxruntime", reason="needs fscl[export]")
    model = ContinualClassifier(BASE, REFERENCE).fit(*examples(0, 1))
    assert model.export(tmp_path / "model.onnx").largest_difference < 1e-4


def test_a_method_by_entry_point_has_a_name_like_any_other(monkeypatch: pytest.MonkeyPatch):
    point = EntryPoint("medians", REFERENCE, registry.GROUP)
    monkeypatch.setattr(registry, "entry_points_of", lambda group: {"medians": point})
    registry.methods.cache_clear()
    try:
        model = ContinualClassifier(BASE, "medians").fit(*examples(0, 1))
        assert model.predict(examples(1)[0]).tolist() == ["class-1"] * 3
    finally:
        registry.methods.cache_clear()


def test_settings_that_it_does_not_have_are_a_sentence():
    with pytest.raises(MisuseError, match=rf"settings has scale = -1: .* greater than 0\. `fscl show {REFERENCE}`"):
        ContinualClassifier(BASE, REFERENCE, settings={"scale": -1}).fit(*examples(0, 1))


def test_a_method_that_keeps_more_than_the_bound_allows_is_refused_and_nothing_is_changed(tmp_path: Path):
    model = ContinualClassifier(BASE, REFERENCE, memory_bytes=5 * (16 * 16 + 8)).fit(*examples(0)).save(tmp_path / "m")
    with pytest.raises(MisuseError, match=r"memory_bytes is 1,320, but with these settings .* stores 1,584 bytes"):
        model.partial_fit(*examples(1))
    assert model.classes_.tolist() == ["class-0"]


def test_it_keeps_the_contract():
    from toy_method import Medians  # type: ignore[import-not-found]

    check_learner(lambda network: Medians(network, Medians.Settings(), seed=0))
