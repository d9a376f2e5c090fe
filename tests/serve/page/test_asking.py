"""Asking, correcting, the inbox, history, checks, tests and export, each in a real browser against a real service."""

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.children import FSCL, run_child
from tests.serve.page.conftest import Served, choose, drop, go

pytestmark = pytest.mark.slow

Open = Callable[..., Any]


def test_an_answer_is_ranked_shows_the_nearest_and_one_click_corrects_it(
    taught: Served, browser: Any, open_page: Open, other_drawings: Path
) -> None:
    page = open_page(browser, taught.url)
    go(page, "Ask")
    drop(page, ".view.ask .zone", [other_drawings / "ring" / "ring-50.png"])
    answer = page.get_by_role("listitem", name="ring-50.png")
    expect(answer.get_by_role("heading", level=3)).to_contain_text("ring")
    ranked = answer.locator(".ranked li")
    assert [name.split()[0] for name in ranked.locator(".name").all_inner_texts()] == ["ring", "cross"]
    assert sum(int(text.rstrip("%").strip()) for text in ranked.locator(".number").all_inner_texts()) in (99, 100, 101)
    expect(answer.locator(".nearest img")).to_have_count(3)
    expect(answer.locator(".nearest figcaption")).to_have_text(["ring"] * 3)

    answer.get_by_role("button", name="It is cross").click()
    expect(answer).to_contain_text("Taught as cross")
    assert taught.labels() == {"ring": 6, "cross": 7}
    change = page.get_by_role("region", name="What the last change did")
    expect(change).to_contain_text("Corrected: 1 picture of cross")
    change.get_by_role("button", name="Undo").click()
    expect(change).to_contain_text("Undone")
    assert taught.labels() == {"ring": 6, "cross": 6}

    answer.get_by_role("button", name="It is ring").click()  # a correction that was undone can be made otherwise
    expect(answer).to_contain_text("Taught as ring")
    assert taught.labels() == {"ring": 7, "cross": 6}


def test_unknown_pictures_come_to_the_inbox_and_a_group_becomes_a_class(
    taught: Served, browser: Any, open_page: Open, drawings: Path, other_drawings: Path
) -> None:
    page = open_page(browser, taught.url)
    go(page, "Ask")
    choose(page, page.get_by_role("button", name="Choose pictures"), sorted((drawings / "bar").iterdir()))
    expect(page.locator(".answer")).to_have_count(6)
    waiting = taught.get("inbox")["total"]
    assert waiting >= 4
    assert page.locator(".answer h3.unknown").count() >= 4
    expect(page.get_by_role("navigation").get_by_role("link", name="Inbox")).to_contain_text(str(waiting))

    go(page, "Inbox")
    group = page.get_by_role("region", name="Group 1")
    expect(group).to_be_visible()
    n = group.get_by_role("checkbox").count()
    assert n >= 2
    group.get_by_role("checkbox").first.uncheck()
    group.get_by_role("combobox").fill("bar")
    group.get_by_role("button", name="Make this a class").click()
    expect(page.get_by_role("region", name="What the last change did")).to_contain_text(f"Learned: {n - 1} picture")
    assert taught.labels()["bar"] == n - 1
    assert taught.get("inbox")["total"] == waiting - n + 1

    left = taught.get("inbox")["total"]
    page.get_by_role("region", name="Group 1").get_by_role("button", name="Discard").click()
    page.get_by_role("button", name="Put back").click()
    expect(page.get_by_role("navigation").get_by_role("link", name="Inbox")).to_contain_text(str(left))
    assert taught.get("inbox")["total"] == left


def test_what_was_asked_is_there_after_a_reload_and_answered_anew_after_a_lesson(
    taught: Served, browser: Any, open_page: Open, drawings: Path, other_drawings: Path
) -> None:
    page = open_page(browser, f"{taught.url}#ask")
    drop(page, ".view.ask .zone", [other_drawings / "box" / "box-50.png"])
    answer = page.get_by_role("listitem", name="box-50.png")
    expect(answer.get_by_role("heading", level=3)).to_be_visible()
    assert "box" not in answer.get_by_role("heading", level=3).inner_text()
    page.reload()
    expect(answer.get_by_role("heading", level=3)).to_be_visible()

    run_child([*FSCL, "learn", taught.folder, one_class(drawings, "box")])  # by the command line, beside the page
    expect(answer.get_by_role("heading", level=3)).to_contain_text("box")
    go(page, "Teach")
    expect(page.get_by_role("listitem", name="Class box")).to_be_visible()


