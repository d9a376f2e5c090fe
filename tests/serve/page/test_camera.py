"""The camera, whose film shows rings: a live answer that stands still, and bursts in which near-equal frames count once."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.serve.page.conftest import Served, go, until

pytestmark = pytest.mark.slow

Open = Callable[..., Any]
ENOUGH = 5  # answers a second


def test_a_burst_from_the_camera_is_taught_and_near_equal_frames_count_once(
    taught: Served, camera_browser: Any, open_page: Open
) -> None:
    page = open_page(camera_browser, taught.url)
    page.get_by_role("button", name="Pictures for a new class from the camera").click()
    expect(page.get_by_label("Take pictures of")).to_be_focused()
    page.get_by_label("Take pictures of").fill("hoop")
    until(page, "document.querySelector('video').videoWidth > 0")
    hold = page.get_by_role("button", name="Hold to take pictures")
    hold.hover()
    page.mouse.down()
    time.sleep(3.5)  # the film shows a new place every second
    page.mouse.up()
    note = page.locator("#burst-note")
    expect(note).to_contain_text("near-equal")
    expect(note).not_to_contain_text("sending")
    n = int(note.inner_text().split()[0])
    assert 2 <= n <= 6  # 5 places, and one that was caught while it changed; some 25 frames were looked at
    page.get_by_role("button", name=f"Teach {n} pictures").click()
    expect(page.get_by_role("region", name="What the last change did")).to_contain_text(
        f"Learned: {n} pictures of hoop"
    )
    assert taught.labels()["hoop"] == n


def test_the_live_answer_is_steady_and_comes_five_times_a_second(
    taught: Served, camera_browser: Any, open_page: Open
) -> None:
    page = open_page(camera_browser, f"{taught.url}#ask")
    page.get_by_role("button", name="Start the camera").click()
    expect(page.locator("#steady-answer")).to_contain_text("ring")
    page.evaluate("""() => {
        window.seen = new Set();
        const look = () => seen.add(document.querySelector("#steady-answer bdi")?.textContent);
        window.looking = setInterval(look, 20);
    }""")
    until(page, f"Number(document.querySelector('.rate').dataset.rate) >= {ENOUGH}")
    time.sleep(3)
    assert page.evaluate("[...window.seen]") == ["ring"]
    assert taught.get("inbox")["total"] == 0  # a live answer keeps nothing

    page.get_by_role("button", name="Ask about this picture").click()
    expect(page.locator(".answer").first.get_by_role("heading", level=3)).to_contain_text("ring")
    go(page, "History")  # the camera is off where it is not shown
    until(page, "document.querySelector('video').srcObject === null")


def test_the_keyboard_takes_pictures_too(taught: Served, camera_browser: Any, open_page: Open) -> None:
    page = open_page(camera_browser, taught.url)
    page.get_by_role("button", name="Add to ring from the camera").click()
    hold = page.get_by_role("button", name="Hold to take pictures")
    expect(hold).to_be_focused()
    until(page, "document.querySelector('video').videoWidth > 0")
    page.keyboard.down("Space")
    time.sleep(0.4)
    page.keyboard.up("Space")
    expect(page.locator("#burst-note")).to_contain_text("taken")
    expect(page.get_by_role("region", name="Next lesson")).to_contain_text("ring")


def test_an_answer_changes_only_when_another_has_led_for_a_while(taught: Served, browser: Any, open_page: Open) -> None:
    page = open_page(browser, taught.url)
    shown = page.evaluate("""async () => {
        const {Steady} = await import("/page/steady.js");
        const steady = new Steady();
        const say = (label, unknown = false) => ({unknown, ranked: [{label, probability: 0.9}]});
        const shown = [];
        const at = (now, answer) => { steady.take(answer, now); shown.push(steady.shown.label); };
        for (let i = 0; i < 10; i += 1) at(100 * i, say("oak"));
        at(1000, say("elm"));                                     // one odd frame
        for (let i = 11; i < 15; i += 1) at(100 * i, say("oak"));
        for (let i = 15; i < 30; i += 1) at(100 * i, say("elm")); // really another thing
        for (let i = 30; i < 45; i += 1) at(100 * i, say("elm", true));
        return shown;
    }""")
    assert shown[:15] == ["oak"] * 15
    assert shown[15] == "oak"
    assert shown[29] == "elm"
    assert shown[44] is None  # unknown
    assert shown[15:30] == sorted(shown[15:30], reverse=True)  # it changes once
