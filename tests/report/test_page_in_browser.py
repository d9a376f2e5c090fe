"""The page in a real browser: headings are clicked, points are hovered, and what the page then shows is read back.

Chromium is not among the Python dependencies: without one these tests skip, except under CI (`CI=true`) and where
FSCL_BROWSER names one, where that is a failure.
"""

import base64
import hashlib
import html
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from fscl.analysis.drift import Drift
from fscl.analysis.fisher import FisherCourse, FisherPoint, FisherReading
from fscl.analysis.penalties import Penalties
from fscl.data.stream import StreamSpec, sample_stream
from fscl.evaluation.findings import finding_bytes
from fscl.experiment.confused import CONFUSIONS, confusions_json, worst_confusions
from fscl.experiment.plan import Cell
from fscl.rng import generator
from fscl.storage import write_bytes
from fscl.testing import noise_pool
from tests.children import run_child
from tests.report.runs import FAIR, GOOD, POOR, make_run, page_of, probed_run

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

ACTIONS = """
const outcome = { tips: [], orders: [] };
const table = document.querySelector("table.sortable");
const names = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent);
const sortBy = (heading) => {
  const head = [...table.tHead.rows[0].cells].find((head) => head.textContent.startsWith(heading));
  head.querySelector("button").click();
  outcome.orders.push([head.getAttribute("aria-sort"), names()]);
};
for (const heading of ["Final A", "Final A", "Final A", "Difference", "Difference", "Difference", "Method"]) sortBy(heading);
outcome.sorted = table.querySelectorAll("[aria-sort]").length;

const box = document.querySelector(".tip");
const svgs = [...document.querySelectorAll("figure svg")];
const point = (svg, x, y, type = "pointermove") => {
  svg.dispatchEvent(new PointerEvent(type, { clientX: x, clientY: y, pointerType: "mouse", bubbles: true }));
  outcome.tips.push(box.textContent);
};
const middle = (element) => {
  const place = element.getBoundingClientRect();
  return [place.x + place.width / 2, place.y + place.height / 2];
};
const [accuracy, confusion, seconds] = svgs;
let [x, y] = middle(accuracy.querySelectorAll(".tips circle")[1]);
point(accuracy, x + 5, y - 5);
outcome.ringed = accuracy.querySelectorAll("circle.on").length;
point(accuracy, x - 100, y);
[x, y] = middle(seconds.querySelectorAll(".tips circle")[0]);
point(seconds, x, y);
const matrix = confusion.querySelector(".cells").getBoundingClientRect();
point(confusion, matrix.x + 0.3 * matrix.width, matrix.y + 0.9 * matrix.height);
point(confusion, matrix.x, matrix.y, "pointerleave");

accuracy.focus({ focusVisible: true });
for (const key of ["ArrowRight", "ArrowDown", "ArrowLeft", "Escape"]) {
  accuracy.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  outcome.tips.push(box.textContent);
}
outcome.titles = document.querySelectorAll("svg title").length;
const pre = document.createElement("pre");
pre.id = "outcome";
pre.textContent = JSON.stringify(outcome);
document.body.append(pre);
"""


ALL_ACTIONS = """
const outcome = { tips: {}, last: [], pictures: [] };
const tables = [...document.querySelectorAll("table.sortable")];
outcome.tables = tables.length;
for (const table of tables) {
  table.tHead.rows[0].cells[1].querySelector("button").click();
  outcome.last.push([...table.tBodies[0].rows].pop().cells[0].textContent);
}
for (const picture of document.querySelectorAll(".pairs img")) {
  outcome.pictures.push(picture.complete && picture.naturalWidth > 0);
}
const box = document.querySelector(".tip");
for (const svg of document.querySelectorAll("figure svg")) {
  const circle = svg.querySelector(".tips circle");
  if (!circle) continue;
  const name = svg.querySelector("g[id]").id.split("-")[0];
  circle.scrollIntoView();
  const place = circle.getBoundingClientRect();
  const at = { clientX: place.x + place.width / 2, clientY: place.y + place.height / 2 };
  svg.dispatchEvent(new PointerEvent("pointermove", { ...at, pointerType: "mouse", bubbles: true }));
  outcome.tips[name] = box.textContent;
}
const pre = document.createElement("pre");
pre.id = "outcome";
pre.textContent = JSON.stringify(outcome);
document.body.append(pre);
"""


@pytest.fixture(scope="module")
def browser() -> str:
    wanted = os.environ.get("FSCL_BROWSER")
    found = next((path for name in ([wanted] if wanted else NAMES) if (path := shutil.which(name))), None)
    if found is None:
        if wanted:
            pytest.fail(f"no browser: FSCL_BROWSER is {wanted!r}, which is no program")
        reason = f"no browser: none of {', '.join(NAMES)} is installed; set FSCL_BROWSER to the path of one"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


Seen = tuple[dict[str, Any], str]


def act(browser: str, folder: Path, page: str, actions: str) -> Seen:
    """What the actions found in the page, and what the browser logged."""
    digest = base64.b64encode(hashlib.sha256(actions.encode()).digest()).decode()
    policy = page.replace("script-src ", f"script-src 'sha256-{digest}' ", 1)  # the page's own stays in force
    acting = folder / "acting.html"
    acting.write_text(policy.replace("</body>", f"<script>{actions}</script></body>"), "utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--v=0",
        "--window-size=1100,900",
    ]
    options += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=3000", "--dump-dom"]
    ended = run_child([browser, *options, acting.as_uri()], timeout=120)
    console = "\n".join(line for line in ended.stderr.splitlines() if "CONSOLE" in line)
    match = re.search(r'<pre id="outcome">(.*?)</pre>', ended.stdout, flags=re.DOTALL)
    assert match, f"the actions did not end; the console says: {console or 'nothing'}"
    return json.loads(html.unescape(match[1])), console


