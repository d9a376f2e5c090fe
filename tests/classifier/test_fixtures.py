"""Models that an earlier version wrote are read by every later one: the folders in fixtures/ are never written anew.

`rows` is a model of numbers, `pictures` one of drawings with a bounded memory and a moved embedding; both have states that
can be gone back to. expected.json has what they answered when they were written.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fscl import ContinualClassifier
from fscl.classifier.store.check import check_model
from fscl.errors import MisuseError
from fscl.testing import POOL

FIXTURES = Path(__file__).parent / "fixtures"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())


@pytest.fixture(params=["rows", "pictures"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Any, dict[str, Any]]:
    """A copy of a folder, what is asked, and what it answered."""
    expected = EXPECTED[request.param]
    asked = np.array(expected["asked"]) if "asked" in expected else POOL.images[:40, 0].numpy()
    return Path(shutil.copytree(FIXTURES / request.param, tmp_path / "model")), asked, expected


def test_a_model_of_an_earlier_version_answers_as_it_did(stored: tuple[Path, Any, dict[str, Any]]):
    folder, asked, expected = stored
    model = ContinualClassifier.load(folder)
    assert model.predict(asked).tolist() == expected["labels"]
    np.testing.assert_allclose(model.predict_proba(asked), expected["probabilities"], atol=1e-3)
    assert check_model(folder).problems == ()


def test_a_threshold_of_an_earlier_version_s_score_is_left_out_until_the_next_lesson(
    stored: tuple[Path, Any, dict[str, Any]],
):
    folder, asked, _ = stored
    model = ContinualClassifier.load(folder)
    assert (model.explain(asked[0]).threshold, model.explain(asked[0]).unknown) == (None, False)
    with pytest.raises(MisuseError, match="nothing to set a threshold by"):
        model.predict(asked, reject=True)
    model.partial_fit(asked[:4], [model.classes_[0]] * 4)
    assert model.explain(asked[0]).threshold is not None


def test_a_model_of_an_earlier_version_goes_on_learning_and_can_be_undone(stored: tuple[Path, Any, dict[str, Any]]):
    folder, asked, _ = stored
    model = ContinualClassifier.load(folder)
    known, n_calls = model.classes_.tolist(), len(model.history_)
    new: Any = "new" if isinstance(known[0], str) else 99
    model.partial_fit(asked[:2], [new, new])
    assert model.classes_.tolist() == sorted([*known, new])
    model.forget(known[0]).rename(new, known[0])
    assert len(model.history_) == n_calls + 3
    assert ContinualClassifier.load(folder).classes_.tolist() == known


def test_a_model_of_an_earlier_version_can_be_taken_back_to_the_call_before(stored: tuple[Path, Any, dict[str, Any]]):
    folder, asked, _ = stored
    model = ContinualClassifier.load(folder)
    n_calls = len(model.history_)
    assert len(model.undo().history_) == n_calls - 1
    assert model.predict_proba(asked).shape[0] == len(asked)
