"""A real `fscl serve` on loopback and a real browser. Without one these tests skip, except under CI."""

import json
import os
import re
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.children import FSCL, Child, started_child
from tests.serve.page.drawings import draw_folder, film

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDE, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
STATE = 2  # of the model that knows two classes
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/")
BASE = "glyphs-protonet-conv4"
PATIENCE = 1000 * float(os.environ.get("FSCL_TEST_PATIENCE", "60"))  # milliseconds


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a browser."""
    found = os.environ.get("FSCL_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = f"no browser: none of {', '.join(NAMES)} is installed, and FSCL_BROWSER names none"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="session")
def launch(chromium: str) -> Iterator[Callable[..., Any]]:
    """Start a browser with arguments of one's own."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)  # a lesson takes seconds, and more where others compute, too
    with sync_playwright() as play:
        browsers: list[Any] = []

        def start(*arguments: str) -> Any:
            browsers.append(play.chromium.launch(executable_path=chromium, args=["--no-sandbox", *arguments]))
            return browsers[-1]

        yield start
        for browser in browsers:
            browser.close()


@pytest.fixture(scope="session")
def browser(launch: Callable[..., Any]) -> Any:
    return launch()


@pytest.fixture(scope="session")
def camera_browser(launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A browser whose camera sees rings, in five places one after another."""
    seen = film(tmp_path_factory.mktemp("film") / "rings.y4m", "ring")
    return launch(
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-video-capture={seen}",
    )


@dataclass(frozen=True)
class Served:
    """A service at work."""

    url: str
    folder: Path
    child: Child

    def get(self, path: str) -> Any:
        """What the API says, asked without a browser."""
        with urllib.request.urlopen(f"{self.url}api/v1/{path}", timeout=60) as answer:
            return json.load(answer)

    def post(self, path: str, value: object) -> Any:
        """Change something without a browser."""
        headers = {"X-FSCL": "1", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}api/v1/{path}", json.dumps(value).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def labels(self) -> dict[str, int]:
        """Known classes with how many examples each."""
        return {each["label"]: each["examples"] for each in self.get("classes")["classes"]}


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., Served]]:
    """Start `fscl serve` for a folder; all are ended with the session."""
    with ExitStack() as stack:

        def start(folder: Path, arguments: Sequence[str] = ("--port", "0")) -> Served:
            command = [*FSCL, "serve", folder, "--no-browser", *arguments]
            child = stack.enter_context(started_child(command, env={"OMP_NUM_THREADS": "1"}))
            child.wait_until(lambda: ADDRESS.search("".join(child.written())) and "Ctrl-C" in "".join(child.written()))
            found = ADDRESS.search("".join(child.written()))
            assert found is not None
            return Served(found.group(), folder, child)

        yield start


@pytest.fixture(scope="session")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of drawings: ring, cross, bar, box, six of each."""
    return draw_folder(tmp_path_factory.mktemp("drawings") / "shapes")


@pytest.fixture(scope="session")
def other_drawings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Others of the same shapes, which no lesson has."""
    return draw_folder(tmp_path_factory.mktemp("others") / "apart", n=3, first=50)


@pytest.fixture(scope="session")
def taught_model(tmp_path_factory: pytest.TempPathFactory, drawings: Path) -> Path:
    """A model that knows ring and cross; copy it."""
    import fscl

    model = fscl.ContinualClassifier(BASE, method="prototypes", invert=True, keep_states=50)
    folder = tmp_path_factory.mktemp("taught") / "shapes"
    model.save(folder)
    for shape in ("ring", "cross"):
        files = sorted((drawings / shape).iterdir())
        model.partial_fit(files, [shape] * len(files))
    return folder


@pytest.fixture
def fresh(taught_model: Path, serve: Callable[..., Served], tmp_path: Path) -> Iterator[Served]:
    """A service of the test's own that knows ring and cross."""
    served = serve(shutil.copytree(taught_model, tmp_path / "shapes"))
    yield served
    served.child.process.terminate()


@pytest.fixture(scope="session")
def shared(taught_model: Path, serve: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory) -> Served:
    return serve(shutil.copytree(taught_model, tmp_path_factory.mktemp("shared") / "shapes"))


@pytest.fixture
def taught(shared: Served) -> Served:
    """A service that knows ring and cross, six of each: one for all tests, brought back to that state before each."""
    waiting = [each["id"] for group in shared.get("inbox")["groups"] for each in group["pictures"]]
    if waiting:
        shared.post("inbox/discard", {"pictures": waiting})
    if shared.get("model")["state"] != STATE:
        shared.post("undo", {"to": STATE})
    assert shared.labels() == {"ring": 6, "cross": 6}
    return shared


@pytest.fixture
def open_page() -> Iterator[Callable[..., Any]]:
    """Open a page in a browser; at the end of the test nothing may have gone wrong in its console.

    A test that provokes an error names it: `open_page.expects(pattern)`. Each pattern must occur, and nothing else may.
    """
    problems: list[str] = []
    patterns: list[str] = []
    contexts: list[Any] = []

    def start(browser: Any, url: str, *, size: dict[str, int] = WIDE, dark: bool = False, wait: bool = True) -> Any:
        context = browser.new_context(viewport=size, color_scheme="dark" if dark else "light")
        contexts.append(context)
        context.on(
            "console",
            lambda message: problems.append(f"{message.text} {message.location}") if message.type == "error" else None,
        )
        page = context.new_page()
        watch(page, problems)
        page.goto(url)
        if wait:
            page.locator(".columns").wait_for(state="attached")
        return page

    start.expects = lambda *named: patterns.extend(named)  # type: ignore[attr-defined]
    yield start
    for context in contexts:
        context.close()
    unexpected = [each for each in problems if not any(re.search(pattern, each) for pattern in patterns)]
    assert not unexpected, f"the console of the page says: {unexpected}"
    missing = [pattern for pattern in patterns if not any(re.search(pattern, each) for each in problems)]
    assert not missing, f"the console of the page does not say: {missing}, but: {problems}"


def refusal(status: int, path: str) -> str:
    """What the console says of a request that the service refuses: a pattern; `path` is one, too."""
    return rf"the server responded with a status of {status} \(.*'url': 'http://127\.0\.0\.1:\d+/api/v1/{path}'"


def watch(page: Any, problems: list[str]) -> None:
    """Take note of errors of a page, and of requests that leave the machine."""
    page.set_default_timeout(PATIENCE)
    page.on("pageerror", lambda error: problems.append(str(error)))

    def requested(request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "blob:", "data:")):
            problems.append(f"asked another machine: {request.url}")

    page.on("request", requested)


