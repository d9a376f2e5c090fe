"""The service, killed while it changes a model: what it has acknowledged is there, and what it has not is whole."""

import io
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from fscl import ContinualClassifier
from fscl.classifier.store.manifest import read_manifest
from fscl.serve import service, teaching
from fscl.serve.run import Options, serve
from fscl.testing import POOL, small_base
from tools.soaking.breaking import AtMoment, BeforeChange, Breaking
from tools.soaking.models import MODEL, N_CLASSES, contents, model_task
from tools.soaking.tally import Tally
from tools.soaking.task import Place, Task, judge

CHANGE = {"X-FSCL": "1"}
KEY = "serve change"
N_STEPS = 30


@dataclass(frozen=True)
class Asked:
    """One request that changes the model."""

    path: str
    body: dict[str, Any] | None = None
    label: str = ""
    picture: bytes = b""

    def send(self, client: httpx.Client) -> bool:
        """Whether it was acknowledged; False where the service died."""
        address = f"/api/v1/{self.path}"
        try:
            if self.body is not None:
                answer = client.post(address, json=self.body, headers=CHANGE)
            else:
                files = [("picture", ("one.png", self.picture, "image/png"))]
                answer = client.post(address, files=files, data={"label": self.label}, headers=CHANGE)
        except httpx.HTTPError:
            return False
        if answer.status_code != httpx.codes.OK:
            raise AssertionError(f"{self.path}: {answer.status_code} {answer.text[:500]}")
        return True


@contextmanager
def serving(folder: Path, breaking: Breaking | None = None) -> Iterator[tuple[int, httpx.Client | None]]:
    """A process that serves, and a client; None where it died before it answered."""
    reading, writing = os.pipe()
    sys.stderr.flush()
    process = os.fork()
    if process == 0:
        try:
            os.setpgid(0, 0)
            os.close(reading)
            if breaking is not None:
                breaking.begin()
            serve(folder, Options(port=0, browser=False), lambda line: os.write(writing, f"{line}\n".encode()))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writing)
    try:
        with os.fdopen(reading) as said:
            address = next((found[0] for line in said if (found := re.search(r"http://\S+/", line))), None)
            if address is None:
                yield process, None
            else:
                with httpx.Client(base_url=address, timeout=60) as client:
                    yield process, client
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(process, 0)


class ServiceRound:
    """A model that is served and killed, and its twin that is served and not."""

    def __init__(self, number: int, place: Path, tally: Tally) -> None:
        self.tally, self.chance = tally, random.Random(f"service {number}")
        self.victim, self.twin = place / "victim", place / "twin"
        model = ContinualClassifier(small_base(), "prototypes", keep_states=5).save(self.victim / MODEL)
        model.partial_fit(POOL.images[:4, 0].numpy(), ["class-0"] * 2 + ["class-1"] * 2)
        shutil.copytree(self.victim, self.twin)

    def run(self, until: float) -> None:
        """Until the round is over."""
        with serving(self.twin / MODEL) as (_, client):
            assert client is not None, "the twin does not answer"
            for step in range(N_STEPS):
                if time.monotonic() < until:
                    self._step(step, client)

    def _step(self, number: int, twin: httpx.Client) -> None:
        service.now = teaching.now = lambda: f"2020-01-01T00:00:{number:02}+00:00"  # the same for both
        asked, before = self._choose(), contents(self.twin / MODEL)
        # the twin was started before the time stood still: what it does is done here, too, by a service of this moment
        with serving(self.twin / MODEL) as (_, client):
            assert client is not None
            begin = time.monotonic()
            assert asked.send(client)
            duration = time.monotonic() - begin
        assert twin.get("/api/v1/health").status_code == httpx.codes.OK
        task = self._task(asked, before)
        breakings: list[Breaking] = [BeforeChange(self.tally.places.get(KEY, 0) + more) for more in range(3)]
        breakings.append(AtMoment(self.chance.random() * (duration + 0.02)))
        for breaking in breakings:
            copy = self.victim.with_name("copy")
            last = breaking is breakings[-1]
            folder = self.victim if last else Path(shutil.copytree(self.victim, copy))
            acknowledged, killed = self._broken(asked, folder, breaking)
            if isinstance(breaking, BeforeChange):
                self.tally.places[KEY] = breaking.number + 1 if killed else 0
                self.tally.sweeps[KEY] += not killed
            code = -signal.SIGKILL if killed else 0
            if acknowledged and task.look(folder) != "after":
                self.tally.wrong("serve", "lost", f"{asked.path}, {breaking}: it was acknowledged, and is not there")
            judge(task, folder, breaking, code, self.tally)
            if not last:
                shutil.rmtree(copy)

    def _broken(self, asked: Asked, folder: Path, breaking: Breaking) -> tuple[bool, bool]:
        """Whether the request was acknowledged, and whether the service was killed before it was."""
        with serving(folder / MODEL, breaking) as (process, client):
            if client is None:
                return False, True
            timer = None
            if isinstance(breaking, AtMoment):
                timer = threading.Timer(breaking.seconds, os.kill, (process, signal.SIGKILL))
                timer.start()
            done = asked.send(client)
            if timer is not None:
                timer.join()
            return done, not done

    def _task(self, asked: Asked, before: list[Any]) -> Task:
        plain = model_task("serve", "service", lambda _: None, before, contents(self.twin / MODEL))

        def finish(root: Path, found: Place) -> None:
            if found == "before":
                with serving(root / MODEL) as (_, client):
                    assert client is not None, "the service does not start again"
                    assert asked.send(client), "the service died again"
            plain.finish(root, "after")

        return Task("serve", asked.path, plain.call, plain.look, finish)

    def _choose(self) -> Asked:
        model = ContinualClassifier.load(self.twin / MODEL)
        classes = [str(label) for label in model.classes_]
        kind = self.chance.choices(("learn", "rename", "forget", "undo"), weights=(5, 2, 1, 2))[0]
        if kind == "rename":
            new = f"name-{self.chance.randrange(10**9)}"
            return Asked(kind, {"label": self.chance.choice(classes), "to": new})
        if kind == "forget" and len(classes) > 2:
            return Asked(kind, {"label": self.chance.choice(classes)})
        if kind == "undo" and read_manifest(self.twin / MODEL).n_undoable > 1:
            return Asked(kind, {"calls": 1})
        content = io.BytesIO()
        Image.fromarray(POOL.images[self.chance.randrange(len(POOL.images)), 0].numpy()).save(content, "PNG")
        return Asked("learn", label=f"class-{self.chance.randrange(N_CLASSES)}", picture=content.getvalue())
