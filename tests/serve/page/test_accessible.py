"""axe finds nothing, on wide and narrow screens, light and dark; the keyboard reaches what the mouse reaches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.serve.page.conftest import PHONE, WIDE, Served, drop, go, until

pytestmark = pytest.mark.slow

Open = Callable[..., Any]
PARTS = ("Teach", "Ask", "Inbox", "History", "Check", "Test")


def violations(page: Any) -> list[str]:
    """What axe finds, with the elements."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {[node['html'][:200] for node in each['nodes']]}" for each in found]


def fits(page: Any) -> bool:
    """Whether nothing sticks out to the right."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


@pytest.mark.parametrize(("size", "dark"), [(WIDE, False), (PHONE, True)], ids=["wide light", "phone dark"])
def test_axe_finds_no_violation_in_any_part(
    taught: Served, camera_browser: Any, open_page: Open, drawings: Path, size: dict[str, int], dark: bool
) -> None:
    page = open_page(camera_browser, taught.url, size=size, dark=dark)
    go(page, "Ask")
    drop(page, ".view.ask .zone", [drawings / "ring" / "ring-0.png", drawings / "bar" / "bar-0.png"])
    expect(page.locator(".answer")).to_have_count(2)
    go(page, "Test")
    drop(page, ".view.test .zone", [drawings])
    page.get_by_role("region", name="Result of the test").wait_for()
    go(page, "Teach")
    drop(page, ".card.new", [drawings / "bar"])
    page.get_by_role("button", name="Teach 6 pictures").wait_for()
    page.get_by_role("button", name="Start the camera").click()
    expect(page.locator("#steady-answer bdi")).to_be_visible()
    for part in PARTS:
        go(page, part)
        page.wait_for_timeout(400)
        found = violations(page)
        assert not found, f"{part}: {found}"
        assert fits(page), part
    go(page, "Teach")
    page.get_by_role("button", name="Details of ring").click()
    expect(page.get_by_role("dialog").locator("img")).to_have_count(6)
    assert violations(page) == []
    page.get_by_role("button", name="Forget this class").click()
    assert violations(page) == []


def test_axe_finds_no_violation_in_the_first_run(
    serve: Callable[..., Served], browser: Any, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(browser, serve(tmp_path / "new").url, wait=False)
    page.get_by_role("button", name="Begin with drawings").wait_for()
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size(PHONE)
    assert violations(page) == []
    assert fits(page)


def test_the_keyboard_goes_through_the_page_and_the_focus_is_never_lost(
    taught: Served, browser: Any, open_page: Open, drawings: Path
) -> None:
    page = open_page(browser, taught.url)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the main part")).to_be_focused()
    for _ in range(3):
        page.keyboard.press("Tab")
    expect(page.get_by_role("navigation").get_by_role("link", name="Inbox")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Inbox")).to_be_focused()

    go(page, "Teach")
    details = page.get_by_role("button", name="Details of ring")
    details.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert page.evaluate("document.querySelector('dialog').contains(document.activeElement)") is True
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(details).to_be_focused()

    drop(page, ".card.new", [drawings / "bar"])
    teach = page.get_by_role("button", name="Teach 6 pictures")
    teach.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="What the last change did")).to_contain_text("Learned")
    assert page.evaluate("document.activeElement !== document.body") is True


def test_a_screen_reader_is_told_what_a_lesson_did_and_what_an_answer_is(
    taught: Served, browser: Any, open_page: Open, drawings: Path
) -> None:
    page = open_page(browser, taught.url)
    page.evaluate("""() => {
        window.said = [];
        const region = document.getElementById("polite");
        new MutationObserver(() => { if (region.textContent) said.push(region.textContent); })
            .observe(region, {childList: true, characterData: true, subtree: true});
    }""")
    go(page, "Ask")
    drop(page, ".view.ask .zone", [drawings / "ring" / "ring-0.png"])
    until(page, "window.said.some((text) => text.startsWith('ring, '))")
    go(page, "Teach")
    drop(page, ".card.new", [drawings / "bar"])
    page.get_by_role("button", name="Teach 6 pictures").click()
    until(page, "window.said.some((text) => text.includes('Learned: 6 pictures of bar'))")
