"""The service under load, and killed: does it lose a lesson, does it answer from a half state, how fast is it?

    python benchmarks/service.py --seconds 600            # 50 clients ask, 5 teach, the server is killed now and then
    python benchmarks/service.py --seconds 40 --askers 10 # a short run

All on loopback. First questions alone, in turns: the bare library in one thread; a plain endpoint with a lock (FastAPI where
`fscl[bench]` is installed, else Starlette) around the same call; `fscl serve`. Then questions and lessons without a kill, on
a model whose memory of examples is bounded: how much memory the service takes over time. Then `kill -9` and restarts, with
lessons that are sent again under their id until they are answered. Exits with 1 if a lesson that was acknowledged is missing
or taught twice, if two answers from one state differ or differ from the library's, or if memory grows.
"""

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from service_load import (
    GLYPHS,
    N_CLASSES,
    N_SHOTS,
    QUESTIONS,
    Answer,
    Mixed,
    Tally,
    alike,
    load,
    serve_command,
    started,
)

from fscl import ContinualClassifier
from fscl.classifier.store.check import check_model
from fscl.classifier.store.manifest import read_manifest
from fscl.process import configure_process

BASE, METHOD = "glyphs-protonet-conv4", "prototypes"
N_TURNS = 3
MAX_GROWTH = 0.05  # of resident memory, from half of the time to the end
MEMORY_BYTES = 100 * (32 * 32 + 8)  # of stored examples, where their number shall not grow


def make_model(folder: Path, **settings: Any) -> ContinualClassifier:
    """A model that knows 20 invented characters."""
    X = np.concatenate([GLYPHS.of_class(i)[:N_SHOTS, 0].numpy() for i in range(N_CLASSES)])
    made = ContinualClassifier(BASE, METHOD, keep_states=50, **settings).save(folder)
    return made.partial_fit(X, [f"class {i}" for i in range(N_CLASSES) for _ in range(N_SHOTS)])


def bare(folder: Path, tally: Tally, seconds: float) -> None:
    """One thread that decodes and asks, one picture after another."""
    model, chance = ContinualClassifier.load(folder), random.Random(0)
    model.explain(QUESTIONS[0])
    started, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - started < seconds:
        before = time.perf_counter()
        model.explain(chance.choice(QUESTIONS))
        tally.seconds.append(time.perf_counter() - before)
    tally.wall += time.perf_counter() - started
    tally.cpu += time.process_time() - cpu


def plain_app(folder: str) -> Any:
    """`def` endpoint in a thread pool, a lock around the model: what one writes first."""
    configure_process()
    model, lock = ContinualClassifier.load(folder), threading.Lock()

    def answer(content: bytes) -> dict[str, Any]:
        with lock:
            found = model.explain(content)
        ranked = [{"label": label, "probability": chance} for label, chance in found.ranked]
        return {"label": found.label, "probability": found.probability, "unknown": found.unknown, "ranked": ranked}

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