def drop(page: Any, selector: str, paths: Sequence[Path]) -> None:
    """A real drop of files and folders, as from a file manager. A busy browser now and then loses one: then once more."""
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    session = page.context.new_cdp_session(page)
    page.evaluate("() => { window.dropped = 0; addEventListener('drop', () => { window.dropped += 1; }, true); }")
    for _ in range(3):
        page.locator(selector).scroll_into_view_if_needed()
        box = page.locator(selector).bounding_box()
        place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + min(40, box["height"] / 2)}
        for kind in ("dragEnter", "dragOver", "drop"):
            session.send("Input.dispatchDragEvent", {"type": kind, **place, "data": data})
        page.wait_for_timeout(100)
        if page.evaluate("window.dropped"):
            break
    assert page.evaluate("window.dropped"), "the browser lost every drop"
    session.detach()


def until(page: Any, expression: str) -> None:
    """Wait for a condition inside the page. (Playwright's own wait evaluates strings there, which the page forbids.)"""
    deadline = time.monotonic() + PATIENCE / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"it never came to be that {expression}"
        page.wait_for_timeout(50)


def go(page: Any, part: str) -> None:
    """To another part of the page."""
    page.get_by_role("navigation").get_by_role("link", name=part).click()


def choose(page: Any, button: Any, paths: Sequence[Path] | Path) -> None:
    """Choose files in the browser's own dialog."""
    with page.expect_file_chooser() as chooser:
        button.click()
    chooser.value.set_files(paths)
