"""Whatever Python call is made with whatever object, the error is a sentence of fscl's or of scikit-learn's checks."""

import datetime
import decimal
import io
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from PIL import Image

from fscl import ContinualClassifier
from fscl.errors import DataError, FsclError
from tests.classifier.models import classifier, examples

X, Y = examples(0, 1)
ROWS, LETTERS = np.random.default_rng(0).normal(size=(6, 3)), list("aabbcc")


class Refuses:
    """An object that claims to be an array, and is none."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("not this time")


def closed() -> io.BytesIO:
    file = io.BytesIO(b"x")
    file.close()
    return file


ODD: dict[str, Any] = {
    "None": None,
    "a number": 5,
    "nan": float("nan"),
    "a truth value": True,
    "no file": "no-such-file",
    "bytes": b"xx",
    "nothing": [],
    "ragged": [[1, 2], [3]],
    "a dict": {},
    "a dict of an image": {"bytes": None, "path": None},
    "a set": {1, 2},
    "an object": object(),
    "no array": Refuses(),
    "bfloat16": torch.zeros(2, 16, 16, dtype=torch.bfloat16),
    "rows of bfloat16": torch.zeros(6, 3, dtype=torch.bfloat16),
    "sparse": torch.zeros(2, 16, 16).to_sparse(),
    "sparse rows": torch.zeros(6, 3).to_sparse(),
    "on no device": torch.zeros(2, 16, 16, device="meta"),
    "scipy": scipy.sparse.csr_matrix(np.eye(6, 3)),
    "complex": np.zeros((2, 16, 16), complex),
    "objects": np.array([["a", 1], [2, None]], dtype=object),
    "1e160": ROWS * 1e160,
    "1e308": np.full((6, 3), 1e308),
    "infinity": np.full((6, 3), np.inf),
    "words": np.array([["a", "b", "c"]] * 6),
    "dates": np.array(["2020-01-01"] * 3, dtype="M8[D]"),
    "no picture": np.zeros((0, 16, 16)),
    "no pixel": np.zeros((2, 0, 16)),
    "five dimensions": np.zeros((2, 3, 4, 5, 6)),
    "records": np.zeros(6, dtype=[("a", float), ("b", int)]),
    "Lab": [Image.new("LAB", (4, 4))],
    "closed": closed(),
    "text": io.StringIO("x"),
    "mixed": [Image.new("L", (4, 4)), 5, None],
    "a path with a zero": ["a\0b"],
    "a long path": "a" * 5000,
    "decimals": [[decimal.Decimal(1)] * 3] * 6,
    "days": [datetime.date(2020, 1, 1)] * 6,
    "huge": [[10**400] * 3] * 6,
    "a type": int,
    "a root": Path("/"),
    "pairs of something": [(np.zeros((4, 4)), [1]), (np.zeros((4, 4)), {})],
}
LABELS: dict[str, Any] = {
    "None": None,
    "a number": 5,
    "a word": "abc",
    "nan": [float("nan")] * 6,
    "objects": [object()] * 6,
    "mixed": ["a", 1] * 3,
    "beyond 64 bits": [2**70] * 6,
    "two columns": np.zeros((6, 2)),
    "bytes": [b"a"] * 6,
    "bfloat16": torch.zeros(6, dtype=torch.bfloat16),
    "sparse": torch.zeros(6).to_sparse(),
    "complex": [1j] * 6,
    "lists": [[1]] * 6,
    "nothing": [],
    "half characters": ["\udcff"] * 6,
}


def explained(call: Callable[[], object]) -> None:
    """Fails where an error is raised that is neither fscl's nor one of scikit-learn's own checks."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except FsclError:
        return
    except (ValueError, TypeError) as error:
        if "sklearn" not in traceback.extract_tb(error.__traceback__)[-1].filename:
            raise


@pytest.fixture(scope="module")
def pictures() -> ContinualClassifier:
    return classifier().fit(X, Y)


@pytest.fixture(scope="module")
def rows() -> ContinualClassifier:
    return ContinualClassifier(method="prototypes").fit(ROWS, LETTERS)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_things_are_refused_in_a_sentence(odd: Any, pictures: ContinualClassifier, rows: ContinualClassifier):
    for model in (pictures, rows):
        explained(lambda model=model: model.predict(odd))
        explained(lambda model=model: model.explain(odd))
        explained(lambda model=model: model.test(odd, ["a"]))
        explained(lambda model=model: model.suggest(odd))
        explained(lambda model=model: model.score(odd, ["a"]))
    for method in ("prototypes", "discriminant"):
        explained(lambda method=method: classifier(method).fit(odd, ["a"] * 3 + ["b"] * 3))
    explained(lambda: classifier().fit(X, Y).correct(odd, "class-0"))
    explained(lambda: classifier().fit(X, Y).partial_fit(odd))
    for call in ("remove", "forget", "undo"):
        explained(lambda call=call: getattr(classifier().fit(X, Y), call)(odd))
    explained(lambda: classifier().fit(X, Y).move(odd, "class-0"))
    explained(lambda: classifier().fit(X, Y).rename("class-0", odd))
    explained(lambda: ContinualClassifier.load(odd))
    for parameter in ("base", "method", "settings", "memory_bytes", "random_state"):
        explained(lambda parameter=parameter: ContinualClassifier(**{parameter: odd}).fit(ROWS, LETTERS))


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_odd_labels_are_refused_in_a_sentence(labels: Any, pictures: ContinualClassifier, rows: ContinualClassifier):
    explained(lambda: classifier().fit(X, labels))
    explained(lambda: ContinualClassifier(method="prototypes").fit(ROWS, labels))
    explained(lambda: pictures.test(X, labels))
    explained(lambda: pictures.score(X, labels))
    explained(lambda: rows.score(ROWS, labels))


def test_numbers_whose_squares_overflow_are_refused(rows: ContinualClassifier):
    for call in (lambda: ContinualClassifier().fit(ROWS * 1e160, LETTERS), lambda: rows.predict(ROWS * 1e160)):
        with pytest.raises(DataError, match=r"rows hold numbers up to 1e\+100, but one is .*e\+160\. Scale them down"):
            call()


def test_tensors_of_every_kind_are_learned_alike():
    dense = torch.from_numpy(X).float() / 255
    expected = classifier().fit(dense, Y).predict_proba(dense)
    assert np.array_equal(classifier().fit(dense.to_sparse(), Y).predict_proba(dense), expected)
    assert classifier().fit(dense.bfloat16(), Y).predict(dense.bfloat16()).tolist() == Y
    half = torch.eye(3).repeat_interleave(2, 0).bfloat16()
    assert ContinualClassifier(method="prototypes").fit(half, LETTERS).predict(half).tolist() == LETTERS


def test_a_picture_asked_alone_is_answered_as_in_a_batch_to_the_promised_tolerance():
    """docs/how-to/teach-your-own.md promises 1e-5."""
    model = classifier("tsc").fit(X, Y)
    together = model.predict_proba(X)
    alone = np.concatenate([model.predict_proba(X[i : i + 1]) for i in range(len(X))])
    assert np.abs(together - alone).max() <= 1e-5
