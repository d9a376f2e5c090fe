"""Bad input: each has a clear sentence, and leaves the model as it was."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fscl import ContinualClassifier
from fscl.data.images import MAX_PIXELS
from fscl.errors import DataError, FsclError, MisuseError
from tests.classifier.models import classifier, contents, examples

GREY = np.zeros((2, 16, 16), np.uint8)


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def corrupt(folder: Path) -> Path:
    Image.fromarray(GREY[0]).save(folder / "whole.png")
    return written(folder / "corrupt.png", (folder / "whole.png").read_bytes()[:45])


def huge(folder: Path) -> Path:
    """A file whose header promises 20,000 × 20,000 pixels."""
    Image.new("1", (20_000, 20_000)).save(folder / "huge.png")
    return folder / "huge.png"


def empty_class(folder: Path) -> Path:
    Image.fromarray(GREY[0]).save(written(folder / "photos" / "cat" / "a.png", b""))
    (folder / "photos" / "dog").mkdir()
    return folder / "photos"


def not_finite(_: Path) -> Any:
    X = np.zeros((2, 16, 16))
    X[1, 3, 3] = np.nan
    return X


BAD: list[tuple[str, Callable[[Path], Any], Any, str]] = [
    ("a corrupt picture", lambda folder: [corrupt(folder)], ["a"], "corrupt.png cannot be decoded"),
    ("an empty folder", lambda folder: folder, None, "holds nothing; it needs one sub-folder per class"),
    ("a class without pictures", empty_class, None, "class 'dog' of .* has no usable image"),
    (
        "labels of mixed types",
        lambda _: GREY,
        [1, "a"],
        r"labels are all of one kind, .* whole numbers \(1\) and words",
    ),
    ("labels of another kind than before", lambda _: GREY, [1, 2], "words .* Make them all words"),
    ("NaN", not_finite, ["a", "b"], "NaN or infinity in picture 1"),
    (
        "a wrong channel count",
        lambda _: np.zeros((2, 16, 16, 5), np.uint8),
        ["a", "b"],
        "neither its last nor its second",
    ),
    ("a picture of 400 megapixels", lambda folder: [huge(folder)], ["a"], "huge.png has more pixels|megapixels"),
    ("an array too large", lambda _: np.zeros((1, 1, MAX_PIXELS + 1), np.uint8), ["a"], "megapixels are read"),
    ("a file that is no image", lambda folder: [written(folder / "a.txt", b"words")], ["a"], "a.txt is not an image"),
    ("no such file", lambda folder: [folder / "none.png"], ["a"], "none.png does not exist"),
    ("a folder in the place of a file", lambda folder: [folder], ["a"], "is not a file"),
    (
        "values over 1",
        lambda _: np.full((2, 16, 16), 7.5),
        ["a", "b"],
        "from 7.5 to 7.5; float64 pictures go from 0 to 1",
    ),
    ("values over 255", lambda _: np.full((2, 16, 16), 256), ["a", "b"], "go from 0 to 255"),
    ("words in the place of pixels", lambda _: np.full((2, 4, 4), "x"), ["a", "b"], "pictures are uint8"),
    ("five dimensions", lambda _: np.zeros((1, 1, 1, 4, 4), np.uint8), ["a"], "an array of pictures has shape"),
    ("no pixels", lambda _: np.zeros((1, 0, 4), np.uint8), ["a"], "pictures of 4×0 pixels"),
    ("fewer labels than pictures", lambda _: GREY, ["a"], "2 examples and 1 labels"),
    ("no labels", lambda _: GREY, None, "the labels y are missing"),
    ("an empty name", lambda _: GREY, ["a", " "], "has a character that can be seen, but one is"),
    ("a name with a line break", lambda _: GREY, ["a", "b\nc"], "has only characters that can be seen"),
    ("a label that is no label", lambda _: GREY, ["a", None], "a word, a number or a truth value"),
    ("a label that is not finite", lambda _: GREY, [0.5, float("inf")], "finite"),
]


@pytest.mark.parametrize(("make", "y", "sentence"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_bad_input_is_a_sentence_and_an_unchanged_model(
    make: Callable[[Path], Any], y: Any, sentence: str, tmp_path: Path
):
    model = classifier().fit(*examples(0, 1)).save(tmp_path / "model")
    (tmp_path / "input").mkdir()
    before, X = contents(tmp_path / "model"), make(tmp_path / "input")
    with pytest.raises(FsclError, match=sentence) as refusal:
        model.partial_fit(X, y)
    assert "\n" not in str(refusal.value)
    assert contents(tmp_path / "model") == before
    assert model.classes_.tolist() == ["class-0", "class-1"]
    with pytest.raises(FsclError):
        classifier().fit(X, y if y is None or isinstance(y[0], str) else [1, "a"])


def test_one_class_with_one_example_is_learned_and_answered_with():
    for method in ("tsc", "prototypes"):
        model = classifier(method).partial_fit(*examples(0, n=1))
        assert model.predict(examples(1)[0]).tolist() == ["class-0"] * 3
        assert model.predict_proba(examples(1)[0]).tolist() == [[1.0]] * 3
        assert model.estimated_accuracy_ is None


@pytest.mark.parametrize(
    "name", ["a/b", "../../escape", "/etc/passwd", "猫", "кот", "قطة", "con", "a\\b", ".", "x" * 500]
)
def test_a_class_may_have_any_name(name: str, tmp_path: Path):
    X, y = examples(0, 1)
    model = classifier().fit(X, [name] * 3 + y[3:]).save(tmp_path / "inner" / "model")
    model.partial_fit(X[:1], [name])
    assert ContinualClassifier.load(tmp_path / "inner" / "model").predict(X[:1]).tolist() == [name]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inner"]
    assert sorted(path.name for path in (tmp_path / "inner").iterdir()) == ["model"]
    model.forget(name)
    assert model.classes_.tolist() == ["class-1"]


def test_asking_with_bad_input_is_refused_as_well(tmp_path: Path):
    model = classifier().fit(*examples(0, 1))
    for X in (not_finite(tmp_path), [corrupt(tmp_path)], [tmp_path / "none.png"]):
        with pytest.raises(DataError):
            model.predict(X)
    with pytest.raises(DataError, match="dimensions; a picture has shape"):
        model.explain(np.zeros((1, 1, 4, 4)))


def test_a_fit_that_fails_leaves_what_was_learned_in_memory():
    model = classifier().fit(*examples(0, 1))
    with pytest.raises(DataError):
        model.fit(np.full((2, 16, 16), np.nan), ["a", "b"])
    assert model.classes_.tolist() == ["class-0", "class-1"]
    untaught = classifier()
    with pytest.raises(DataError):
        untaught.partial_fit(np.full((2, 16, 16), np.nan), ["a", "b"])
    untaught.set_params(method="neighbour").partial_fit(*examples(2))
    assert untaught.classes_.tolist() == ["class-2"]


@pytest.mark.parametrize("name", ["می‌خواهم", "क्‍ष", "黒\u3000猫", "a\u00a0b", "👨‍👩‍👧"])
def test_class_names_of_any_script_are_taken_with_the_joiners_and_spaces_that_it_has(name: str):
    X, _ = examples(0, 1)
    assert name in classifier().fit(X, [name] * 3 + ["x"] * 3).classes_.tolist()


def test_settings_that_change_after_learning_began_are_refused():
    for change in ({"random_state": 9}, {"base": "glyphs-protonet-conv4"}, {"memory_bytes": 5000}):
        model = classifier().fit(*examples(0, 1)).set_params(**change)
        with pytest.raises(MisuseError, match=f"{next(iter(change))} changed since this classifier began to learn"):
            model.partial_fit(*examples(2))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"method": "tsc", "settings": {"bogus": 1}}, "settings has bogus = 1.*`fscl show tsc` lists them"),
        ({"base": 3}, "base is a name, a path or a Network, but it is 3"),
    ],
)
def test_settings_that_cannot_be_are_a_sentence(settings: dict[str, Any], reason: str):
    model = classifier().set_params(**settings)
    with pytest.raises(MisuseError, match=reason):
        model.fit(*examples(0, 1))
