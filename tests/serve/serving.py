"""A real server on loopback, in a thread of the test, and the pictures that it is taught."""

import contextlib
import io
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
import numpy as np
import uvicorn
from PIL import Image

from fscl import ContinualClassifier
from fscl.data.sets.glyphs import make_glyphs
from fscl.serve.app import make_app
from fscl.serve.guard import Rules, own_hosts
from fscl.serve.service import Service
from fscl.serve.tokens import Tokens

BASE = "glyphs-protonet-conv4"
GLYPHS = make_glyphs(n_alphabets=6, n_characters=1, n_drawings=12, seed=3)
CHANGE = {"X-FSCL": "1"}
_ = anyio.open_file, anyio.to_thread  # imported here: Python 3.11 cannot always rewrite asserts in a deep thread


def drawing(of_class: int, number: int) -> bytes:
    """One drawing of a character, as a PNG file."""
    content = io.BytesIO()
    Image.fromarray(GLYPHS.of_class(of_class)[number, 0].numpy()).save(content, "PNG")
    return content.getvalue()


def lesson(*classes: int, n: int = 4, start: int = 0) -> tuple[np.ndarray, list[str]]:
    """Drawings of some characters, and their labels."""
    X = np.concatenate([GLYPHS.of_class(i)[start : start + n, 0].numpy() for i in classes])
    return X, [f"glyph {i}" for i in classes for _ in range(n)]


def model(folder: Path, *classes: int, n: int = 4, **settings: Any) -> ContinualClassifier:
    """A model in a folder that knows some characters."""
    made = ContinualClassifier(BASE, "prototypes", **{"keep_states": 50, **settings}).save(folder)
    return made.partial_fit(*lesson(*classes, n=n)) if classes else made


@dataclass(frozen=True)
class Running:
    """A server at work, and a client that asks it as the page does."""

    client: httpx.Client
    service: Service
    port: int
    token: str | None

    def get(self, path: str, **query: Any) -> Any:
        """JSON of an address below /api/v1."""
        return self._json(self.client.get(f"/api/v1{path}", params=query))

    def post(self, path: str, *, expect: int | tuple[int, ...] = (200, 201, 202, 204), **body: Any) -> Any:
        """What a change answers; `expect` is the status that is no failure."""
        return self._json(self.client.post(f"/api/v1{path}", json=body, headers=CHANGE), expect)

    def send(self, content: bytes, name: str = "") -> str:
        """The id of a picture that is sent."""
        response = self.client.post(
            "/api/v1/pictures", params={"name": name}, content=content, headers={**CHANGE, "Content-Type": "image/png"}
        )
        return str(self._json(response)["id"])

    def ask(self, content: bytes) -> Any:
        """The answer to one raw picture."""
        headers = {**CHANGE, "Content-Type": "image/png"}
        return self._json(self.client.post("/api/v1/predict", content=content, headers=headers))

    def ask_status(self, content: bytes, kind: str = "image/png", path: str = "/predict") -> int:
        """The status of a raw picture."""
        headers = {**CHANGE, "Content-Type": kind}
        return self.client.post(f"/api/v1{path}", content=content, headers=headers).status_code

    def teach(self, label: str, of_class: int, *numbers: int) -> Any:
        """Send drawings, and teach them under a label."""
        sent = [{"id": self.send(drawing(of_class, number)), "label": label} for number in numbers]
        return self.post("/learn", pictures=sent)

    def _json(self, response: httpx.Response, expect: int | tuple[int, ...] = (200, 201, 202, 204)) -> Any:
        allowed = (expect,) if isinstance(expect, int) else expect
        assert response.status_code in allowed, f"{response.status_code}: {response.text}"
        return response.json() if response.content else None


@contextlib.contextmanager
def running(folder: Path, *, token: bool = False, **rules: Any) -> Iterator[Running]:
    """Serve a folder on a free port of loopback until the block ends."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        tokens, words = Tokens.made() if token else (None, None)
        if tokens is not None:
            tokens.first_pause = 0.01
        service = Service(folder, read_only=rules.get("read_only", False))
        app = make_app(service, Rules(own_hosts(port), tokens=tokens, **rules))
        config = uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            ws="none",
            lifespan="on",
            timeout_graceful_shutdown=2,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + 60
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            assert time.monotonic() < deadline, "the server did not start in a minute"
            time.sleep(0.01)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                yield Running(client, service, port, words)
        finally:
            service.hub.close()
            server.should_exit = True
            thread.join(timeout=30)
            assert not thread.is_alive(), "the server did not end"


def in_a_thread(*call: Any) -> None:
    """Run it apart: the thread of the tests may have a loop of a browser's."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(anyio.run, *call).result()
