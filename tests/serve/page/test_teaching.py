"""Teaching as people do it: the first run, files, folders, paste; and that a reload loses nothing."""

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.serve.page.conftest import Served, choose, drop, go, refusal

pytestmark = pytest.mark.slow

Open = Callable[..., Any]


def test_first_run_then_folders_are_dropped_tried_taught_and_undone(
    serve: Callable[..., Served], browser: Any, open_page: Open, drawings: Path, tmp_path: Path
) -> None:
    served = serve(tmp_path / "mine")
    page = open_page(browser, served.url, wait=False)
    expect(page.get_by_role("heading", name="What will you teach it?")).to_be_visible()
    page.get_by_role("button", name="Begin with drawings").click()
    page.locator(".columns").wait_for()
    assert served.get("model")["exists"] is True
    assert (tmp_path / "mine" / "model.json").is_file()

    drop(page, ".card.new", [drawings / "ring", drawings / "cross"])
    teach = page.get_by_role("button", name="Teach 12 pictures")
    expect(teach).to_be_visible()
    expect(page.get_by_role("listitem", name="Class ring")).to_contain_text("not taught yet")
    page.get_by_role("button", name="Try first").click()
    trial = page.get_by_role("dialog", name="If this were taught")
    expect(trial).to_contain_text("Nothing was learned")
    page.keyboard.press("Escape")
    assert served.labels() == {}

    teach.click()
    change = page.get_by_role("region", name="What the last change did")
    expect(change).to_contain_text("Learned: 12 pictures of ring, cross")
    expect(change).to_contain_text(re.compile(r"Estimated accuracy: \d+"))
    assert served.labels() == {"ring": 6, "cross": 6}
    expect(page.get_by_role("region", name="Next lesson")).to_be_hidden()
    expect(page.get_by_role("listitem", name="Class ring").locator("img")).to_have_count(6)

    change.get_by_role("button", name="Undo").click()
    expect(change).to_contain_text("Undone")
    assert served.labels() == {}
    change.get_by_role("button", name="Redo").click()
    expect(change).to_contain_text("Done again")
    assert served.labels() == {"ring": 6, "cross": 6}


def test_a_lesson_that_is_gathered_survives_a_reload_and_a_closed_tab(
    taught: Served, browser: Any, open_page: Open, drawings: Path
) -> None:
    page = open_page(browser, taught.url)
    page.get_by_role("combobox", name="New class").fill("box")
    choose(page, page.get_by_role("button", name="Files for a new class"), sorted((drawings / "box").iterdir())[:3])
    expect(page.get_by_role("button", name="Teach 3 pictures")).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="Teach 3 pictures")).to_be_visible()

    again = page.context.new_page()
    page.close()
    again.goto(taught.url)
    again.get_by_role("button", name="Take box-0.png out of the next lesson").click()
    again.get_by_role("button", name="Teach 2 pictures").click()
    expect(again.get_by_role("region", name="What the last change did")).to_contain_text("Learned: 2 pictures of box")
    assert taught.labels() == {"ring": 6, "cross": 6, "box": 2}


def test_a_reload_while_it_learns_loses_nothing_and_teaches_nothing_twice(
    taught: Served, browser: Any, open_page: Open, drawings: Path
) -> None:
    page = open_page(browser, taught.url)
    drop(page, ".card.new", [drawings / "bar"])
    with page.expect_response("**/api/v1/learn"):
        page.get_by_role("button", name="Teach 6 pictures").click()
    page.reload()
    expect(page.get_by_role("listitem", name="Class bar")).to_contain_text("6 pictures")
    expect(page.get_by_role("region", name="What the last change did")).to_contain_text("Learned: 6 pictures of bar")
    expect(page.get_by_role("region", name="Next lesson")).to_be_hidden()
    assert taught.labels()["bar"] == 6
    assert len(taught.get("history")["events"]) == 3


@pytest.mark.parametrize("arrives", [True, False], ids=["the answer is lost", "the lesson is lost"])
def test_a_lesson_that_gets_no_answer_is_taught_once(
    taught: Served, browser: Any, open_page: Open, drawings: Path, arrives: bool
) -> None:
    open_page.expects(r"net::ERR_FAILED .*/api/v1/learn'")  # type: ignore[attr-defined]
    page = open_page(browser, taught.url)
    drop(page, ".card.new", [drawings / "bar"])
    sent: list[str] = []

    def cut(route: Any) -> None:
        sent.append(route.request.post_data_json["lesson"])
        if arrives:
            route.fetch()
        route.abort()

    page.route("**/api/v1/learn", cut, times=1)
    page.get_by_role("button", name="Teach 6 pictures").click()
    expect(page.locator(".notice.error")).to_contain_text("does not answer")
    if not arrives:
        with page.expect_request("**/api/v1/learn") as again:
            page.get_by_role("button", name="Teach 6 pictures").click()
        assert again.value.post_data_json["lesson"] == sent[0]  # the same lesson under the same id
    expect(page.get_by_role("listitem", name="Class bar")).to_contain_text("6 pictures")
    expect(page.get_by_role("region", name="Next lesson")).to_be_hidden()
    assert taught.labels()["bar"] == 6
    assert [event["lesson"] for event in taught.get("history")["events"]] == [None, None, sent[0]]


