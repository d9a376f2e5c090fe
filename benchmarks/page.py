"""The page in a real browser, with photographs and with drawings: start, lessons, and how often a camera is answered.

    python benchmarks/page.py --photographs birds --screens /tmp/screens

For each base a new model is made, taught and asked as a person does it: `fscl serve` in a process of its own, the first run,
folders that are dropped on the page, pictures that are asked, and a camera (a film of pictures that were not taught) in
front of the live view. The photographs are those of `FSCL_DATA/photos`; the drawings are invented. Needs a browser
(chromium, or `FSCL_BROWSER`) and playwright, both on the machine that serves.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fscl.data.sets.glyphs import make_glyphs

SIDE, WIDTH, HEIGHT, RATE = 480, 640, 480, 30
N_CLASSES, N_SHOTS, N_ASKED = 5, 5, 5
SECONDS = 15  # of a live view, after two of getting going
FRAMES = (  # looks at the page as a person does: what is written there
    "() => { window.seen = []; window.looking = setInterval(() => seen.push(document.querySelector("
    "'#steady-answer bdi')?.textContent ?? ''), 100); }"
)


def photographs(name: str, folder: Path) -> None:
    """`folder/{taught,asked}/<class>/NN.jpg`: the first classes of the archive, and their first pictures."""
    with tarfile.open(Path(os.environ["FSCL_DATA"]) / "photos" / f"{name}_144.tar") as archive:
        names = sorted(each for each in archive.getnames() if each.endswith(".jpg"))
        for shown in sorted({each.split("/")[1] for each in names})[:N_CLASSES]:
            pictures = [each for each in names if each.split("/")[1] == shown][: N_SHOTS + N_ASKED]
            for position, each in enumerate(pictures):
                file = archive.extractfile(each)
                if file is not None:
                    label = shown.rpartition(".")[2].replace("_", " ")
                    _place(folder, label, position, ".jpg").write_bytes(file.read())


def drawings(folder: Path) -> None:
    """The same of invented characters, dark ink on paper."""
    pool = make_glyphs(n_alphabets=N_CLASSES, n_characters=1, n_drawings=N_SHOTS + N_ASKED, seed=17)
    for number in range(N_CLASSES):
        for position in range(N_SHOTS + N_ASKED):
            drawing = Image.fromarray(255 - pool.of_class(number)[position, 0].numpy()).resize((128, 128))
            drawing.save(_place(folder, f"character {number}", position, ".png"))


def _place(folder: Path, label: str, position: int, suffix: str) -> Path:
    place = folder / ("taught" if position < N_SHOTS else "asked") / label
    place.mkdir(parents=True, exist_ok=True)
    return place / f"{label} {position}{suffix}"


def film(path: Path, pictures: list[Path], *, seconds_each: float = 3) -> None:
    """A y4m file that shows pictures one after another, each a little shaken, as by a hand."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(f"YUV4MPEG2 W{WIDTH} H{HEIGHT} F{RATE}:1 Ip A1:1 C420\n".encode())
        for each in pictures:
            with Image.open(each) as opened:
                picture = opened.convert("RGB").resize((SIDE, SIDE))
            for _ in range(round(seconds_each * RATE / 5)):
                frame = Image.new("YCbCr", (WIDTH, HEIGHT), (235, 128, 128))
                left, top = ((WIDTH - SIDE) // 2 + int(rng.integers(-4, 5)), int(rng.integers(-4, 5)))
                frame.paste(picture.convert("YCbCr"), (left, top))
                y, cb, cr = frame.split()
                small = (WIDTH // 2, HEIGHT // 2)
                content = b"FRAME\n" + y.tobytes() + cb.resize(small).tobytes() + cr.resize(small).tobytes()
                file.write(5 * content)  # a new place six times a second


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, int, str]]:
    """The address of `fscl serve`, its process, and the seconds until it has said it (those of a processor)."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "fscl", "serve", str(folder), "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        address = ""
        for line in process.stdout or ():
            address = (re.search(r"http://\S+/", line) or [address])[0]
            if "Ctrl-C" in line:
                break
        try:
            yield address, process.pid, f"{time.perf_counter() - began:.1f} ({cpu(process.pid):.1f})"
        finally:
            process.terminate()


def cpu(pid: int) -> float:
    """Seconds of a processor that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def answered(address: str) -> float:
    """Pictures that a service has answered."""
    with urllib.request.urlopen(f"{address}api/v1/metrics", timeout=60) as said:  # our own server  # nosec B310
        return float(re.search(r"^fscl_pictures_answered_total (\d+)", said.read().decode(), re.MULTILINE)[1])


