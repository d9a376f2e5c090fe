"""Every parser of bytes from outside, as a function of bytes: it may refuse them in a sentence, and raises nothing else.

What is sealed by a digest is sealed anew, so that what lies behind the seal is reached, too.
"""

import asyncio
import io
import json
import shutil
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load as safetensors_load

from fscl import ContinualClassifier
from fscl.classifier.store.check import check_model
from fscl.classifier.store.journal import Journal
from fscl.classifier.store.manifest import NAME, Manifest, read_manifest, record_of, write_manifest
from fscl.classifier.store.repair import repair_model
from fscl.data.archive import open_files
from fscl.data.images import read_image
from fscl.data.limits import Limits
from fscl.errors import FsclError
from fscl.experiment.config import load_plan, shipped_configs
from fscl.experiment.record import RunRecord
from fscl.nets.sources import network_from_bytes
from fscl.serve.app import make_app
from fscl.serve.decoding import plain_from_bytes
from fscl.serve.guard import Rules, own_hosts
from fscl.serve.refusals import Refusal
from fscl.serve.service import Service
from fscl.storage import HEADER, digest, tensor_bytes
from fscl.testing import POOL, small_base

T = TypeVar("T")

LIMITS = Limits(entries=100, entry_bytes=10**6, whole_bytes=10**7)
CHANGE = {"X-FSCL": "1"}
PORT = 8420
KINDS = ("application/json", "image/png", "multipart/form-data; boundary=cut", "application/octet-stream")
PATHS = (
    "predict", "learn?dry_run=true", "correct", "move", "remove", "rename", "merge", "forget", "undo", "redo", "pictures",
    "inbox", "test", "export", "session",
)  # fmt: skip

Parse = Callable[[bytes], object]


