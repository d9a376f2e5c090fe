"""`fscl serve` as a process: how it starts, what it refuses, how it ends, and what a kill leaves."""

import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from fscl import ContinualClassifier
from fscl.classifier.store.check import check_model
from fscl.cli import main
from tests.children import FSCL, Child, started_child
from tests.serve.serving import CHANGE, drawing, model

PATIENCE = 120  # seconds; a busy machine needs some of them
Refused = Callable[..., str]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """`fscl serve` in this process, where it is refused before it begins: the sentence."""

    def run(*arguments: object, code: int) -> str:
        monkeypatch.setattr(sys, "argv", ["fscl", "serve", "--no-browser", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr().err
        assert ended.value.code == code, said
        assert len(said.splitlines()) == 1
        return said

    return run


@contextmanager
def served(*options: Any, command: str = "serve") -> Iterator[tuple[Child, httpx.Client, str]]:
    """A process that serves at a free port, a client of it, and what it said."""
    with started_child([*FSCL, command, *map(str, options), "--no-browser", "--port", "0"]) as child:
        child.wait_until(lambda: "Ctrl-C" in child.written()[0], timeout=PATIENCE)
        said = child.written()[0]
        address = re.search(r"http://\S+/", said)
        assert address is not None
        with httpx.Client(base_url=address[0], timeout=60) as client:
            yield child, client, said


def test_it_says_where_it_is_answers_and_ends_by_a_signal(tmp_path: Path):
    model(tmp_path / "model", 0, 1)
    with served(tmp_path / "model") as (child, client, said):
        assert f"fscl serves {tmp_path / 'model'} at http://127.0.0.1:" in said
        seconds = client.get("/api/v1/health").json()["seconds"]
        assert seconds < PATIENCE
        assert "<script" in client.get("/").text
        with client.stream("GET", "/api/v1/events"):  # an open page does not hold it
            child.send(signal.SIGTERM)
            child.finish(timeout=30, expect=0)
        assert child.written()[1] == ""


def test_a_model_is_made_for_drawings_and_the_demo_needs_no_data(tmp_path: Path):
    with served(tmp_path / "new", "--for", "drawings") as (_, client, said):
        assert f"made {tmp_path / 'new'} for drawings" in said
        assert client.get("/api/v1/model").json()["base"] == "omniglot-protonet-conv4"
    with served("--serve", "--out", tmp_path / "demo", command="demo") as (_, client, _):
        assert client.get("/api/v1/model").json()["n_classes"] == 6
        assert client.get("/api/v1/inbox").json()["total"] == 15


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0 lets other machines in; that needs --token"),
        (["--host", "0.0.0.0", "--token"], "say by which names it will be reached"),
        (["--name", "teach.example.org"], "--name lets other machines in; that needs --token"),
        (["--read-only"], "is no model, and --read-only makes none"),
        (["--for", "music"], "no kind of pictures named 'music'"),
    ],
)
def test_what_would_not_be_safe_or_cannot_be_is_refused_in_a_sentence(
    options: list[str], sentence: str, tmp_path: Path, refused: Refused
):
    assert sentence in refused(tmp_path / "new", *options, code=2)
    assert not (tmp_path / "new").exists()


def test_a_port_that_is_taken_and_a_folder_that_is_no_model_are_said(tmp_path: Path, refused: Refused):
    model(tmp_path / "model", 0, 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(tmp_path / "model", "--port", port, code=1)
    assert f"cannot listen at 127.0.0.1 port {port}" in said
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep")
    assert "is there already, and no model" in refused(tmp_path / "full", "--port", 0, code=2)
    assert (tmp_path / "full" / "mine.txt").read_text() == "keep"


def test_a_token_is_shown_once_and_in_no_log(tmp_path: Path):
    model(tmp_path / "model", 0, 1)
    with served(tmp_path / "model", "--token") as (child, client, said):
        token = said.split("token, shown this once: ")[1].split()[0]
        assert client.get("/api/v1/model").status_code == 401
        assert client.post("/api/v1/session", json={"token": token}, headers=CHANGE).status_code == 204
        assert client.get("/api/v1/model").status_code == 200
        child.send(signal.SIGINT)
        child.finish(timeout=30)
        out, err = child.written()
        assert out.count(token) == 1
        assert token not in err


@pytest.mark.slow
def test_every_lesson_that_was_acknowledged_outlasts_a_kill(tmp_path: Path):
    folder = tmp_path / "model"
    model(folder, 0, 1)
    acknowledged: list[str] = []
    for turn in range(3):
        with served(folder) as (child, client, _):

            def teach(turn: int = turn, client: httpx.Client = client) -> None:
                for number in range(200):
                    files = [("picture", (f"{number}.png", drawing(2 + number % 4, number % 12), "image/png"))]
                    label = f"turn {turn} lesson {number}"
                    try:
                        answer = client.post("/api/v1/learn", files=files, data={"label": label}, headers=CHANGE)
                    except httpx.HTTPError:
                        return
                    if answer.status_code == 200:
                        acknowledged.append(label)

            before = len(acknowledged)
            thread = threading.Thread(target=teach)
            thread.start()
            child.wait_until(lambda before=before: len(acknowledged) > before + 1, timeout=PATIENCE)
            time.sleep(0.05 * turn)
            child.send(signal.SIGKILL)
            thread.join()
        assert check_model(folder).problems == ()
    last = ContinualClassifier.load(folder)
    last.recover()
    assert set(acknowledged) <= set(last.classes_.tolist())
    assert len(acknowledged) >= 6
    assert np.isfinite(last.predict_proba([np.zeros((28, 28), np.uint8)])).all()