@pytest.fixture(scope="module")
def opened(browser: str, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("page")
    return act(
        browser, folder, page_of(make_run(folder / "toy", {"tsc": GOOD, "joint": FAIR, "replay": POOR})), ACTIONS
    )


@pytest.fixture(scope="module")
def opened_in_full(browser: str, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A run with all that a page can show: probed, observed, and with images that were confused."""
    folder = tmp_path_factory.mktemp("full")
    asked = {"drift": {"after": [1, 2]}, "fisher": {}, "penalties": {"after": 2}}
    record, cell = probed_run(folder / "toy", observe=asked), Cell("tsc", 0)
    pool = noise_pool(n_classes=2, n_images=8)
    stream = sample_stream(pool, StreamSpec(n_tasks=1, n_way=2, n_shot=4, n_query=4), generator(0, "stream"))
    write_bytes(record.file_path(cell, CONFUSIONS), confusions_json(worst_confusions(stream, pool, [[1] * 8])))
    points = tuple(tuple((float(x), float(x * moment)) for x in range(4)) for moment in (1, 2))
    drift = Drift(after=(1, 2), labels=(0, 0, 1, 1), points=points, explained=0.9, moved=(0, 1), apart=(1, 2))
    readings = [FisherReading(loss=1 / step, layers={"convs.0.weight": 5.0 / step}) for step in (1, 10)]
    fisher = tuple(FisherPoint(step=step, shots=r, test=r) for step, r in zip((1, 10), readings, strict=True))
    penalties = Penalties(measure="gate", after=2, strength=0.1, low=0, high=1, mean=0.5, counts=(3, 0, 9))
    for name, found in {"drift": drift, "fisher": FisherCourse(points=fisher), "penalties": penalties}.items():
        write_bytes(record.file_path(cell, f"observed/{name}.json"), finding_bytes(found))
    return act(browser, folder, page_of(record), ALL_ACTIONS)


def test_everything_that_a_page_can_show_works_and_the_console_stays_empty(opened_in_full: Seen) -> None:
    outcome, console = opened_in_full
    assert console == ""
    assert outcome["pictures"] == [True]
    assert outcome["tables"] == 3  # results, both sides, cost
    assert outcome["last"] == [
        "prototypes",
        "prototypes",
        "tsc",
    ]  # the best first: tsc is more accurate, and takes longer
    wanted = {"accuracy", "two_sides", "transfer", "confusion", "seconds", "drift", "fisher", "penalties"}
    assert outcome["tips"].keys() == wanted - {"confusion"}
    assert outcome["tips"]["two_sides"] == "tsc, 2 classes learned: 100.0 ± 0.0 %"
    assert outcome["tips"]["transfer"].splitlines()[0] == "tsc, 2 tasks learned: 0.0 ± 0.0 points"
    assert outcome["tips"]["drift"] == "class 1"
    assert outcome["tips"]["fisher"] == "tsc, step 1: 5"
    assert outcome["tips"]["penalties"] == "0 to 0.3333: 3 weights"


def test_the_console_stays_empty(opened: Seen) -> None:
    assert opened[1] == ""


def test_a_heading_sorts_down_then_up_then_restores(opened: Seen) -> None:
    orders = opened[0]["orders"]
    assert orders[0] == ["descending", ["tsc", "joint", "replay"]]  # 90, 80, 78.3
    assert orders[1] == ["ascending", ["replay", "joint", "tsc"]]
    assert orders[2] == [None, ["tsc", "joint", "replay"]]


def test_missing_values_are_last_both_ways(opened: Seen) -> None:
    orders = opened[0]["orders"]
    assert orders[3] == ["descending", ["tsc", "replay", "joint"]]  # +10, -1.7, and the reference
    assert orders[4] == ["ascending", ["replay", "tsc", "joint"]]


def test_words_sort_by_the_alphabet_and_one_column_at_a_time_is_sorted(opened: Seen) -> None:
    assert opened[0]["orders"][6] == ["ascending", ["joint", "replay", "tsc"]]
    assert opened[0]["sorted"] == 1


def test_the_nearest_point_within_reach_says_its_value(opened: Seen) -> None:
    tips = opened[0]["tips"]
    assert tips[0] == "tsc, 4 classes: 90.0 ± 24.8 %"
    assert tips[1] == ""  # too far from any point
    assert tips[2].splitlines()[0] == "tsc, task 1: 0.5 s (0.5 to 0.5)"
    assert len(tips[2].splitlines()) == 3  # all methods took as long, so all are named
    assert opened[0]["ringed"] == 1
    assert opened[0]["titles"] == 0  # the browser's own boxes do not come on top


def test_a_matrix_says_the_cell_under_the_pointer(opened: Seen) -> None:
    tips = opened[0]["tips"]
    assert tips[3] == "true class 4, answered 2: 12.5 % (3 of 24)"
    assert tips[4] == ""  # the pointer left


def test_arrow_keys_go_from_point_to_point(opened: Seen) -> None:
    assert opened[0]["tips"][5:] == [
        "tsc, 4 classes: 90.0 ± 24.8 %",
        "joint, 4 classes: 80.0 ± 24.8 %",
        "joint, 2 classes: 90.0 ± 0.0 %\nreplay, 2 classes: 90.0 ± 0.0 %",
        "",
    ]
