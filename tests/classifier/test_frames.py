"""Pictures, labels and rows in columns of pandas."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fscl import ContinualClassifier
from fscl.errors import DataError
from tests.classifier.models import classifier, examples

X, Y = examples(0, 1)
INDEX = [10, 20, 30, 40, 50, 60]  # positions are not numbers of rows


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("pictures")
    for number, pixels in enumerate(X):
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return [str(folder / f"{number}.png") for number in range(len(X))]


@pytest.mark.parametrize("column", ["image", "path", "filename", "anything"])
@pytest.mark.parametrize("form", ["paths", "Path", "Pillow", "arrays"])
def test_a_frame_with_a_column_of_pictures_brings_their_labels(form: str, column: str, paths: list[str]):
    pictures: dict[str, list[Any]] = {
        "paths": paths,
        "Path": [Path(path) for path in paths],
        "Pillow": [Image.fromarray(pixels) for pixels in X],
        "arrays": list(X),
    }
    frame = pd.DataFrame({"weight": range(6), column: pd.Series(pictures[form], dtype=object), "label": Y})
    frame.index = INDEX
    model, expected = classifier().fit(frame), classifier().fit(X, Y)
    assert model.classes_.tolist() == ["class-0", "class-1"]
    np.testing.assert_array_equal(model.predict_proba(frame), expected.predict_proba(X))
    assert model.predict(frame[column]).tolist() == model.predict(frame).tolist()
    assert model.score(frame) == expected.score(X, Y)
    assert model.test(frame).accuracy.n == 6
    if form == "paths":
        assert [each.source for each in model.examples_] == paths


def test_series_of_pictures_and_of_labels_are_lists_whatever_their_index(paths: list[str]):
    expected = classifier().fit(X, Y)
    for labels in (
        pd.Series(Y, index=INDEX),
        pd.Series(Y, index=INDEX, dtype="category"),
        pd.Series(Y, index=INDEX, dtype="string"),
        pd.DataFrame({"label": Y}),
    ):
        model = classifier().fit(pd.Series(paths, index=INDEX), labels)
        np.testing.assert_array_equal(model.predict_proba(pd.Series(paths)), expected.predict_proba(X))
        model.partial_fit(pd.Series(paths[:1]), pd.Series(["new"]))
        assert model.classes_.tolist() == ["class-0", "class-1", "new"]
    numbered = classifier().fit(pd.Series(paths), pd.Series([7, 7, 7, 8, 8, 8], index=INDEX))
    assert numbered.classes_.tolist() == [7, 8]


def test_a_frame_of_numbers_is_rows_with_the_names_of_its_columns():
    rows = pd.DataFrame(np.eye(3).repeat(2, 0), columns=["a", "b", "c"], index=INDEX)
    model = ContinualClassifier(method="prototypes").fit(rows, pd.Series(list("xxyyzz"), index=INDEX))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert model.predict(rows).tolist() == list("xxyyzz")


@pytest.mark.parametrize(
    ("frame", "labels", "sentence"),
    [
        (
            lambda paths: pd.DataFrame({"image": paths}),
            None,
            "and none is called 'label'; rename the one that holds it",
        ),
        (lambda paths: pd.Series(paths), None, "the labels y are missing"),
        (lambda paths: pd.Series(paths), pd.Series(Y)[:2], "there are 6 examples and 2 labels"),
        (lambda paths: pd.Series(paths), pd.Series([*Y[:5], None]), "a label is a"),
        (
            lambda paths: pd.Series(paths),
            pd.DataFrame({"a": Y, "b": Y}),
            "the labels y have the columns a, b; give the one",
        ),
        (lambda paths: pd.Series([*paths[:5], "nowhere.png"]), Y, "nowhere.png does not exist"),
        (lambda paths: pd.Series([*paths[:5], None], dtype=object), Y, "picture 5"),
    ],
)
def test_what_cannot_serve_is_refused_in_a_sentence(frame: Any, labels: Any, sentence: str, paths: list[str]):
    model = classifier().fit(X, Y)
    with pytest.raises(DataError, match=sentence):
        model.partial_fit(frame(paths), labels)
    assert model.classes_.tolist() == ["class-0", "class-1"]


def test_a_frame_of_words_is_neither_pictures_nor_rows():
    words = pd.DataFrame({"text": [1, 2], "more": ["a", "b"]})
    with pytest.raises((DataError, ValueError)):
        classifier().fit(words[[]], ["a", "b"])
    with pytest.raises(DataError, match="does not exist"):
        classifier().fit(words, ["a", "b"])  # words may be paths
