"""One rule for names of classes, in every script; and no name of a file can steer a terminal."""

import unicodedata
from pathlib import Path

import pytest
from PIL import Image

from fscl import ContinualClassifier
from fscl.data.folder import load_folder
from fscl.data.names import class_name, look, readable
from fscl.errors import DataError
from tests.classifier.models import classifier, examples

GOOD = {
    "Latin": "Zürich café",
    "Greek": "Ελληνικά",
    "Cyrillic": "ёлка",
    "Arabic": "شجرة",
    "Persian, with a joiner": "می\u200cخواهم",
    "Hebrew": "עֵץ",
    "Devanagari, with a joiner": "क्\u200dष",
    "Chinese": "桦树",
    "Japanese, with a wide space": "東京\u3000タワー",
    "Korean": "나무",
    "Thai": "ต้นไม้",
    "Tamil": "மரம்",
    "Ethiopic": "ዛፍ",
    "French, with a no-break space": "50\u00a0%",
    "emoji, joined": "👩\u200d👩\u200d👧",
    "emoji, coloured": "👍🏽❤\ufe0f",
    "a flag of tags": "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "slashes and signs": "a/b: c? <d>",
}
BAD = {
    "nothing": "",
    "spaces": " \u3000\u00a0",
    "a zero-width space alone": "\u200b",
    "a zero-width space": "oak\u200btree",
    "a joiner alone": "\u200d",
    "a joiner at the end": "oak\u200d",
    "two joiners": "a\u200d\u200cb",
    "a direction override": "\u202etxt.exe",
    "an isolate": "\u2066oak\u2069",
    "a mark of direction": "oak\u200f",
    "a byte order mark": "\ufeffoak",
    "a soft hyphen": "oa\u00adk",
    "a filler": "\u3164",
    "a selector alone": "\ufe0f",
    "a mark alone": "\u0301",
    "a line break": "oak\ntree",
    "an escape": "\x1b[31moak",
    "a C1 control": "\x9b31moak",
    "a line separator": "oak\u2028tree",
    "half a character": "oak\udcff",
    "a private character": "\ue000",
    "too long": "a" * 501,
}


def save_picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (8, 8), 77).save(path)


@pytest.mark.parametrize("name", GOOD.values(), ids=GOOD)
def test_names_of_every_script_are_labels_and_folders(name: str, tmp_path: Path):
    assert class_name(name) == unicodedata.normalize("NFC", name)
    X, _ = examples(0, 1)
    assert name in classifier().fit(X, ["other"] * 3 + [name] * 3).classes_ or class_name(name) != name
    if "/" not in name:
        save_picture(tmp_path / "photos" / name / "1.png")
        assert load_folder(tmp_path / "photos").class_names == (class_name(name),)


@pytest.mark.parametrize("name", BAD.values(), ids=BAD)
def test_what_nobody_could_see_is_no_name_anywhere(name: str, tmp_path: Path):
    with pytest.raises(DataError, match="the name of a class has"):
        class_name(name)
    X, _ = examples(0, 1)
    model = classifier().fit(X, ["a"] * 3 + ["b"] * 3)
    for call in (
        lambda: model.partial_fit(X[:1], [name]),
        lambda: model.rename("a", name),
        lambda: model.correct(X[0], name, new=True),
        lambda: model.move(1, name, new=True),
    ):
        with pytest.raises(DataError, match="the name of a class has") as refusal:
            call()
        assert all(unicodedata.category(each) not in ("Cc", "Cs", "Zl") for each in str(refusal.value))
    assert model.classes_.tolist() == ["a", "b"]
    if 0 < len(name.encode("utf-8", "surrogateescape")) < 250 and "/" not in name:
        save_picture(tmp_path / "photos" / name / "1.png")
        with pytest.raises(DataError, match="the name of a class has"):
            load_folder(tmp_path / "photos")


def test_one_name_written_in_two_ways_is_one_class(tmp_path: Path):
    composed, apart = "é", unicodedata.normalize("NFD", "é")
    X, _ = examples(0, 1)
    model = classifier().fit(X, [composed] * 3 + ["b"] * 3).partial_fit(X[:1], [apart])
    assert model.classes_.tolist() == ["b", composed]
    assert model.score(X, [apart] * 3 + ["b"] * 3) == 1
    assert model.rename(apart, "e").classes_.tolist() == ["b", "e"]
    for name in (composed, apart):
        save_picture(tmp_path / "photos" / name / "1.png")
    with pytest.raises(DataError, match=r"two folders .* look the same but are written differently"):
        load_folder(tmp_path / "photos")


@pytest.mark.parametrize("other", ["oak\u00a0tree", "oak\u3000tree", "oak tree ", "oak  tree", "oak tre\u200de"])
def test_two_names_that_look_alike_are_refused(other: str, tmp_path: Path):
    assert look(other) == look("oak tree")
    X, _ = examples(0, 1)
    model = classifier().fit(X, ["oak tree"] * 3 + ["b"] * 3).save(tmp_path / "model")
    for call in (
        lambda: model.partial_fit(X[:1], [other]),
        lambda: model.rename("b", other),
        lambda: classifier().fit(X, ["oak tree"] * 3 + [other] * 3),
    ):
        with pytest.raises(DataError, match="look the same but are written differently"):
            call()
    assert ContinualClassifier.load(tmp_path / "model").classes_.tolist() == ["b", "oak tree"]
    assert model.rename("oak tree", other).classes_.tolist() == sorted(["b", other])  # there is only one then


def test_a_readable_text_has_no_controls_and_keeps_every_script():
    assert all(readable(name) == name for name in GOOD.values())
    assert readable("\x1b[31m\x9b\r\n\udcff\u202e") == "\\x1b[31m\\x9b\\x0d\\x0a\\udcff\\u202e"
