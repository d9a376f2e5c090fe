"""Inside: one thread that answers, one that writes, states that are swapped whole, events, work that can be stopped."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fscl import ContinualClassifier
from fscl.classifier.model import Model
from fscl.classifier.store.check import check_model
from fscl.classifier.store.manifest import read_manifest
from fscl.serve import tray as tray_module
from fscl.serve.inference import MAX_BATCH, MAX_WAITING, Inference
from fscl.serve.jobs import Job
from fscl.serve.present import Present
from fscl.serve.refusals import Refusal
from tests.children import FSCL, run_child
from tests.serve.serving import BASE, CHANGE, GLYPHS, Running, drawing, lesson, model, running


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


@contextmanager
def listening(server: Running) -> Iterator[list[tuple[str, Any]]]:
    """What a page hears, in a list that grows."""
    heard: list[tuple[str, Any]] = []

    def listen() -> None:
        with server.client.stream("GET", "/api/v1/events") as response:
            kind = ""
            for line in response.iter_lines():
                if line.startswith("event: "):
                    kind = line[7:]
                elif line.startswith("data: "):
                    heard.append((kind, json.loads(line[6:])))
                    if kind == "end":
                        return

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    until(lambda: heard)
    try:
        yield heard
    finally:
        server.service.hub.publish("end", {})
        thread.join(timeout=10)


def test_all_that_waits_is_one_pass_through_the_network(folder: Path):
    opened = Model.load(folder)
    assert opened.folder is not None
    present = Present.of(opened, *opened.folder.read_named())
    inference = Inference(lambda: present)
    image = GLYPHS.of_class(0)[:1]
    questions = [inference.ask(image) for _ in range(MAX_BATCH + 10)]  # nobody answers yet
    inference.start()
    answers = [question.result(30) for question in questions]
    inference.stop()
    assert inference.n_batches == 2
    assert inference.n_answered == MAX_BATCH + 10
    assert {found[0].label for _, found in answers} == {"glyph 0"}


def test_a_batch_that_fails_fails_its_questions_and_the_thread_lives_on(folder: Path):
    opened = Model.load(folder)
    assert opened.folder is not None
    present = Present.of(opened, *opened.folder.read_named())
    inference = Inference(lambda: present)
    inference.start()
    with pytest.raises(Exception):  # noqa: B017, PT011
        inference.ask(torch.zeros(1, 7, 3, 3, dtype=torch.uint8)).result(30)
    assert len(inference.ask(GLYPHS.of_class(0)[:2]).result(30)[1]) == 2
    inference.stop()


def test_more_questions_than_can_wait_are_turned_away(folder: Path):
    inference = Inference(lambda: None)  # type: ignore[arg-type, return-value]
    for _ in range(MAX_WAITING // MAX_BATCH):
        inference.ask(torch.zeros(MAX_BATCH, 1, 28, 28))
    with pytest.raises(Refusal) as refused:
        inference.ask(torch.zeros(1, 1, 28, 28))
    assert refused.value.status == 503


def test_no_answer_comes_from_a_half_state(folder: Path):
    """Each state knows one class more; an answer names as many classes as its state has."""
    with running(folder) as server:
        expected, wrong, stop = {1: 3}, [], threading.Event()

        def ask() -> None:
            while not stop.is_set():
                found = server.client.post(
                    "/api/v1/predict",
                    params={"top": 100},
                    content=drawing(0, 9),
                    headers={**CHANGE, "Content-Type": "image/png"},
                ).json()
                n_classes = len(found["answers"][0]["ranked"])
                if n_classes != found["state"] + 2:
                    wrong.append((found["state"], n_classes))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(4):
            done = server.teach(f"new {number}", 3 + number % 3, number)
            expected[done["state"]] = len(done["classes"])
        stop.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert expected == {1: 3, 2: 4, 3: 5, 4: 6, 5: 7}


def test_a_change_by_the_command_line_is_seen_within_a_second(server: Running, folder: Path):
    with listening(server) as heard:
        ContinualClassifier.load(folder).rename("glyph 0", "by hand")  # another handle, as another process has it
        changed = time.monotonic()
        until(lambda: ("state", {"state": 2, "by": "outside"}) in heard)
        assert time.monotonic() - changed < 3  # one second, and what a busy machine adds
        assert server.get("/classes")["classes"][0]["label"] == "by hand"


def test_a_lesson_of_another_process_is_built_on_and_not_overwritten(server: Running, folder: Path):
    run_child([*FSCL, "rename", folder, "glyph 0", "by hand"])
    server.teach("glyph 5", 5, 0, 1)
    labels = ContinualClassifier.load(folder).classes_.tolist()
    assert labels == ["by hand", "glyph 1", "glyph 2", "glyph 5"]


def test_a_model_that_was_replaced_by_another_is_served_anew(server: Running, folder: Path, tmp_path: Path):
    ContinualClassifier("omniglot-protonet-conv4", "prototypes").save(tmp_path / "other").partial_fit(*lesson(3, 4))
    shutil.copytree(tmp_path / "other", tmp_path / "twin")
    folder.rename(tmp_path / "old")
    (tmp_path / "other").rename(folder)
    until(lambda: [each["label"] for each in server.get("/classes")["classes"]] == ["glyph 3", "glyph 4"])
    server.teach("glyph 5", 5, 0, 1)
    twin = ContinualClassifier.load(tmp_path / "twin").partial_fit(*lesson(5, n=2))
    again, X = ContinualClassifier.load(folder), lesson(3, 5)[0]
    assert np.array_equal(again.predict_proba(X), twin.predict_proba(X))
    assert check_model(folder).problems == ()


def test_a_folder_that_vanishes_is_said_and_its_return_is_noticed(server: Running, folder: Path, tmp_path: Path):
    folder.rename(tmp_path / "away")
    until(lambda: server.client.get("/api/v1/health").status_code == 503)
    assert server.ask(drawing(0, 9))["answers"][0]["label"] == "glyph 0"  # the last state still answers
    (tmp_path / "away").rename(folder)
    until(lambda: server.client.get("/api/v1/health").status_code == 200)


def test_pages_hear_of_states_jobs_and_the_inbox(server: Running):
    with listening(server) as heard:
        assert heard[0][0] == "hello"
        assert heard[0][1]["state"] == 1
        server.teach("glyph 5", 5, 0, 1)
        key = server.send(drawing(4, 0))
        server.post("/inbox", pictures=[key])
        until(lambda: ("inbox", {"total": 1}) in heard)
    assert ("state", {"state": 2, "by": "page"}) in heard
    jobs = [content for kind, content in heard if kind == "job"]
    assert jobs[0]["kind"] == "learn"
    assert jobs[-1]["state"] == "done"
    assert jobs[-1]["result"]["state"] == 2


def test_work_can_be_left_to_itself_followed_and_found_again(server: Running):
    pictures = [{"id": server.send(drawing(5, i)), "label": "later"} for i in range(4)]
    job = server.post("/learn", pictures=pictures, wait=False, expect=202)["job"]
    until(lambda: server.get(f"/jobs/{job['id']}")["job"]["state"] == "done")
    found = server.get("/jobs")["jobs"][0]
    assert found["label"] == "4 pictures of later"
    assert (found["done"], found["total"]) == (4, 4)
    assert found["result"]["event"]["n_examples"] == 4
    assert server.get("/model")["n_classes"] == 4


def test_work_that_is_stopped_before_its_commit_changes_nothing(server: Running, folder: Path):
    gate, at_work = threading.Event(), threading.Event()
    server.service.writer.submit(lambda: (at_work.set(), gate.wait(30)))  # the writer is busy with another
    at_work.wait(10)
    pictures = [{"id": server.send(drawing(5, i)), "label": "never"} for i in range(2)]
    job = server.post("/learn", pictures=pictures, wait=False, expect=202)["job"]
    until(lambda: server.get(f"/jobs/{job['id']}")["job"]["phase"] == "waiting")
    assert server.post(f"/jobs/{job['id']}/stop")["job"]["stoppable"] is False
    gate.set()
    until(lambda: server.get(f"/jobs/{job['id']}")["job"]["state"] == "stopped")
    assert server.get(f"/jobs/{job['id']}")["job"]["error"]["kind"] == "stopped"
    assert server.get("/model")["n_classes"] == 3
    assert check_model(folder).strays == ()
    assert server.post("/learn", pictures=pictures)["state"] == 2  # the pictures are still there


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_long_lesson_is_stopped_while_it_learns(tmp_path: Path, dry_run: bool):
    """This one would take a day."""
    folder, settings = tmp_path / "model", {"steps": 10**7, "embedding_steps": "all"}
    ContinualClassifier(BASE, "replay", settings=settings, keep_states=50).save(folder)
    with running(folder) as server:
        pictures = [{"id": server.send(drawing(of, i)), "label": f"glyph {of}"} for of in (0, 1) for i in (0, 1)]
        job = server.post("/learn", pictures=pictures, dry_run=dry_run, wait=False, expect=202)["job"]
        until(lambda: server.get(f"/jobs/{job['id']}")["job"]["phase"] == "learning")
        time.sleep(0.2)
        server.post(f"/jobs/{job['id']}/stop")
        until(lambda: server.get(f"/jobs/{job['id']}")["job"]["state"] == "stopped")
        assert server.get("/model")["n_classes"] == 0
        assert server.get("/health")["status"] == "ok"
    found = check_model(folder)
    assert (found.problems, found.strays, found.waiting) == ((), (), False)


def test_a_job_cannot_be_stopped_once_it_is_being_written():
    job = Job("learn", "x", lambda _: None)
    job.commit()
    job.stop()
    job.check()
    assert job.content()["stoppable"] is False


def test_many_corrections_keep_a_bounded_number_of_states_that_do_not_repeat_one_another(tmp_path: Path):
    folder = tmp_path / "model"
    model(folder, 0, 1, 2, n=10, keep_states=6)
    with running(folder) as server:
        for number in range(15):
            key = server.send(drawing(number % 3, 10 + number // 3 % 2))
            server.post("/correct", picture=key, label=f"glyph {number % 3}")
        found = server.get("/history")
        assert [each["state"] for each in found["states"]] == list(range(10, 17))
        assert [each["event"]["call"] for each in found["states"]] == ["correct"] * 7
        assert all(each["accuracy"] is not None for each in found["states"])
        server.post("/undo", to=10)  # the first that is kept, which builds on states that are not
        assert sum(each["examples"] for each in server.get("/classes")["classes"]) == 39
    manifest = read_manifest(folder)
    assert any(record.parent is not None for record in manifest.kept)
    assert len(manifest.stored) <= 13
    assert check_model(folder).problems == ()


def test_the_tray_is_bounded_and_the_inbox_stays_longest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from PIL import Image

    monkeypatch.setattr(tray_module, "MAX_PICTURES", 5)
    monkeypatch.setattr(tray_module, "MAX_INBOX", 3)
    tray = tray_module.Tray(tmp_path / "tray")
    first = tray.add(Image.new("L", (4, 4), 0), "first", inbox=True)
    others = [tray.add(Image.new("L", (4, 4), 10 + shade), str(shade)) for shade in range(6)]
    assert tray.get(first.id).name == "first"
    with pytest.raises(Refusal):
        tray.get(others[0].id)
    for shade in range(4):
        tray.add(Image.new("L", (4, 4), 100 + shade), "waits", inbox=True)
    assert len(tray.inbox()) == 3
    assert len(list((tmp_path / "tray").iterdir())) == 2 * 5
    again = tray_module.Tray(tmp_path / "tray")
    assert [each.id for each in again.inbox()] == [each.id for each in tray.inbox()]


def test_an_inbox_that_is_emptied_while_it_is_read_is_no_error(server: Running, monkeypatch: pytest.MonkeyPatch):
    keys = [server.send(drawing(4, i)) for i in range(3)]
    server.post("/inbox", pictures=keys)
    tray = server.service.tray
    opened, left = tray.open, [keys[1]]

    def open_late(key: str) -> Any:
        while left:
            tray.drop([left.pop()])  # another tab has taught it meanwhile
        return opened(key)

    monkeypatch.setattr(tray, "open", open_late)
    assert server.get("/inbox")["total"] == 2


def test_taught_pictures_leave_the_tray_so_that_forget_is_final(server: Running, folder: Path):
    server.teach("secret", 5, 0, 1)
    server.post("/forget", label="secret")
    assert list((folder / "tray").iterdir()) == []