@dataclass
class Target:
    """A parser.

    Attributes:
        seeds: bytes that it takes, to begin with.
        parse: gives it some bytes.
        closing: what is to be closed when all is done.
    """

    seeds: list[bytes]
    parse: Parse
    closing: ExitStack = field(default_factory=ExitStack)

    def try_bytes(self, content: bytes) -> bool:
        """Whether the bytes were taken; False where they were refused in a sentence. Anything else is raised."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self.parse(content)
            except (FsclError, Refusal):
                return False
        return True


def archive(place: Path, ending: str) -> Target:
    """Zip and tar archives: every file in them is read."""
    whole = io.BytesIO()
    if ending == "zip":
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as made:
            made.writestr("set/a/1.png", b"one" * 100)
            made.writestr("set/b/2.png", b"two")
    else:
        with tarfile.open(fileobj=whole, mode="w:gz" if ending == "tgz" else "w") as made:
            for name in ("set/a/1.png", "set/b/2.png"):
                entry = tarfile.TarInfo(name)
                entry.size = 300
                made.addfile(entry, io.BytesIO(b"one" * 100))

    def parse(content: bytes) -> None:
        path = place / f"some.{ending}"
        path.write_bytes(content)
        with open_files(path, LIMITS) as files:
            for read in files.values():
                read()

    return Target([whole.getvalue()], parse)


def manifest(place: Path) -> Target:
    """`model.json`, with its seal put right where it can be."""
    ContinualClassifier(method="prototypes").fit(np.eye(3), ["a", "b", "c"]).save(place / "model")
    path = place / "model" / NAME
    whole = path.read_bytes()

    def parse(content: bytes) -> None:
        path.write_bytes(content)
        with suppress(ValueError, RecursionError):
            value = json.loads(content)
            if isinstance(value, dict):
                inner = {key: each for key, each in value.items() if key not in ("seal", "kind", "schema")}
                path.write_text(json.dumps({**value, "kind": "model", "schema": 1, "seal": digest(inner)}))
        read_manifest(place / "model")
        check_model(place / "model")
        ContinualClassifier.load(place / "model").predict(np.eye(3))

    return Target([whole], parse)


def journal(place: Path) -> Target:
    """A lesson that waits, as a file of tensors; its digest is put right."""
    ContinualClassifier(method="prototypes").fit(np.eye(3), ["a", "b", "c"]).save(place / "whole")
    details = {"labels": ["a", "d"], "sources": ["1", "2"], "call": "learn", "when": "now", "originals": []}
    lesson = tensor_bytes("lesson", {"examples": torch.eye(3, dtype=torch.float64)[:2]}, details)

    def parse(content: bytes) -> None:
        folder = _anew(place / "whole", place / "model")
        entries = Journal(folder / "journal")
        entries.path(read_manifest(folder).next_number).write_bytes(_resealed("lesson", content))
        ContinualClassifier.load(folder).recover()

    return Target([lesson], parse)


def state(place: Path, name: str) -> Target:
    """A file of a state, in a folder whose manifest agrees with it: loaded, checked, repaired, asked and taught."""
    model = ContinualClassifier(small_base(), "prototypes").save(place / "whole")
    model.partial_fit(POOL.images[:4, 0].numpy(), ["a", "a", "b", "b"]).partial_fit(
        POOL.images[4:6, 0].numpy(), ["c", "c"]
    )
    records = read_manifest(place / "whole").states
    seeds = [(place / "whole" / record.folder / name).read_bytes() for record in records]

    def parse(content: bytes) -> None:
        folder = _anew(place / "whole", place / "model")
        found = read_manifest(folder)
        path = folder / found.states[-1].folder / name
        path.write_bytes(_resealed("classifier-tensors", content) if name.endswith(".safetensors") else content)
        _recorded(folder, found, path)
        check_model(folder)
        loaded = ContinualClassifier.load(folder)
        loaded.predict(POOL.images[:2, 0].numpy())
        loaded.partial_fit(POOL.images[6:7, 0].numpy(), ["c"])
        repair_model(folder)

    return Target(seeds, parse)


def network(place: Path) -> Target:
    """The file of a base network."""
    small_base().save(place / "base.safetensors", {"summary": "toy"})
    whole = (place / "base.safetensors").read_bytes()

    def parse(content: bytes) -> None:
        for each in (content, _resealed("network", content)):
            found, _ = network_from_bytes(Path("base.safetensors"), each)
            found.features(found.to_input(POOL.images[:1]))

    return Target([whole], parse)


def picture(place: Path) -> Target:
    """Pictures of every format that is read, from a file and as they are sent to the service."""
    seeds = []
    for kind in ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM"):
        content = io.BytesIO()
        Image.fromarray(POOL.images[0, 0].numpy()).save(content, kind)
        seeds.append(content.getvalue())

    def parse(content: bytes) -> None:
        try:
            read_image(content, image_size=16, channels=1)
        finally:
            plain_from_bytes(content, name="sent")

    return Target(seeds, parse)


def config(place: Path) -> Target:
    """Configurations, as TOML."""
    texts = [text.encode() for text in shipped_configs().values()]

    def parse(content: bytes) -> None:
        path = place / "some.toml"
        path.write_bytes(content)
        load_plan(str(path))

    return Target(sorted(texts, key=len)[:12], parse)


def record(place: Path) -> Target:
    """`run.json` and `cells.jsonl` of a run directory."""
    about = {
        "kind": "run", "schema": 1, "config": {"name": "toy"}, "versions": {}, "streams": [],
        "data": {"pool": "p", "hash": "h", "classes": 2}, "base": {"hash": "b", "spec": {}, "origin": "o", "summary": ""},
    }  # fmt: skip
    cell = {"method": "tsc", "sequence": 0, "result": {}, "cost": {}, "digest": ""}
    run = RunRecord(place / "run")
    run.folder.mkdir()

    def parse(content: bytes) -> None:
        head, _, tail = content.partition(b"\0")
        run.about_path.write_bytes(head)
        run.cells_path.write_bytes(tail)
        run.about()
        with suppress(ValueError, RecursionError, TypeError, AttributeError, KeyError):
            line = json.loads(tail)
            del line["digest"]
            line["digest"] = digest([run._identity(), line])
            run.cells_path.write_text(json.dumps(line) + "\n")
        run.cells()

    return Target([json.dumps(about).encode() + b"\0" + json.dumps(cell).encode() + b"\n"], parse)


class _Loop:
    """An event loop in a thread of its own: this one may have a loop already, as that of a browser."""

    def __enter__(self) -> "_Loop":
        self._thread = ThreadPoolExecutor(1)
        self._runner = self._thread.submit(asyncio.Runner).result()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work returns, when it is done."""
        return self._thread.submit(self._runner.run, work).result()