def drop(page: Any, selector: str, path: Path) -> None:
    """A real drop of a folder, as from a file manager."""
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    box = page.locator(selector).bounding_box()
    place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + min(40, box["height"] / 2)}
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, **place, "data": data})
    session.detach()


def measured(play: Any, purpose: str, pictures: Path, place: Path, screens: Path | None) -> dict[str, str]:
    """One row: a model is made, taught and asked in the browser."""
    asked = sorted((pictures / "asked").rglob("*.*"))
    film(place / f"{purpose}.y4m", asked[::N_ASKED])
    chrome = os.environ.get("FSCL_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    browser = play.chromium.launch(
        executable_path=chrome,
        args=[
            "--no-sandbox",
            "--use-fake-device-for-media-stream",
            "--use-fake-ui-for-media-stream",
            f"--use-file-for-fake-video-capture={place / purpose}.y4m",
        ],
    )
    problems: list[str] = []

    def shot(name: str) -> None:
        if screens is not None:
            page.screenshot(path=screens / f"{purpose}-{name}.png")

    with serving(place / purpose) as (address, pid, start_seconds):
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(600_000)
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(address)
        words = {"photos": "photographs", "drawings": "drawings"}[purpose]
        page.get_by_role("button", name=f"Begin with {words}").click()
        page.locator(".card.new").wait_for()
        drop(page, ".card.new", pictures / "taught")
        teach = page.get_by_role("button", name=f"Teach {N_CLASSES * N_SHOTS} pictures")
        teach.wait_for()
        began = time.perf_counter()
        teach.click()
        page.get_by_role("region", name="What the last change did").wait_for()
        lesson_seconds = time.perf_counter() - began
        shot("taught")
        page.goto(f"{address}#test")
        drop(page, ".view.test .zone", pictures / "asked")
        result = page.get_by_role("region", name="Result of the test")
        result.wait_for()
        right = page.locator("[aria-label='Result of the test'] strong.big").inner_text()
        shot("tested")
        page.goto(f"{address}#ask")
        drop(page, ".view.ask .zone", asked[0])
        page.locator(".answer h3").wait_for()
        shot("asked")
        page.get_by_role("button", name="Start the camera").click()
        page.locator("#steady-answer bdi").wait_for()
        page.wait_for_timeout(2000)
        page.evaluate(FRAMES)
        rates, before = [], (answered(address), cpu(pid), time.perf_counter())
        for _ in range(SECONDS):
            page.wait_for_timeout(1000)
            rates.append(float(page.locator(".rate").get_attribute("data-rate")))
        after = (answered(address), cpu(pid), time.perf_counter())
        n, busy, seconds = (now - then for now, then in zip(after, before, strict=True))
        seen = page.evaluate("seen")
        shot("live")
        page.close()  # before the service goes, which it would look for
    with serving(place / purpose) as (_, _, again_seconds):
        pass
    browser.close()
    changes = sum(one != other for one, other in pairwise(seen))
    if problems:
        print(f"{purpose}: the console says {problems}")
    return {
        "first start, s (of a processor)": start_seconds,
        "start with a model, s (of a processor)": again_seconds,
        f"lesson of {N_CLASSES} × {N_SHOTS}, s": f"{lesson_seconds:.1f}",
        f"right of {N_CLASSES * N_ASKED}": right,
        "camera: answers a second (least)": f"{n / seconds:.1f} ({min(rates):.1f})",
        "CPU of the service an answer, ms": f"{1000 * busy / n:.0f}",
        f"answer changed in {SECONDS} s": str(changes),
    }


def main() -> None:
    """Both bases, one after the other."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photographs", default="birds", choices=["birds", "cars"])
    parser.add_argument("--screens", type=Path, help="a folder for pictures of the page")
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="fscl-page-"))
    try:
        photographs(given.photographs, place / "photographs")
        drawings(place / "drawn")
        with sync_playwright() as play:
            rows = {
                f"photographs ({given.photographs})": measured(
                    play, "photos", place / "photographs", place, given.screens
                ),
                "drawings": measured(play, "drawings", place / "drawn", place, given.screens),
            }
    finally:
        shutil.rmtree(place, ignore_errors=True)
    headings = next(iter(rows.values()))
    print(f"| | {' | '.join(headings)} |\n|{'---|' * (len(headings) + 1)}")
    for name, row in rows.items():
        print(f"| {name} | {' | '.join(row.values())} |")


if __name__ == "__main__":
    main()