def test_pictures_without_a_class_wait_for_a_name_and_paste_brings_one(
    taught: Served, browser: Any, open_page: Open, drawings: Path
) -> None:
    page = open_page(browser, taught.url)
    paste(page, drawings / "bar" / "bar-0.png")
    new = page.get_by_role("listitem", name="New class")
    expect(new).to_contain_text("1 picture without a class")
    expect(page.get_by_role("button", name="Teach 0 pictures")).to_be_disabled()
    new.get_by_role("combobox").fill("bar")
    new.get_by_role("button", name="Name them").click()
    page.get_by_role("button", name="Teach 1 picture", exact=True).click()
    expect(page.get_by_role("region", name="What the last change did")).to_contain_text("of bar")
    assert taught.labels()["bar"] == 1


def test_files_that_are_no_pictures_are_named_and_the_others_are_taken(
    taught: Served, browser: Any, open_page: Open, drawings: Path, tmp_path: Path
) -> None:
    mixed = tmp_path / "box"
    mixed.mkdir()
    (mixed / "good.png").write_bytes((drawings / "box" / "box-0.png").read_bytes())
    (mixed / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and then nothing")
    (mixed / "notes.txt").write_text("no picture")
    (mixed / ".hidden.png").write_bytes(b"not looked at")
    open_page.expects(refusal(422, r"pictures\?name=broken\.png"))  # type: ignore[attr-defined]
    page = open_page(browser, taught.url)
    drop(page, ".card.new", [mixed])
    expect(page.get_by_role("button", name="Teach 1 picture", exact=True)).to_be_visible()
    said = page.locator(".notice.error")
    expect(said).to_contain_text("1 file is no picture")
    expect(said).to_contain_text("broken.png")
    expect(said).not_to_contain_text(".hidden")


def test_work_that_is_stopped_changes_nothing(taught: Served, browser: Any, open_page: Open, drawings: Path) -> None:
    page = open_page(browser, taught.url)
    drop(page, ".card.new", [drawings / "bar"])
    page.get_by_role("button", name="Teach 6 pictures").wait_for()
    taught.get("health")
    page.evaluate("""() => {
        const seen = new MutationObserver(() => document.querySelector("#work button")?.click());
        seen.observe(document.getElementById("work"), {childList: true, subtree: true});
    }""")
    page.get_by_role("button", name="Teach 6 pictures").click()
    expect(page.locator(".notice").first).to_contain_text("Stopped")
    assert taught.labels() == {"ring": 6, "cross": 6}
    expect(page.get_by_role("button", name="Teach 6 pictures")).to_be_enabled()


def test_rename_merge_move_remove_and_forget_from_the_details_of_a_class(
    fresh: Served, browser: Any, open_page: Open
) -> None:
    page = open_page(browser, fresh.url)
    change = page.get_by_role("region", name="What the last change did")

    def details(label: str) -> Any:
        page.get_by_role("button", name=f"Details of {label}").click()
        return page.get_by_role("dialog")

    dialog = details("ring")
    expect(dialog.locator("img")).to_have_count(6)
    dialog.get_by_label("Rename to").fill("circle")
    dialog.get_by_role("button", name="Rename").click()
    expect(change).to_contain_text("Renamed: ring → circle")
    assert fresh.labels() == {"circle": 6, "cross": 6}

    dialog = details("circle")
    dialog.get_by_role("button", name=re.compile(r"Remove .*ring-0\.png")).click()
    expect(dialog.get_by_role("heading", name="5 pictures")).to_be_visible()
    dialog.get_by_label(re.compile(r"Move .*ring-1\.png")).select_option("cross")
    expect(dialog.get_by_role("heading", name="4 pictures")).to_be_visible()
    page.keyboard.press("Escape")
    assert fresh.labels() == {"circle": 4, "cross": 7}

    dialog = details("circle")
    dialog.get_by_label("Merge into").select_option("cross")
    dialog.get_by_role("button", name="Merge").click()
    expect(page.get_by_role("listitem", name="Class cross")).to_contain_text("11 pictures")
    change.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("listitem", name="Class circle")).to_be_visible()

    dialog = details("circle")
    dialog.get_by_role("button", name="Forget this class").click()
    page.get_by_role("button", name="Cancel").click()
    assert "circle" in fresh.labels()
    dialog.get_by_role("button", name="Forget this class").click()
    page.get_by_role("button", name="Forget circle").click()
    expect(change).to_contain_text("cannot be undone")
    assert fresh.labels() == {"cross": 7}
    go(page, "History")
    expect(page.get_by_role("button", name="Go back to")).to_have_count(0)


def paste(page: Any, path: Path) -> None:
    """A paste of a picture: the event that a browser makes from what the clipboard holds."""
    content = base64.b64encode(path.read_bytes()).decode()
    page.evaluate(
        """async ([content, name]) => {
            const bytes = Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
            const clipboardData = new DataTransfer();
            clipboardData.items.add(new File([bytes], name, {type: "image/png"}));
            document.body.dispatchEvent(new ClipboardEvent("paste", {clipboardData, bubbles: true, cancelable: true}));
        }""",
        [content, path.name],
    )
