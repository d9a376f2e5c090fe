"""Walks through docs/tutorials/camera.md and takes its pictures. FSCL_SCREENS=docs/images keeps them."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.serve.page.conftest import PHONE, Served, drop, go, until

pytestmark = pytest.mark.slow

Open = Callable[..., Any]
MAX_BYTES = 150_000


def test_the_tutorial_can_be_walked_through(
    serve: Callable[..., Served],
    camera_browser: Any,
    open_page: Open,
    drawings: Path,
    other_drawings: Path,
    tmp_path: Path,
) -> None:
    folder = Path(os.environ.get("FSCL_SCREENS") or tmp_path / "screens")
    folder.mkdir(exist_ok=True)
    served = serve(tmp_path / "my-shapes")
    page = open_page(camera_browser, served.url, wait=False)

    def shot(name: str) -> None:
        path = folder / f"serve-{name}.png"
        page.wait_for_timeout(400)
        page.screenshot(path=path)
        assert path.stat().st_size < MAX_BYTES

    page.get_by_role("button", name="Begin with drawings").wait_for()
    shot("first-run")
    page.get_by_role("button", name="Begin with drawings").click()
    page.locator(".columns").wait_for()
    drop(page, ".card.new", [drawings / "cross"])
    page.get_by_role("button", name="Teach 6 pictures").wait_for()
    page.get_by_role("button", name="Pictures for a new class from the camera").click()
    page.get_by_label("Take pictures of").fill("ring")
    until(page, "document.querySelector('video').videoWidth > 0")
    page.get_by_role("button", name="Hold to take pictures").hover()
    page.mouse.down()
    time.sleep(3.2)
    shot("burst")
    page.mouse.up()
    expect(page.locator("#burst-note")).not_to_contain_text("sending")
    page.get_by_role("button", name="Teach").first.click()
    expect(page.get_by_role("region", name="What the last change did")).to_contain_text("Learned")
    expect(page.locator("#steady-answer")).to_contain_text("ring")
    page.wait_for_timeout(1500)
    shot("live")

    go(page, "Ask")
    page.get_by_role("button", name="Dismiss", exact=True).click()
    page.get_by_role("button", name="Stop the camera").click()
    drop(
        page, ".view.ask .zone", [*sorted((other_drawings / "box").iterdir()), other_drawings / "ring" / "ring-50.png"]
    )
    expect(page.locator(".answer")).to_have_count(4)
    shot("ask")
    go(page, "Inbox")
    group = page.get_by_role("region", name="Group 1")
    group.get_by_role("combobox").fill("box")
    shot("inbox")
    group.get_by_role("button", name="Make this a class").click()
    expect(page.get_by_role("region", name="What the last change did")).to_contain_text("Learned")
    go(page, "History")
    page.emulate_media(color_scheme="dark")
    shot("history-dark")
    page.emulate_media(color_scheme="light")
    go(page, "Check")
    expect(page.get_by_role("heading", name="Pictures that repeat")).to_be_visible()
    shot("check")
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme="dark")
    go(page, "Teach")
    page.get_by_role("button", name="Dismiss", exact=True).click()
    shot("phone-dark")
    assert set(served.labels()) == {"ring", "cross", "box"}