def http(place: Path) -> Target:
    """Bodies of requests: the first byte chooses the address, the second the kind, the rest is the body."""
    model = ContinualClassifier(small_base(), "prototypes", keep_states=1).save(place / "model")
    model.partial_fit(POOL.images[:6, 0].numpy(), ["a", "a", "b", "b", "c", "c"])
    closing = ExitStack()
    app = make_app(Service(place / "model"), Rules(own_hosts(PORT)))
    loop = closing.enter_context(_Loop())
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://127.0.0.1:{PORT}")
    living = loop.run(_begun(app))
    closing.callback(lambda: loop.run(_ended(living)))

    def parse(content: bytes) -> None:
        address = PATHS[content[0] % len(PATHS)] if content else PATHS[0]
        kind = KINDS[content[1] % len(KINDS)] if len(content) > 1 else KINDS[0]
        headers = {**CHANGE, "Content-Type": kind}
        answer = loop.run(client.post(f"/api/v1/{address}", content=content[2:], headers=headers))
        if answer.status_code >= 500 and answer.status_code != 503:  # 503 says that too much waits
            raise AssertionError(f"{address}: {answer.status_code} {answer.text[:300]}")
        if answer.status_code >= 400:
            raise Refusal("misuse", answer.text)

    image = io.BytesIO()
    Image.fromarray(POOL.images[0, 0].numpy()).save(image, "PNG")
    form = (
        b'--cut\r\nContent-Disposition: form-data; name="label"\r\n\r\na\r\n--cut\r\nContent-Disposition: form-data; '
        b'name="picture"; filename="1.png"\r\nContent-Type: image/png\r\n\r\n' + image.getvalue() + b"\r\n--cut--\r\n"
    )
    bodies: dict[str, dict[str, Any]] = {
        "rename": {"label": "a", "to": "b2"}, "forget": {"label": "zz"}, "undo": {"calls": 1}, "redo": {"to": 1},
        "merge": {"label": "a", "into": "zz"}, "move": {"example": 1, "state": 1, "label": "a"},
        "remove": {"example": 1, "state": 1}, "correct": {"picture": "x", "label": "a"}, "export": {"format": "model"},
        "test": {"pictures": [{"id": "x", "label": "a"}]}, "inbox": {"pictures": ["x"]}, "session": {"token": "x"},
    }  # fmt: skip
    seeds = [bytes([PATHS.index(path), 0]) + json.dumps(body).encode() for path, body in bodies.items()]
    seeds += [
        bytes([0, 1]) + image.getvalue(),
        bytes([0, 2]) + form,
        bytes([1, 2]) + form,
        bytes([10, 1]) + image.getvalue(),
    ]
    return Target(seeds, parse, closing)


TARGETS: dict[str, Callable[[Path], Target]] = {
    "zip": lambda place: archive(place, "zip"),
    "tar": lambda place: archive(place, "tar"),
    "tgz": lambda place: archive(place, "tgz"),
    "manifest": manifest,
    "journal": journal,
    "state": lambda place: state(place, "state.json"),
    "tensors": lambda place: state(place, "learner.safetensors"),
    "network": network,
    "picture": picture,
    "config": config,
    "run": record,
    "http": http,
}


async def _begun(app: Any) -> tuple[Any, asyncio.Queue[Any]]:
    """Start an application as a server does."""
    asked: asyncio.Queue[Any] = asyncio.Queue()
    told: asyncio.Queue[Any] = asyncio.Queue()
    task = asyncio.create_task(app({"type": "lifespan", "asgi": {"version": "3.0"}}, asked.get, told.put))
    await asked.put({"type": "lifespan.startup"})
    await told.get()
    return task, asked


async def _ended(living: tuple[Any, asyncio.Queue[Any]]) -> None:
    task, asked = living
    await asked.put({"type": "lifespan.shutdown"})
    await task


def _anew(whole: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return Path(shutil.copytree(whole, folder))


def _recorded(folder: Path, found: Manifest, path: Path) -> None:
    """Have the manifest agree with a file of the present state."""
    last = found.states[-1]
    last = last.model_copy(update={"files": {**last.files, path.name: record_of(path)}})
    write_manifest(folder, found.model_copy(update={"states": (*found.states[:-1], last)}))


def _resealed(kind: str, content: bytes) -> bytes:
    """A file of tensors with the digest that its content has; as it is where it is no such file."""
    try:
        length = int.from_bytes(content[:8], "little")
        header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][HEADER])
        return tensor_bytes(kind, safetensors_load(content), header.get("details"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError):
        return content
