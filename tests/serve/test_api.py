"""The API does what the command line and Python do, in the same words."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fscl import ContinualClassifier
from fscl.classifier.store.check import check_model
from fscl.errors import MisuseError
from tests.serve.serving import CHANGE, GLYPHS, Running, drawing, lesson, model, running


def test_one_raw_picture_many_files_and_pictures_of_the_tray_get_the_answers_of_python(shared: Running):
    twin = ContinualClassifier.load(shared.service.folder)
    X = np.stack([GLYPHS.of_class(i)[9, 0].numpy() for i in (0, 1, 4)])
    expected = twin.explain_all(X)
    raw = shared.ask(drawing(0, 9))["answers"][0]
    files = [("picture", (f"{i}.png", drawing(i, 9), "image/png")) for i in (0, 1, 4)]
    form = shared.client.post("/api/v1/predict", files=files, headers=CHANGE).json()["answers"]
    ids = [shared.send(drawing(i, 9), f"{i}.png") for i in (0, 1, 4)]
    kept = shared.post("/predict", pictures=ids)["answers"]
    assert raw["label"] == expected[0].label
    for answers in (form, kept):
        assert [each["ranked"][0]["label"] for each in answers] == [each.label for each in expected]
        assert [each["unknown"] for each in answers] == [each.unknown for each in expected]
        assert [each["probability"] for each in answers] == pytest.approx([e.probability for e in expected], abs=1e-5)
        assert [each["name"] for each in answers] == ["0.png", "1.png", "4.png"]
    near = form[0]["nearest"][0]
    assert near["label"] == expected[0].nearest[0].label
    picture = shared.client.get(near["url"])
    assert picture.headers["content-type"] == "image/png"
    assert [each["label"] is None for each in form] == [each.unknown for each in expected]


def test_teaching_through_the_service_leaves_what_teaching_in_python_leaves(tmp_path: Path):
    model(tmp_path / "served", 0, 1)
    twin = model(tmp_path / "twin", 0, 1)
    with running(tmp_path / "served") as server:
        files = [("picture", (f"{i}.png", drawing(2, i), "image/png")) for i in range(3)]
        response = server.client.post("/api/v1/learn", files=files, data={"label": "new one"}, headers=CHANGE)
        assert response.json()["event"]["new"] == ["new one"]
        server.teach("glyph 1", 1, 6, 7)
    twin.partial_fit([GLYPHS.of_class(2)[i, 0].numpy() for i in range(3)], ["new one"] * 3)
    twin.partial_fit([GLYPHS.of_class(1)[i, 0].numpy() for i in (6, 7)], ["glyph 1"] * 2)
    served = ContinualClassifier.load(tmp_path / "served")
    X = lesson(0, 1, 2, n=6)[0]
    assert np.array_equal(served.predict_proba(X), twin.predict_proba(X))
    assert [event.call for event in served.history_] == [event.call for event in twin.history_]
    assert check_model(tmp_path / "served").problems == ()


def test_a_lesson_says_what_it_changed_and_how_to_undo_it(server: Running):
    done = server.teach("glyph 3", 3, 0, 1, 2)
    assert done["event"]["line"].endswith("learned 3 examples of glyph 3; 4 classes, estimated accuracy 100.0 %")
    assert [each["label"] for each in done["classes"] if each["new"]] == ["glyph 3"]
    assert done["undo_to"] == 1
    assert done["state"] == 2
    assert server.get("/classes")["state"] == 2
    server.post("/undo", to=done["undo_to"])
    assert len(server.get("/classes")["classes"]) == 3


def test_a_dry_run_learns_nothing(server: Running):
    ids = [{"id": server.send(drawing(3, i)), "label": "trial"} for i in range(3)]
    tried = server.post("/learn", pictures=ids, dry_run=True)
    assert tried["dry_run"] is True
    assert "nothing was learned: this was a dry run" in tried["lines"]
    assert server.get("/classes")["state"] == tried["state"] == 1
    assert server.post("/learn", pictures=ids)["state"] == 2  # they are still in the tray


def test_correct_refuses_a_misspelt_class_with_the_sentence_of_python(server: Running, folder: Path):
    key = server.send(drawing(0, 8))
    refused = server.post("/correct", expect=422, picture=key, label="glyf 0")["error"]
    with pytest.raises(MisuseError) as said:
        ContinualClassifier.load(folder).correct(GLYPHS.of_class(0)[8, 0].numpy(), "glyf 0")
    assert refused == {"kind": "misuse", "message": str(said.value)}
    assert server.post("/correct", picture=key, label="glyph 0")["event"]["call"] == "correct"


def test_every_change_of_a_class_or_an_example(server: Running):
    state = server.get("/classes")["state"]
    assert server.post("/rename", label="glyph 0", to="zero")["event"]["line"].endswith(
        "renamed glyph 0 to zero; 3 classes, estimated accuracy 100.0 %"
    )
    assert "already" in server.post("/rename", expect=422, label="zero", to="glyph 1")["error"]["message"]
    stale = server.post("/remove", expect=409, example=1, state=state)["error"]
    assert stale["kind"] == "stale"
    state = server.get("/classes")["state"]
    state = server.post("/move", example=1, state=state, label="glyph 1")["state"]
    state = server.post("/remove", example=2, state=state)["state"]
    counts = {each["label"]: each["examples"] for each in server.get("/classes")["classes"]}
    assert counts == {"zero": 2, "glyph 1": 5, "glyph 2": 4}
    server.post("/merge", label="glyph 2", into="zero")
    counts = {each["label"]: each["examples"] for each in server.get("/classes")["classes"]}
    assert counts == {"zero": 6, "glyph 1": 5}
    server.post("/forget", label="zero")
    assert [each["label"] for each in server.get("/classes")["classes"]] == ["glyph 1"]
    history = server.get("/history")
    assert [each["call"] for each in history["events"]] == ["learn", "rename", "move", "remove", "merge", "forget"]
    assert [each["state"] for each in history["states"]] == [history["state"]]
    assert "cannot be undone" in server.post("/undo", expect=422, calls=1)["error"]["message"]


def test_undo_and_redo_to_a_named_state(server: Running):
    first = server.teach("glyph 3", 3, 0, 1)["state"]
    second = server.teach("glyph 4", 4, 0, 1)["state"]
    server.post("/undo", calls=2)
    listed = server.get("/history")["states"]
    assert [(each["state"], each["present"], each["undone"]) for each in listed] == [
        (0, False, False),
        (1, True, False),
        (first, False, True),
        (second, False, True),
    ]
    assert server.post("/redo", to=second)["state"] == second
    assert len(server.get("/classes")["classes"]) == 5
    assert "There are: 0, 1, 2, 3" in server.post("/undo", expect=422, to=77)["error"]["message"]
    assert server.post("/undo", expect=422, to=1, calls=1)["error"]["kind"] == "misuse"


def test_examples_are_listed_by_class_with_pictures(server: Running):
    found = server.get("/examples", label="glyph 1", limit=2, offset=1)
    assert found["total"] == 4
    assert [each["number"] for each in found["examples"]] == [6, 7]
    response = server.client.get(found["examples"][0]["url"], params={"size": 64})
    assert "immutable" in response.headers["cache-control"]
    assert server.client.get("/api/v1/examples/0123/picture").status_code == 404
    assert server.client.get("/api/v1/examples", params={"label": "glyph 9"}).status_code == 422


def test_classes_have_intervals_and_advice(server: Running):
    server.teach("rare", 5, 0)
    found = server.get("/classes")
    assert found["advice"][0] == {"label": "rare", "more": 3, "message": "three more of rare would help most"}
    taught = found["classes"][0]
    assert 0 <= taught["interval"][0] <= taught["accuracy"] <= taught["interval"][1] <= 1
    assert len(taught["newest"]) == 4


def test_the_inbox_keeps_unknown_pictures_grouped_and_outlasts_a_restart(folder: Path):
    with running(folder) as server:
        ids = [server.send(drawing(of, i), f"{of}-{i}") for of in (4, 5) for i in range(4)]
        answers = server.post("/predict", pictures=ids, keep=True)["answers"]
        kept = [each["picture"] for each in answers if each["kept"]]
        assert len(kept) >= 4
        assert all(each["unknown"] or each["uncertain"] for each in answers if each["kept"])
        assert server.get("/inbox")["total"] == len(kept)
    with running(folder) as server:
        groups = server.get("/inbox")["groups"]
        assert sum(len(each["pictures"]) for each in groups) == len(kept)
        name = {key: f"{of}-{i}" for key, (of, i) in zip(ids, [(o, i) for o in (4, 5) for i in range(4)], strict=True)}
        for group in groups:
            if not group["settled"] and len(group["pictures"]) > 1:
                assert len({name[each["id"]][0] for each in group["pictures"]}) == 1, "two characters in one group"
        chosen = [each["id"] for each in groups[0]["pictures"]]
        assert server.client.get(groups[0]["pictures"][0]["url"]).status_code == 200
        server.post("/learn", pictures=[{"id": key, "label": "made a class"} for key in chosen])
        assert server.get("/inbox")["total"] == len(kept) - len(chosen)
        rest = [key for key in kept if key not in chosen]
        if rest:
            assert server.post("/inbox/discard", pictures=rest)["total"] == 0


def test_likely_wrong_labels_and_duplicates_are_listed(tmp_path: Path):
    made = model(tmp_path / "model", 0, 1, 2, n=8)
    made.partial_fit([GLYPHS.of_class(0)[9, 0].numpy()], ["glyph 1"])
    made.partial_fit([GLYPHS.of_class(2)[0, 0].numpy()], ["glyph 2"])
    with running(tmp_path / "model") as server:
        found = server.get("/doubts")
    (pair,) = found["duplicates"]
    assert pair["same_label"] is True
    assert [each["label"] for each in pair["examples"]] == ["glyph 2", "glyph 2"]
    assert [(each["label"], each["likelier"]) for each in found["wrong_labels"]] == [("glyph 1", "glyph 0")]


def test_labelled_pictures_are_tested(server: Running):
    pictures = [{"id": server.send(drawing(of, i)), "label": f"glyph {of}"} for of in (0, 1, 5) for i in (8, 9, 10)]
    found = server.post("/test", pictures=pictures)
    assert found["n"] == 9
    assert found["accuracy"]["n"] == 6
    assert found["caught"]["n"] == 3
    assert found["accuracy"]["interval"][0] <= found["accuracy"]["value"] <= found["accuracy"]["interval"][1]
    twin = ContinualClassifier.load(server.service.folder)
    X, y = lesson(0, 1, 5, n=3, start=8)
    assert twin.test(X, y).accuracy.count == found["accuracy"]["count"]


def test_a_first_run_chooses_and_makes_the_model(tmp_path: Path):
    with running(tmp_path / "new") as server:
        assert server.get("/model")["exists"] is False
        assert server.client.get("/api/v1/classes").json()["error"]["kind"] == "no_model"
        assert server.post("/pictures", expect=409)["error"]["kind"] == "no_model"
        made = server.post("/model", **{"for": "drawings"})
        assert made["exists"] is True
        assert made["keep_states"] == 50
        assert server.ask_status(drawing(0, 0)) == 409
        assert "already" in server.post("/model", expect=422, **{"for": "photos"})["error"]["message"]
        assert server.get("/inbox")["groups"] == []
    assert check_model(tmp_path / "new").problems == ()


def test_the_whole_folder_is_exported_and_works_elsewhere(server: Running, tmp_path: Path):
    server.send(drawing(0, 11))
    made = server.post("/export", format="model")
    content = server.client.get(made["url"])
    assert content.headers["content-disposition"] == 'attachment; filename="model-model.zip"'
    with zipfile.ZipFile(io.BytesIO(content.content)) as packed:
        packed.extractall(tmp_path / "there")
    copy = tmp_path / "there" / "model"
    assert check_model(copy).problems == ()
    assert not (copy / "tray").exists()
    assert ContinualClassifier.load(copy).classes_.tolist() == ["glyph 0", "glyph 1", "glyph 2"]
    assert server.client.get("/api/v1/exports/none").status_code == 404


@pytest.mark.slow
def test_a_model_is_exported_as_onnx(server: Running):
    made = server.post("/export", format="onnx")
    with zipfile.ZipFile(io.BytesIO(server.client.get(made["url"]).content)) as packed:
        assert sorted(Path(name).suffix for name in packed.namelist()) == [".json", ".onnx"]


def test_metrics_count_what_was_asked(server: Running):
    server.ask(drawing(0, 8))
    text = server.client.get("/api/v1/metrics").text
    assert 'fscl_requests_total{method="POST",path="/api/v1/predict",status="200"} 1' in text
    assert "\nfscl_pictures_answered_total 1\n" in text
    assert "\nfscl_classes 3\n" in text
    for line in text.splitlines():
        assert line.startswith("#") or float(line.rsplit(" ", 1)[1]) >= 0
