"""The service under load, and killed: does it lose a lesson, does it answer from a half state, how fast is it?

    python benchmarks/service.py --seconds 600            # 50 clients ask, 5 teach, the server is killed now and then
    python benchmarks/service.py --seconds 40 --askers 10 # a short run

Three phases, all on loopback: the bare library in one thread; a plain endpoint with a lock (FastAPI where `fscl[bench]` is
installed, else Starlette) around the same call; `fscl serve`. Then teaching with `kill -9` and restarts. Prints a table of
requests a second and the 50th, 95th and 99th percentile of the time to answer; exits with 1 if a lesson that was
acknowledged is missing, or an answer fits no state.
"""

import argparse
import asyncio
import io
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from fscl import ContinualClassifier
from fscl.classifier.store.check import check_model
from fscl.data.sets.glyphs import make_glyphs
from fscl.process import configure_process

BASE, METHOD = "glyphs-protonet-conv4", "prototypes"
N_CLASSES, N_SHOTS = 20, 5
GLYPHS = make_glyphs(n_alphabets=N_CLASSES, n_characters=1, n_drawings=2 * N_SHOTS, seed=11)
HEADERS = {"X-FSCL": "1", "Content-Type": "image/png"}
START_SECONDS = 120


@dataclass
class Tally:
    """What clients saw."""

    seconds: list[float] = field(default_factory=list)
    n_failed: int = 0
    n_refused: int = 0
    wrong: list[str] = field(default_factory=list)
    states: dict[int, int] = field(default_factory=dict)  # classes of each state, by its first answer
    lock: threading.Lock = field(default_factory=threading.Lock)

    def row(self, name: str, wall: float) -> str:
        """One line of the table."""
        if not self.seconds:
            return f"| {name} | 0 | - | - | - |"
        p50, p95, p99 = (1000 * float(np.percentile(self.seconds, p)) for p in (50, 95, 99))
        return f"| {name} | {len(self.seconds) / wall:.1f} | {p50:.0f} | {p95:.0f} | {p99:.0f} |"


def drawing(of_class: int, number: int) -> bytes:
    """A drawing as a PNG file."""
    content = io.BytesIO()
    Image.fromarray(GLYPHS.of_class(of_class)[number, 0].numpy()).save(content, "PNG")
    return content.getvalue()


QUESTIONS = [drawing(of, number) for of in range(N_CLASSES) for number in range(N_SHOTS, 2 * N_SHOTS)]


def make_model(folder: Path) -> ContinualClassifier:
    """A model that knows 20 invented characters."""
    X = np.concatenate([GLYPHS.of_class(i)[:N_SHOTS, 0].numpy() for i in range(N_CLASSES)])
    made = ContinualClassifier(BASE, METHOD, keep_states=50).save(folder)
    return made.partial_fit(X, [f"class {i}" for i in range(N_CLASSES) for _ in range(N_SHOTS)])


# the bare library


def bare(folder: Path, seconds: float) -> tuple[Tally, float]:
    """One thread that decodes and asks, one picture after another."""
    model, tally, chance = ContinualClassifier.load(folder), Tally(), random.Random(0)
    model.explain(QUESTIONS[0])
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        before = time.perf_counter()
        model.explain(chance.choice(QUESTIONS))
        tally.seconds.append(time.perf_counter() - before)
    return tally, time.perf_counter() - started


# a plain endpoint with a lock


def plain_app(folder: str) -> Any:
    """`def` endpoint in a thread pool, a lock around the model: what one writes first."""
    configure_process()
    model, lock = ContinualClassifier.load(folder), threading.Lock()

    def answer(content: bytes) -> dict[str, Any]:
        with lock:
            found = model.explain(content)
        return {"label": found.label, "probability": found.probability, "ranked": len(found.ranked)}

    try:
        from fastapi import Body, FastAPI
    except ImportError:
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import JSONResponse
        from starlette.routing import Route

        async def predict(request: Any) -> Any:
            return JSONResponse(await run_in_threadpool(answer, await request.body()))

        return Starlette(routes=[Route("/api/v1/predict", predict, methods=["POST"])])
    app = FastAPI()

    @app.post("/api/v1/predict")
    def predict_picture(content: bytes = Body(media_type="image/png")) -> dict[str, Any]:
        return answer(content)

    return app


def serve_plain(folder: str) -> None:
    """In a process of its own."""
    import socket

    import uvicorn

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        app = plain_app(folder)
        print(f"at http://127.0.0.1:{listening.getsockname()[1]}/ Ctrl-C", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listening])