def main() -> int:
    """All phases; 0 if nothing was lost and no answer came from a half state."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="of the phase with kills; the others take a part")
    parser.add_argument("--askers", type=int, default=50)
    parser.add_argument("--teachers", type=int, default=5)
    parser.add_argument("--kill-every", type=float, default=20, help="seconds on average; 0 for never")
    parser.add_argument("--only", choices=["questions", "steady", "faults"], help="one phase")
    parser.add_argument("--plain", metavar="FOLDER", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plain:
        serve_plain(given.plain)
        return 0
    configure_process()
    place = Path(tempfile.mkdtemp(prefix="fscl-service-"))
    try:
        phases = {"questions": questions, "steady": steady, "faults": faults}
        chosen = [phase for name, phase in phases.items() if given.only in (None, name)]
        wrong = [each for phase in chosen for each in phase(place, given)]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    for each in wrong[:20]:
        print(f"  {each}")
    return 1 if wrong else 0


def questions(place: Path, given: argparse.Namespace) -> list[str]:
    """Questions alone, by turns, so that what else the machine does meets all of them."""
    folder, turn = place / "asked", max(3.0, given.seconds / 10) / N_TURNS
    make_model(folder)
    library, plain, service = Tally(), Tally(), Tally()
    for _ in range(N_TURNS):
        bare(folder, library, turn)
        for tally, command in (
            (plain, [sys.executable, __file__, "--plain", str(folder)]),
            (service, serve_command(folder)),
        ):
            with started(command) as server:
                load(server, Tally(), 1, 2)
                load(server, tally, turn, given.askers)
    print(f"{METHOD} on {BASE}, {N_CLASSES} classes; {given.askers} clients, {N_TURNS} turns of {turn:.0f} s\n")
    print("| | requests/s | p50 ms | p95 ms | p99 ms | CPU ms a request |\n|---|---|---|---|---|---|")
    print(library.row("the library alone, one thread"))
    print(plain.row("`def` endpoint with a lock"))
    print(service.row("`fscl serve`"), flush=True)
    for name, tally in (("endpoint", plain), ("serve", service)):
        if tally.n_failed or tally.n_refused:
            print(f"{name}: {tally.n_failed} failed, {tally.n_refused} refused")
    return service.wrong


def steady(place: Path, given: argparse.Namespace) -> list[str]:
    """Questions and lessons without a kill: memory, once it is warm."""
    folder, found = place / "steady", Mixed()
    make_model(folder, memory_bytes=MEMORY_BYTES)
    found.run(folder, given.seconds / 4, given.askers, given.teachers)
    print(found.asked.row(f"`fscl serve`, {given.teachers} teach: ask"))
    print(found.taught.row("the same: teach"), flush=True)
    found.memory.pop()
    tenths = [found.memory[round(part * (len(found.memory) - 1) / 10)] / 2**20 for part in range(11)]
    half, end = (float(np.median(found.memory[start:stop])) for start, stop in (_part(found, 0.45), _part(found, 0.9)))
    print(
        f"\nresident memory in tenths of {given.seconds / 4:.0f} s, MB: {', '.join(f'{each:.0f}' for each in tenths)}"
    )
    print(f"from half of the time to the end: {100 * (end / half - 1):+.1f} %\n", flush=True)
    grown = [f"memory grew by {100 * (end / half - 1):.1f} %"] if end > (1 + MAX_GROWTH) * half else []
    return [*found.asked.wrong, *grown]


def _part(found: Mixed, start: float) -> tuple[int, int]:
    n = len(found.memory)
    return round(start * n), max(round(start * n) + 1, round((start + 0.1) * n))


def faults(place: Path, given: argparse.Namespace) -> list[str]:
    """Kills: what is there afterwards."""
    folder, found, broken = place / "taught", Mixed(), list[str]()
    make_model(folder)
    found.run(
        folder,
        given.seconds,
        given.askers,
        given.teachers,
        kill_every=given.kill_every,
        after_kill=lambda: broken.extend(map(str, check_model(folder).problems)),
    )
    print("| | requests/s | p50 ms | p95 ms | p99 ms | CPU ms a request |\n|---|---|---|---|---|---|")
    print(found.asked.row(f"`fscl serve`, {given.teachers} teach, {found.n_kills} kills: ask"))
    print(found.taught.row("the same: teach"))
    last = ContinualClassifier.load(folder)
    last.recover()
    stored = Counter(example.source for example in last.examples_)
    lost = [f"{source} is missing" for source in found.acknowledged if source not in stored]
    twice = [f"{source} is there {n} times" for source, n in stored.items() if n > 1 and source.startswith("teacher")]
    differing, n_states, n_answers = against_the_library(folder, found.asked.answers)
    print(f"\nlessons acknowledged: {len(found.acknowledged)}, missing: {len(lost)}, taught twice: {len(twice)}")
    print(f"answers compared with others of their state: {found.asked.n_compared}, different: {len(found.asked.wrong)}")
    print(f"answers of {n_states} states compared with the library's: {n_answers}, different: {len(differing)}")
    print(f"kills: {found.n_kills}, files damaged by them: {len(broken)}")
    n_cut = found.asked.n_failed + found.taught.n_failed
    print(f"requests that a kill cut, or that met no server: {n_cut}; refused: {_refused(found)}")
    if found.start_seconds:
        print(f"a start took {np.median(found.start_seconds):.1f} s, at most {max(found.start_seconds):.1f} s")
    return [*lost, *twice, *found.asked.wrong, *differing, *broken, *check_model(folder).problems]


def _refused(found: Mixed) -> int:
    return found.asked.n_refused + found.taught.n_refused


def against_the_library(folder: Path, said: dict[int, dict[int, Answer]]) -> tuple[list[str], int, int]:
    """What clients were told from each state that can still be gone to, beside what the library says there."""
    model, wrong, n_states, n_answers = ContinualClassifier.load(folder), [], 0, 0
    numbers = [record.number for record in read_manifest(folder).states]
    for number in reversed(numbers):
        expected = said.get(number, {})
        if expected:
            n_states += 1
            explained = model.explain_all([QUESTIONS[question] for question in expected])
            for (question, answer), found in zip(expected.items(), explained, strict=True):
                n_answers += 1
                if not alike(answer, {str(label): chance for label, chance in found.ranked}):
                    wrong.append(f"state {number}, question {question}: the library says otherwise")
        if number != numbers[0]:
            model.undo()
    return wrong, n_states, n_answers


if __name__ == "__main__":
    sys.exit(main())
