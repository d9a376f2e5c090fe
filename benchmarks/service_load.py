"""Clients and servers of `benchmarks/service.py`: who asks, who teaches, what is killed, and what clients saw."""

import asyncio
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fscl.data.sets.glyphs import make_glyphs

N_CLASSES, N_SHOTS = 20, 5
GLYPHS = make_glyphs(n_alphabets=N_CLASSES, n_characters=1, n_drawings=2 * N_SHOTS, seed=11)
START_SECONDS, ANSWER_SECONDS, PAUSE = 120, 60, 0.1
OK = 200
CLOSE = 1e-3  # of two probabilities of one state: pictures are answered in batches of any size
N_LESSONS_KEPT = 100  # states whose answers are remembered, to be compared

Answer = dict[str, float]


def drawing(of_class: int, number: int) -> bytes:
    """A drawing as a PNG file."""
    content = io.BytesIO()
    Image.fromarray(GLYPHS.of_class(of_class)[number, 0].numpy()).save(content, "PNG")
    return content.getvalue()


QUESTIONS = [drawing(of, number) for of in range(N_CLASSES) for number in range(N_SHOTS, 2 * N_SHOTS)]


@dataclass
class Tally:
    """What clients saw.

    Attributes:
        seconds: to each answer.
        cpu: seconds of the processor that answering took.
        wall: seconds in which they asked.
        answers: by state and question: the probability of every class, as the first answer from that state said.
    """

    seconds: list[float] = field(default_factory=list)
    cpu: float = 0.0
    wall: float = 0.0
    n_failed: int = 0
    n_refused: int = 0
    n_compared: int = 0
    wrong: list[str] = field(default_factory=list)
    answers: dict[int, dict[int, Answer]] = field(default_factory=dict)

    def row(self, name: str) -> str:
        """One line of the table."""
        if not self.seconds:
            return f"| {name} | 0 | - | - | - | - |"
        p50, p95, p99 = (1000 * float(np.percentile(self.seconds, p)) for p in (50, 95, 99))
        cpu = f"{1000 * self.cpu / len(self.seconds):.1f}" if self.cpu else "-"
        return f"| {name} | {len(self.seconds) / self.wall:.1f} | {p50:.0f} | {p95:.0f} | {p99:.0f} | {cpu} |"

    def check(self, question: int, content: dict[str, Any]) -> None:
        """All answers from one state to one question are the same, and every one is a whole distribution."""
        if "state" not in content:
            return
        state = content["state"]
        found = {str(each["label"]): each["probability"] for each in content["answers"][0]["ranked"]}
        first = self.answers.setdefault(state, {}).setdefault(question, found)
        self.n_compared += first is not found
        if not alike(first, found) or abs(sum(found.values()) - 1) > CLOSE:
            self.wrong.append(f"state {state}, question {question}: {found} is not {first}"[:300])
        while len(self.answers) > N_LESSONS_KEPT:
            del self.answers[min(self.answers)]


def alike(one: Answer, other: Answer) -> bool:
    """Whether two answers name the same classes with the same probabilities."""
    return one.keys() == other.keys() and all(abs(one[label] - other[label]) < CLOSE for label in one)


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
        status = Path(f"/proc/{self.process.pid}/status").read_text() if self.process else ""
        found = re.search(r"VmRSS:\s+(\d+)", status)
        return int(found[1]) * 1024 if found else 0

    def cpu(self) -> float:
        """Seconds of the processor so far."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text() if self.process else ""
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def started(command: list[str]) -> Iterator[Server]:
    """A server that is gone when the block ends."""
    server = Server(command)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def serve_command(folder: Path) -> list[str]:
    """`fscl serve` at any free port."""
    return [sys.executable, "-m", "fscl", "serve", str(folder), "--no-browser", "--port", "0"]


class Connection:
    """One connection that stays open; as little as will do, or the client would be what is measured."""

    def __init__(self, address: Callable[[], str]) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, content: bytes) -> tuple[int, bytes]:
        """Status and body of the answer; ConnectionError where there is none."""
        try:
            return await asyncio.wait_for(self._posted(path, content), ANSWER_SECONDS)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            self.close()
            raise ConnectionError(str(error)) from error

    async def _posted(self, path: str, content: bytes) -> tuple[int, bytes]:
        host = self._address().removeprefix("http://").rstrip("/")
        if self._streams is None:
            self._streams = await asyncio.open_connection(*host.split(":"))
        reader, writer = self._streams
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nX-FSCL: 1\r\nContent-Type: image/png\r\n"
        writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        said = (await reader.readuntil(b"\r\n\r\n")).lower()
        (length,) = re.findall(rb"\r\ncontent-length: (\d+)", said)
        body = await reader.readexactly(int(length))
        if b"\r\nconnection: close" in said:
            self.close()
        return int(said.split()[1]), body

    def close(self) -> None:
        """End it; the next question opens another."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


