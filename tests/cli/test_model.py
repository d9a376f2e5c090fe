"""Without code: the commands for a classifier of one's own, what they print, and their exit codes."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from PIL import Image

from fscl.cli import main
from tests.classifier.models import BASE, POOL, contents, examples

Printed = tuple[str, str]


@pytest.fixture
def fscl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The command line in this process: what it prints to stdout and stderr."""

    def run(*arguments: object, code: int = 0) -> Printed:
        monkeypatch.setattr(sys, "argv", ["fscl", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert (ended.value.code or 0) == code, err
        return out, err

    return run


def photos(folder: Path, *classes: int, n: int = 3, start: int = 0) -> Path:
    for label in classes:
        (folder / f"class-{label}").mkdir(parents=True)
        for number in range(start, start + n):
            Image.fromarray(POOL.of_class(label)[number, 0].numpy()).save(folder / f"class-{label}" / f"{number}.png")
    return folder


@pytest.fixture
def model(tmp_path: Path, fscl) -> Path:
    BASE.save(tmp_path / "base.safetensors")
    made = tmp_path / "model"
    out, _ = fscl("new", made, "--base", tmp_path / "base.safetensors", "--method", "prototypes")
    assert out.splitlines()[-1] == str(made)
    return made


def test_learn_says_what_is_new_and_known_and_what_it_did(model: Path, tmp_path: Path, fscl):
    out, err = fscl("learn", model, photos(tmp_path / "first", 0, 1))
    assert out.splitlines() == [
        "new: class-0 (3), class-1 (3)",
        "estimated accuracy: unknown before, 100.0 % after",
        str(model),
    ]
    assert err == ""
    out, _ = fscl("learn", model, photos(tmp_path / "second", 1, 2, start=3))
    lines = out.splitlines()
    assert lines[:2] == ["new: class-2 (3)", "known: class-1 (3)"]
    assert lines[2].startswith("estimated accuracy: 100.0 % before, ")
    assert lines[3] == "no known class suffers" or lines[3].startswith("suffers most: class-")
    assert lines[4] == str(model)


def test_learn_names_the_class_that_suffers(model: Path, tmp_path: Path, fscl):
    fscl("learn", model, photos(tmp_path / "first", 0, 1))
    twin = photos(tmp_path / "second", 0).rename(tmp_path / "twins")
    (twin / "class-0").rename(twin / "twin")  # the same pictures under another name
    out, _ = fscl("learn", model, twin)
    (line,) = [line for line in out.splitlines() if line.startswith("suffers most")]
    assert line.startswith("suffers most: class-0, 100.0 % before, ")


def test_predict_prints_name_probability_and_nearest_example(model: Path, tmp_path: Path, fscl):
    fscl("learn", model, photos(tmp_path / "photos", 0, 1))
    ask = photos(tmp_path / "ask", 1, n=2, start=3)
    out, _ = fscl("predict", model, ask)
    assert len(out.splitlines()) == 2
    assert out.splitlines()[0].startswith(f"{ask / 'class-1' / '3.png'}: class-1, ")
    assert ", nearest: class-1/" in out
    found = json.loads(fscl("predict", model, "--json", ask / "class-1" / "3.png")[0])
    assert found[0]["label"] == "class-1"
    assert found[0]["ranked"][0]["probability"] == found[0]["probability"] > 0.5
    assert found[0]["nearest"][0]["source"].startswith("class-1/")
    rows = list(csv.DictReader(io.StringIO(fscl("predict", model, "--csv", ask)[0])))
    assert [row["label"] for row in rows] == ["class-1", "class-1"]
    blank = tmp_path / "blank.png"
    Image.new("L", (16, 16)).save(blank)
    assert fscl("predict", model, "--reject", blank)[0].startswith(f"{blank}: unknown (of the known classes, ")
    assert json.loads(fscl("predict", model, "--reject", "--json", blank)[0])[0]["label"] is None
    assert "choose one" in fscl("predict", model, "--json", "--csv", blank, code=2)[1]


def test_forget_rename_correct_undo_info_and_check(model: Path, tmp_path: Path, fscl):
    fscl("learn", model, photos(tmp_path / "photos", 0, 1, 2))
    fscl("rename", model, "class-2", "löwe/лев")
    fscl("correct", model, photos(tmp_path / "one", 1, n=1, start=5) / "class-1" / "5.png", "class-1")
    out, _ = fscl("info", model)
    assert "3 classes, estimated accuracy " in out
    assert "  löwe/лев: 3 stored, estimated accuracy " in out
    assert "renamed class-2 to löwe/лев" in out
    assert "was corrected with 1 example of class-1" in out
    about = json.loads(fscl("info", model, "--json")[0])
    assert [each["examples"] for each in about["classes"]] == [3, 4, 3]
    fscl("undo", model, "--calls", 2)
    assert "class-2: 3 stored" in fscl("info", model)[0]
    fscl("forget", model, "class-1")
    assert "class-1: " not in fscl("info", model)[0]
    assert "cannot be undone" in fscl("undo", model, code=2)[1]
    assert fscl("check", model)[0].endswith("all as they should be\n")
    image = next((model / "images").iterdir())
    image.write_bytes(image.read_bytes()[:-1])
    out, _ = fscl("check", model, code=1)
    assert image.name in out
    assert out.splitlines()[-1].endswith("1 bad")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["new", "MODEL"], 2, "is there already"),
        (["new", "other", "--method", "tcs"], 2, "Did you mean 'tsc'?"),
        (["new", "other", "--base", "nothing"], 2, "no base named 'nothing'"),
        (["predict", "MODEL", "nothing.png"], 1, "has learned nothing yet; teach it with `fscl learn"),
        (["learn", "MODEL", "nowhere"], 1, "nowhere does not exist; give a folder"),
        (["forget", "MODEL", "cat"], 1, "has learned nothing yet"),
        (["undo", "MODEL"], 2, "0 can"),
        (["info", "nowhere"], 1, "nowhere is not a model: it has no model.json"),
        (["export", "MODEL", "out.onnx"], 1, "has learned nothing yet"),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_changes_nothing(
    arguments: list[str], code: int, sentence: str, model: Path, fscl
):
    before = contents(model)
    out, err = fscl(*(model if word == "MODEL" else word for word in arguments), code=code)
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("fscl: ")
    assert sentence in err
    assert contents(model) == before


def test_a_bad_picture_refuses_the_lesson_or_is_skipped_when_asked(model: Path, tmp_path: Path, fscl):
    folder = photos(tmp_path / "photos", 0, 1)
    (folder / "class-0" / "notes.txt").write_text("not a picture")
    before = contents(model)
    assert "class-0/notes.txt is not an image" in fscl("learn", model, folder, code=1)[1]
    assert contents(model) == before
    out, err = fscl("learn", model, folder, "--skip-bad")
    assert "new: class-0 (3), class-1 (3)" in out
    assert "notes.txt is not an image" in err.replace("\n", " ")


def test_check_knows_configurations_too(fscl, tmp_path: Path):
    assert fscl("check", "glyphs-quick")[0] == "glyphs-quick: valid\n"
    assert "with the parts" in fscl("check", "omniglot-table2")[0]
    assert "Did you mean 'glyphs-quick'?" in fscl("check", "glyphs-quik", code=2)[1]


def test_exported_answers_are_the_models(model: Path, tmp_path: Path, fscl):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs fscl[export]")
    from fscl import ContinualClassifier

    fscl("learn", model, photos(tmp_path / "photos", 2, 0, 1))
    out, _ = fscl("export", model, tmp_path / "out.onnx")
    assert out.splitlines()[-1] == str(tmp_path / "out.onnx")
    about = json.loads((tmp_path / "out.json").read_text())
    assert about["labels"] == ["class-0", "class-1", "class-2"]
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    X, _ = examples(0, 1, 2, start=5)
    for batch in (X, X[:1]):
        (found,) = session.run(None, {"pixels": batch[:, None]})
        expected = ContinualClassifier.load(model).predict_proba(batch)
        assert abs(found - expected).max() < 1e-4
    assert "such as model.onnx" in fscl("export", model, tmp_path / "out.txt", code=2)[1]