def test_two_tabs_show_the_same_and_a_hidden_class_of_another_tab_is_no_error(
    taught: Served, browser: Any, open_page: Open, drawings: Path
) -> None:
    one = open_page(browser, taught.url)
    two = one.context.new_page()
    two.goto(taught.url)
    two.locator(".columns").wait_for()
    drop(two, ".card.new", [drawings / "bar"])
    expect(one.get_by_role("button", name="Teach 6 pictures")).to_be_visible()  # the lesson is shared
    one.get_by_role("button", name="Teach 6 pictures").click()
    for page in (one, two):
        expect(page.get_by_role("region", name="What the last change did")).to_contain_text(
            "Learned: 6 pictures of bar"
        )
        expect(page.get_by_role("region", name="Next lesson")).to_be_hidden()
        expect(page.get_by_role("listitem", name="Class bar")).to_contain_text("6 pictures")
    assert taught.labels()["bar"] == 6


def test_history_goes_back_and_forward_to_any_state(fresh: Served, browser: Any, open_page: Open) -> None:
    page = open_page(browser, f"{fresh.url}#history")
    line = page.get_by_role("list", name="States, newest first").get_by_role("listitem")
    expect(line).to_have_count(3)
    expect(line.first).to_contain_text("learned 6 examples of cross")
    expect(line.first).to_have_attribute("aria-current", "true")
    line.nth(1).get_by_role("button", name="Go back").click()
    expect(line.nth(1)).to_have_attribute("aria-current", "true")
    assert fresh.labels() == {"ring": 6}
    line.first.get_by_role("button", name="Go forward").click()
    expect(line.first).to_have_attribute("aria-current", "true")
    assert fresh.labels() == {"ring": 6, "cross": 6}


def test_a_wrong_label_and_a_repeat_are_shown_and_mended(
    taught: Served, browser: Any, open_page: Open, other_drawings: Path, drawings: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong" / "cross"
    wrong.mkdir(parents=True)
    (wrong / "really-a-ring.png").write_bytes((other_drawings / "ring" / "ring-51.png").read_bytes())
    (wrong / "again.png").write_bytes((drawings / "cross" / "cross-0.png").read_bytes())
    run_child([*FSCL, "learn", taught.folder, wrong.parent])
    page = open_page(browser, f"{taught.url}#check")
    view = page.locator(".view.check")
    expect(view.get_by_role("row")).to_have_count(3)
    expect(view.get_by_role("row", name="cross")).to_contain_text("8")
    suspect = view.get_by_role("listitem").filter(has_text="really-a-ring.png")
    expect(suspect).to_contain_text("is called cross and looks like ring")
    suspect.get_by_role("button", name="Move to ring").click()
    expect(suspect).to_have_count(0)
    assert taught.labels() == {"ring": 7, "cross": 7}
    expect(view).to_contain_text("2 show the same")
    view.get_by_role("button", name="Remove").first.click()
    expect(view).not_to_contain_text("2 show the same")
    assert taught.labels() == {"ring": 7, "cross": 6}


def test_a_labelled_folder_is_tested_and_the_model_exported(
    taught: Served, browser: Any, open_page: Open, other_drawings: Path, tmp_path: Path
) -> None:
    page = open_page(browser, f"{taught.url}#test")
    drop(page, ".view.test .zone", [other_drawings])
    result = page.get_by_role("region", name="Result of the test")
    expect(result).to_contain_text("of 6 pictures right")
    expect(result).to_contain_text("strangers called unknown")
    expect(result.get_by_role("row")).to_have_count(3)
    page.reload()
    expect(result).to_contain_text("of 6 pictures right")  # a reload does not lose it
    assert taught.labels() == {"ring": 6, "cross": 6}  # a test teaches nothing

    with page.expect_download() as download:
        page.get_by_role("button", name="The whole model").click()
    saved = tmp_path / "model.zip"
    download.value.save_as(saved)
    with zipfile.ZipFile(saved) as archive:
        assert any(name.endswith("model.json") for name in archive.namelist())
    expect(page.locator(".view.test").get_by_role("link", name=".zip")).to_be_visible()


def test_a_service_that_goes_away_and_comes_back_loses_nothing(
    taught: Served, browser: Any, open_page: Open, drawings: Path
) -> None:
    page = open_page(browser, taught.url)
    drop(page, ".card.new", [drawings / "bar"])
    page.get_by_role("button", name="Teach 6 pictures").wait_for()
    open_page.expects(r"net::ERR_INTERNET_DISCONNECTED .*/api/v1/")  # type: ignore[attr-defined]
    page.context.set_offline(True)
    page.get_by_role("button", name="Teach 6 pictures").click()
    expect(page.locator("#offline")).to_contain_text("does not answer")
    page.context.set_offline(False)
    expect(page.locator("#offline")).to_be_empty()
    page.get_by_role("button", name="Teach 6 pictures").click()
    expect(page.get_by_role("region", name="What the last change did")).to_contain_text("Learned: 6 pictures of bar")


def one_class(drawings: Path, shape: str) -> Path:
    """A folder with one class alone."""
    folder = drawings.parent / f"only-{shape}"
    if not folder.exists():
        shutil.copytree(drawings / shape, folder / shape)
    return folder