async def ask_for_a_while(address: Callable[[], str], tally: Tally, n_clients: int, until: float) -> None:
    """Clients that ask one question after another; where the server is away they wait."""

    async def one(number: int) -> None:
        chance, connection = random.Random(number), Connection(address)
        while time.monotonic() < until:
            before, question = time.perf_counter(), chance.randrange(len(QUESTIONS))
            try:
                status, body = await connection.post("/api/v1/predict?top=1000", QUESTIONS[question])
            except ConnectionError:
                tally.n_failed += 1
                await asyncio.sleep(PAUSE)
                continue
            if status != OK:
                tally.n_refused += 1
                await asyncio.sleep(PAUSE)
                continue
            tally.seconds.append(time.perf_counter() - before)
            tally.check(question, json.loads(body))
        connection.close()

    await asyncio.gather(*(one(number) for number in range(n_clients)))


async def teach_for_a_while(
    address: Callable[[], str], acknowledged: list[str], tally: Tally, n_clients: int, until: float
) -> None:
    """Clients that teach a class of their own; a lesson without an answer is sent again under the same id."""

    async def one(number: int) -> None:
        count, connection = 0, Connection(address)
        while time.monotonic() < until:
            count += 1
            source = f"teacher-{number}-{count}.png"
            path = f"/api/v1/learn?label=taught-{number}&lesson={number}-{count}&name={source}"
            content = drawing(count % N_CLASSES, count % N_SHOTS)
            while time.monotonic() < until:
                before = time.perf_counter()
                try:
                    status, _ = await connection.post(path, content)
                except ConnectionError:
                    tally.n_failed += 1
                    await asyncio.sleep(PAUSE)
                    continue
                if status == OK:
                    acknowledged.append(source)
                    tally.seconds.append(time.perf_counter() - before)
                    break
                tally.n_refused += 1
                await asyncio.sleep(PAUSE)
        connection.close()

    await asyncio.gather(*(one(number) for number in range(n_clients)))


def load(server: Server, tally: Tally, seconds: float, n_clients: int) -> None:
    """Questions alone."""
    began, cpu = time.monotonic(), server.cpu()
    asyncio.run(ask_for_a_while(lambda: server.address, tally, n_clients, began + seconds))
    tally.wall += time.monotonic() - began
    tally.cpu += server.cpu() - cpu


@dataclass
class Mixed:
    """What a while of questions and lessons left."""

    asked: Tally = field(default_factory=Tally)
    taught: Tally = field(default_factory=Tally)
    acknowledged: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)  # bytes, each second
    n_kills: int = 0
    start_seconds: list[float] = field(default_factory=list)

    def run(
        self,
        folder: Path,
        seconds: float,
        n_askers: int,
        n_teachers: int,
        *,
        kill_every: float = 0.0,
        after_kill: Callable[[], None] = lambda: None,
    ) -> None:
        """Questions and lessons at once.

        Args:
            folder: of the model.
            seconds: how long.
            n_askers, n_teachers: clients.
            kill_every: seconds between two kills on average; 0 for none.
            after_kill: called while the server is dead.
        """
        server, chance = Server(serve_command(folder)), random.Random(1)
        server.start()
        began = time.monotonic()
        until = began + seconds

        async def all_clients() -> None:
            await asyncio.gather(
                ask_for_a_while(lambda: server.address, self.asked, n_askers, until),
                teach_for_a_while(lambda: server.address, self.acknowledged, self.taught, n_teachers, until),
            )

        clients = threading.Thread(target=lambda: asyncio.run(all_clients()))
        clients.start()
        following = began + kill_every * (0.5 + chance.random())
        while clients.is_alive():
            time.sleep(1)
            self.memory.append(server.memory())
            if kill_every and following < time.monotonic() < until - 5:
                server.kill()
                self.n_kills += 1
                after_kill()
                again = time.monotonic()
                server.start()
                self.start_seconds.append(time.monotonic() - again)
                following = time.monotonic() + kill_every * (0.5 + chance.random())
        clients.join()
        self.asked.wall = self.taught.wall = time.monotonic() - began
        server.kill()