# processes


class Server:
    """A server in a process, which can be killed and started again."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.address = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait until it has said where it is."""
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        if self.process.stdout is None:
            raise RuntimeError("no stdout")
        deadline = time.monotonic() + START_SECONDS
        for line in self.process.stdout:
            found = re.search(r"http://\S+/", line)
            self.address = found[0] if found else self.address
            if "Ctrl-C" in line or time.monotonic() > deadline:
                break
        if not self.address:
            raise RuntimeError(f"{' '.join(self.command)} did not start")

    def kill(self) -> None:
        """As a power cut would, for the process."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def memory(self) -> int:
        """Bytes of resident memory."""
        if self.process is None:
            return 0
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0


@contextmanager
def started(command: list[str]) -> Iterator[Server]:
    """A server that is gone when the block ends."""
    server = Server(command)
    server.start()
    try:
        yield server
    finally:
        server.kill()


# clients


async def ask_for_a_while(address: Callable[[], str], tally: Tally, n_clients: int, until: float) -> None:
    """Clients that ask one question after another; where the server is away they wait."""

    async def one(number: int, client: httpx.AsyncClient) -> None:
        chance = random.Random(number)
        while time.monotonic() < until:
            before = time.perf_counter()
            try:
                response = await client.post(
                    f"{address()}api/v1/predict?top=1000", content=chance.choice(QUESTIONS), headers=HEADERS
                )
            except httpx.HTTPError:
                tally.n_failed += 1
                await asyncio.sleep(0.1)
                continue
            if response.status_code != 200:
                tally.n_refused += 1
                await asyncio.sleep(0.1)
                continue
            tally.seconds.append(time.perf_counter() - before)
            _check(tally, response.json())

    async with shared_client(n_clients) as client:
        await asyncio.gather(*(one(number, client) for number in range(n_clients)))


def shared_client(n_clients: int) -> httpx.AsyncClient:
    """One connection for each; a client of httpx takes long to make."""
    limits = httpx.Limits(max_connections=n_clients)
    return httpx.AsyncClient(timeout=60, verify=False, limits=limits)  # plain HTTP on 127.0.0.1  # nosec B501


def _check(tally: Tally, content: dict[str, Any]) -> None:
    """Every answer from a state names the classes of that state, and its probabilities add up."""
    if "state" not in content:
        return
    ranked = content["answers"][0]["ranked"]
    with tally.lock:
        expected = tally.states.setdefault(content["state"], len(ranked))
    if len(ranked) != expected or abs(sum(each["probability"] for each in ranked) - 1) > 1e-6:
        tally.wrong.append(f"state {content['state']}: {len(ranked)} classes, not {expected}")


async def teach_for_a_while(
    address: Callable[[], str], acknowledged: list[str], tally: Tally, n_clients: int, until: float
) -> None:
    """Clients that teach a class of their own, one picture after another."""

    async def one(number: int, client: httpx.AsyncClient) -> None:
        count = 0
        while time.monotonic() < until:
            source, before = f"teacher-{number}-{count}.png", time.perf_counter()
            count += 1
            files = {"picture": (source, drawing(count % N_CLASSES, count % N_SHOTS), "image/png")}
            try:
                response = await client.post(
                    f"{address()}api/v1/learn",
                    files=files,
                    data={"label": f"taught {number}"},
                    headers={"X-FSCL": "1"},
                )
            except httpx.HTTPError:
                tally.n_failed += 1
                await asyncio.sleep(0.1)
                continue
            if response.status_code == 200:
                acknowledged.append(source)
                tally.seconds.append(time.perf_counter() - before)
            else:
                tally.n_refused += 1
                await asyncio.sleep(0.1)

    async with shared_client(n_clients) as client:
        await asyncio.gather(*(one(number, client) for number in range(n_clients)))


def load(address: Callable[[], str], seconds: float, n_clients: int) -> tuple[Tally, float]:
    """Questions alone."""
    tally, began = Tally(), time.monotonic()
    asyncio.run(ask_for_a_while(address, tally, n_clients, began + seconds))
    return tally, time.monotonic() - began


def faults(
    folder: Path, seconds: float, n_askers: int, n_teachers: int, kill_every: float
) -> tuple[Tally, Tally, list[str], int, list[int]]:
    """Questions and lessons, and a server that is killed now and then: what clients saw, kills, and memory over time."""
    asked, taught, acknowledged, memory, chance = Tally(), Tally(), [], [], random.Random(1)
    server, n_kills, began = Server(serve_command(folder)), 0, time.monotonic()
    server.start()
    until = began + seconds

    async def all_clients() -> None:
        await asyncio.gather(
            ask_for_a_while(lambda: server.address, asked, n_askers, until),
            teach_for_a_while(lambda: server.address, acknowledged, taught, n_teachers, until),
        )

    clients = threading.Thread(target=lambda: asyncio.run(all_clients()))
    clients.start()
    following = time.monotonic() + kill_every * (0.5 + chance.random())
    while clients.is_alive():
        time.sleep(0.25)
        if kill_every and time.monotonic() > following and time.monotonic() < until - 5:
            memory.append(server.memory())
            server.kill()
            n_kills += 1
            if check_model(folder).problems:
                asked.wrong.append(f"after kill {n_kills}: {check_model(folder).problems}")
            server.start()
            following = time.monotonic() + kill_every * (0.5 + chance.random())
    clients.join()
    memory.append(server.memory())
    server.kill()
    return asked, taught, acknowledged, n_kills, memory


def serve_command(folder: Path) -> list[str]:
    """`fscl serve` at any free port."""
    return [sys.executable, "-m", "fscl", "serve", str(folder), "--no-browser", "--port", "0"]


def main() -> int:
    """All phases; 0 if nothing was lost and no answer came from a half state."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="of the phase with kills; the others take a tenth")
    parser.add_argument("--askers", type=int, default=50)
    parser.add_argument("--teachers", type=int, default=5)
    parser.add_argument("--kill-every", type=float, default=20, help="seconds on average; 0 for never")
    parser.add_argument("--plain", metavar="FOLDER", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plain:
        serve_plain(given.plain)
        return 0
    configure_process()
    place = Path(tempfile.mkdtemp(prefix="fscl-service-"))
    try:
        return measured(place, given)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def measured(place: Path, given: argparse.Namespace) -> int:
    """The table, and what was lost."""
    make_model(place / "model")
    short = max(3.0, given.seconds / 10)
    print(f"{METHOD} on {BASE}, {N_CLASSES} classes; {given.askers} clients ask for {short:.0f} s each\n")
    print("| | requests/s | p50 ms | p95 ms | p99 ms |\n|---|---|---|---|---|", flush=True)
    print(bare_row(place / "model", short), flush=True)
    with started([sys.executable, __file__, "--plain", str(place / "model")]) as server:
        load(lambda: server.address, 1, 2)
        tally, wall = load(lambda: server.address, short, given.askers)
        print(tally.row("`def` endpoint with a lock", wall), flush=True)
    with started(serve_command(place / "model")) as server:
        load(lambda: server.address, 1, 2)
        tally, wall = load(lambda: server.address, short, given.askers)
        print(tally.row("`fscl serve`", wall), flush=True)
        wrong = tally.wrong
    asked, taught, acknowledged, n_kills, memory = faults(
        place / "model", given.seconds, given.askers, given.teachers, given.kill_every
    )
    print(asked.row(f"`fscl serve`, {given.teachers} teach, {n_kills} kills: ask", given.seconds))
    print(taught.row("the same: teach", given.seconds))
    last = ContinualClassifier.load(place / "model")
    last.recover()
    stored = {example.source for example in last.examples_}
    lost = [source for source in acknowledged if source not in stored]
    problems = check_model(place / "model").problems
    print(f"\nlessons acknowledged: {len(acknowledged)}, missing: {len(lost)}; kills: {n_kills}")
    print(f"answers from a half state: {len(asked.wrong) + len(wrong)}; bad files: {len(problems)}")
    print(
        f"requests that a kill cut: {asked.n_failed + taught.n_failed}; refused: {asked.n_refused + taught.n_refused}"
    )
    print(f"resident memory before each kill, MB: {', '.join(f'{value / 2**20:.0f}' for value in memory)}")
    for each in [*lost, *asked.wrong, *wrong, *problems][:20]:
        print(f"  {each}")
    return 1 if lost or asked.wrong or wrong or problems else 0


def bare_row(folder: Path, seconds: float) -> str:
    """The library without HTTP."""
    tally, wall = bare(folder, seconds)
    return tally.row("the library alone, one thread", wall)


if __name__ == "__main__":
    sys.exit(main())
