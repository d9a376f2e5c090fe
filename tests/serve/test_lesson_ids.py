"""A lesson whose answer was lost is sent again under its id, and is not taught twice."""

import threading
from pathlib import Path
from typing import Any

import pytest

from fscl import ContinualClassifier
from fscl.classifier.knowledge import Lesson
from fscl.classifier.store.journal import Journal
from fscl.classifier.store.manifest import read_manifest
from tests.serve.serving import CHANGE, GLYPHS, Running, drawing, running


def send(server: Running, *numbers: int, label: str = "new", expect: int = 200, **fields: Any) -> Any:
    """A form with drawings of one character, as a program sends it."""
    files = [("picture", (f"{number}.png", drawing(4, number), "image/png")) for number in numbers]
    response = server.client.post("/api/v1/learn", files=files, data={"label": label, **fields}, headers=CHANGE)
    assert response.status_code == expect, response.text
    return response.json()


def counts(server: Running) -> dict[str, int]:
    return {each["label"]: each["examples"] for each in server.get("/classes")["classes"]}


def test_a_lesson_that_is_sent_twice_is_taught_once_and_answered_twice(server: Running):
    first, again = send(server, 0, 1, lesson="monday.1"), send(server, 0, 1, lesson="monday.1")
    assert first == again
    assert first["event"]["lesson"] == "monday.1"
    assert counts(server)["new"] == 2
    assert send(server, 0, 1)["state"] == first["state"] + 1  # without an id it is another lesson
    assert counts(server)["new"] == 4


def test_a_lesson_of_before_a_restart_is_known_by_its_id(folder: Path):
    with running(folder) as server:
        form = send(server, 0, 1, lesson="form")
        ids = [{"id": server.send(drawing(5, i)), "label": "other"} for i in range(2)]
        kept = server.post("/learn", pictures=ids, lesson="tray")
        picture = server.send(drawing(3, 1))
        server.post("/correct", picture=picture, label="third", new=True, lesson="click")
        before = counts(server)
    with running(folder) as server:  # nothing is in memory any more, and the tray has let go of the pictures
        again = send(server, 0, 1, lesson="form")
        assert (again["repeated"], again["event"]) == (True, form["event"])
        assert again["undo_to"] is None  # other lessons came after it
        assert "nothing was taught twice" in again["lines"][-1]
        assert server.post("/learn", pictures=ids, lesson="tray")["event"] == kept["event"]
        last = server.post("/correct", picture=picture, label="third", new=True, lesson="click")
        assert (last["repeated"], last["undo_to"]) == (True, kept["state"])
        assert counts(server) == before
        assert server.post("/learn", expect=404, pictures=ids, lesson="another")["error"]["kind"] == "not_found"


def test_a_lesson_that_a_kill_left_in_the_journal_is_completed_once(folder: Path):
    lesson = Lesson(GLYPHS.of_class(4)[:2], ("new", "new"), ("0.png", "1.png"), "learn", "2026-01-01", id="cut.short")
    Journal(folder / "journal").write(read_manifest(folder).next_number, lesson)
    with running(folder) as server:
        assert send(server, 0, 1, lesson="cut.short")["repeated"] is True
        assert counts(server)["new"] == 2
    assert [event.lesson for event in ContinualClassifier.load(folder).history_] == [None, "cut.short"]


def test_the_same_lesson_at_the_same_time_is_one_job(server: Running):
    gate, at_work = threading.Event(), threading.Event()
    server.service.writer.submit(lambda: (at_work.set(), gate.wait(30)))  # the writer is busy with another
    at_work.wait(10)
    pictures = [{"id": server.send(drawing(5, i)), "label": "later"} for i in range(2)]
    jobs = [server.post("/learn", pictures=pictures, lesson="twice", wait=False, expect=202)["job"] for _ in range(2)]
    gate.set()
    assert jobs[0]["id"] == jobs[1]["id"]
    assert jobs[0]["lesson"] == "twice"
    assert server.post("/learn", pictures=pictures, lesson="twice")["event"]["n_examples"] == 2
    assert counts(server)["later"] == 2


def test_an_id_is_of_one_lesson(folder: Path):
    with running(folder) as server:
        send(server, 0, 1, lesson="mine")
        refused = send(server, 0, 1, 2, lesson="mine", expect=422)["error"]
        assert refused == {
            "kind": "misuse",
            "message": "lesson 'mine' is the id of another lesson; choose a new id for each.",
        }
    with running(folder) as server:
        assert send(server, 0, 1, 2, lesson="mine", expect=422)["error"] == refused


@pytest.mark.parametrize("wrong", ["", " ", "a b", "é", "x" * 65, "../x", "a\n"])
def test_an_id_is_letters_and_digits(shared: Running, wrong: str):
    assert "lesson" in send(shared, 0, lesson=wrong, expect=422)["error"]["message"]
    assert shared.get("/classes")["state"] == 1


def test_a_stopped_lesson_and_a_dry_run_use_no_id_up(server: Running):
    pictures = [{"id": server.send(drawing(5, i)), "label": "tried"} for i in range(2)]
    assert server.post("/learn", pictures=pictures, dry_run=True, lesson="id")["dry_run"] is True
    gate, at_work = threading.Event(), threading.Event()
    server.service.writer.submit(lambda: (at_work.set(), gate.wait(30)))
    at_work.wait(10)
    job = server.post("/learn", pictures=pictures, lesson="id", wait=False, expect=202)["job"]
    server.post(f"/jobs/{job['id']}/stop")
    gate.set()
    with pytest.raises(Exception, match="stopped"):
        server.service.jobs.get(job["id"]).finished.result(30)
    assert server.post("/learn", pictures=pictures, lesson="id")["state"] == 2


def test_models_without_ids_are_written_as_before(tmp_path: Path):
    made = ContinualClassifier("glyphs-protonet-conv4", "prototypes").save(tmp_path / "model")
    made.partial_fit(GLYPHS.of_class(0)[:2, 0].numpy(), ["a", "a"])
    assert "lesson" not in made.history_[0].details()
