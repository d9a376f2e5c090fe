"""Attacks from inside a browser: other sites, hostile pictures, hostile names. Each is refused, and the page goes on."""

import base64
import functools
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.serve.page.conftest import Served, choose, drop, go, refusal
from tests.serve.test_attacks import png

pytestmark = pytest.mark.slow

Open = Callable[..., Any]
HUNG_UP = r"net::ERR_(CONTENT_LENGTH_MISMATCH|CONNECTION_RESET|CONNECTION_ABORTED|FAILED) .*/api/v1/pictures'"
MARKUP = '<img src=x onerror="window.hacked=1"><b>elm</b>'
SCRIPT = b"""<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>window.hacked = 1</script></svg>"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def evil(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Another site, on another port of this machine: its address and its folder."""
    folder = tmp_path / "evil"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><title>evil</title>", "utf-8")
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", folder
        server.shutdown()
        thread.join()


def visit(browser: Any, url: str) -> Any:
    page = browser.new_context().new_page()
    page.goto(url)
    return page


def test_another_site_cannot_show_the_page_in_a_frame(taught: Served, browser: Any, evil: tuple[str, Path]) -> None:
    site, folder = evil
    (folder / "frame.html").write_text(f'<!doctype html><iframe src="{taught.url}"></iframe>', "utf-8")
    page = visit(browser, f"{site}frame.html")
    page.wait_for_timeout(1500)
    framed = page.frames[1]
    assert framed.evaluate("document.querySelector('#main') === null") is True
    page.context.close()


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_another_site_cannot_post_a_form(taught: Served, browser: Any, evil: tuple[str, Path], kind: str) -> None:
    site, folder = evil
    (folder / "form.html").write_text(
        f"""<!doctype html><form method="post" action="{taught.url}api/v1/forget" enctype="{kind}">
        <input name='{{"label":"ring","x":"' value='"}}'><button>go</button></form>""",
        "utf-8",
    )
    page = visit(browser, f"{site}form.html")
    with page.expect_navigation() as navigation:
        page.get_by_role("button").click()
    assert navigation.value.status == 403
    assert taught.labels() == {"ring": 6, "cross": 6}
    page.context.close()


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("mode", ["cors", "no-cors"])
def test_another_site_cannot_fetch_with_or_without_the_header(
    taught: Served, browser: Any, evil: tuple[str, Path], mode: str, header: bool
) -> None:
    page = visit(browser, evil[0])
    outcome = page.evaluate(
        """async ([url, mode, header]) => {
            const headers = header ? {"X-FSCL": "1"} : {};
            const outcome = [];
            for (const [path, options] of [["classes", {}], ["forget", {method: "POST", body: '{"label": "ring"}'}]]) {
                try {
                    const answer = await fetch(url + "api/v1/" + path, {mode, headers, ...options});
                    outcome.push(answer.type === "opaque" ? "opaque" : await answer.text());
                } catch (error) {
                    outcome.push("refused");
                }
            }
            return outcome;
        }""",
        [taught.url, mode, header],
    )
    assert all(each in ("refused", "opaque") for each in outcome), outcome
    assert taught.labels() == {"ring": 6, "cross": 6}
    page.context.close()


def test_a_name_that_is_rebound_to_this_machine_reads_and_changes_nothing(
    taught: Served, launch: Callable[..., Any]
) -> None:
    """The other site's own name leads here from now on, so that for the browser our service is that site."""
    browser = launch("--host-resolver-rules=MAP rebound.example 127.0.0.1")
    page = browser.new_page()
    answer = page.goto(taught.url.replace("127.0.0.1", "rebound.example"))
    assert answer.status == 403
    outcome = page.evaluate("""async () => {
        const outcome = [];
        for (const [path, options] of [
            ["/", {}], ["/page/main.js", {}], ["/api/v1/classes", {}], ["/api/v1/events", {}],
            ["/api/v1/forget", {method: "POST", body: '{"label": "ring"}',
                                headers: {"X-FSCL": "1", "Content-Type": "application/json"}}],
        ]) {
            try {
                outcome.push((await fetch(path, options)).status);
            } catch (error) {
                outcome.push("refused");
            }
        }
        return outcome;
    }""")
    assert all(each in (403, "refused") for each in outcome), outcome
    assert taught.labels() == {"ring": 6, "cross": 6}
    browser.close()


def test_a_large_body_a_bomb_and_a_path_that_leads_out_are_refused_and_the_page_goes_on(
    taught: Served, browser: Any, open_page: Open
) -> None:
    open_page.expects(  # type: ignore[attr-defined]
        rf"{refusal(413, 'pictures')}|{HUNG_UP}",  # the server does not wait for the rest of 30 MB
        refusal(422, r"pictures\?name=bomb"),
        refusal(404, r"pictures/\.\.%2f\.\.%2fmodel\.json"),
    )
    page = open_page(browser, taught.url)
    bomb = base64.b64encode(png(60_000, 60_000, b"\0" * 10**6)).decode()
    found = page.evaluate(
        """async (bomb) => {
            const headers = {"X-FSCL": "1", "Content-Type": "image/png"};
            const send = async (path, body) => {
                const answer = await fetch(`api/v1/${path}`, body ? {method: "POST", headers, body} : {});
                return [answer.status, (await answer.json()).error.kind];
            };
            const bytes = Uint8Array.from(atob(bomb), (each) => each.charCodeAt(0));
            return [await send("pictures", new Blob([new Uint8Array(30 * 2 ** 20)])).catch(() => [413, "too_large"]),
                    await send("pictures?name=bomb", new Blob([bytes])),
                    await send("pictures/..%2f..%2fmodel.json")];
        }""",
        bomb,
    )
    assert found == [[413, "too_large"], [422, "data"], [404, "not_found"]]
    assert taught.get("health")["status"] == "ok"
    go(page, "Ask")
    expect(page.get_by_role("heading", name="Ask")).to_be_focused()


def test_the_page_itself_needs_the_header_to_change_anything(taught: Served, browser: Any, open_page: Open) -> None:
    open_page.expects(refusal(403, "forget"))  # type: ignore[attr-defined]
    page = open_page(browser, taught.url)
    status = page.evaluate(
        """async () => (await fetch("api/v1/forget", {method: "POST", body: '{"label": "ring"}',
                                   headers: {"Content-Type": "application/json"}})).status"""
    )
    assert status == 403
    assert taught.labels() == {"ring": 6, "cross": 6}


def test_a_picture_with_a_script_is_refused_and_runs_nowhere(
    taught: Served, browser: Any, open_page: Open, tmp_path: Path
) -> None:
    named = [tmp_path / "picture.svg", tmp_path / "picture.png", tmp_path / "page.html"]
    for path in named:
        path.write_bytes(SCRIPT)
    open_page.expects(refusal(422, "pictures"), refusal(422, r"pictures\?name=picture\.(svg|png)"))  # type: ignore[attr-defined]
    page = open_page(browser, taught.url)
    status = page.evaluate(
        """async (text) => {
            const answer = await fetch("api/v1/pictures", {method: "POST", body: text,
                headers: {"X-FSCL": "1", "Content-Type": "image/svg+xml"}});
            return [answer.status, (await answer.json()).error.kind];
        }""",
        SCRIPT.decode(),
    )
    assert status[0] in (415, 422)
    choose(page, page.get_by_role("button", name="Files for a new class"), named)
    expect(page.locator(".notice.error")).to_contain_text("Left out")
    assert page.evaluate("window.hacked") is None


def test_a_label_with_markup_is_text_in_every_part_of_the_page(
    taught: Served, browser: Any, open_page: Open, drawings: Path
) -> None:
    page = open_page(browser, taught.url)
    page.get_by_role("combobox", name="New class").fill(MARKUP)
    choose(page, page.get_by_role("button", name="Files for a new class"), sorted((drawings / "bar").iterdir()))
    page.get_by_role("button", name="Teach 6 pictures").click()
    expect(page.get_by_role("region", name="What the last change did")).to_contain_text(MARKUP)
    assert MARKUP in taught.labels()
    expect(page.locator(".columns").get_by_role("heading", name=MARKUP)).to_be_visible()
    go(page, "Ask")
    drop(page, ".view.ask .zone", [drawings / "bar" / "bar-1.png"])
    expect(page.locator(".answer h3")).to_contain_text(MARKUP)
    for part in ("Inbox", "History", "Check", "Test"):
        go(page, part)
        page.wait_for_timeout(300)
    go(page, "Teach")
    page.locator(".card.coming, .card").filter(has_text=MARKUP).get_by_role("button", name="Details").click()
    expect(page.get_by_role("dialog").get_by_role("heading", name=MARKUP)).to_be_visible()
    assert page.evaluate("window.hacked") is None
    assert page.locator("b").count() == 0


def test_a_name_of_a_file_with_markup_is_text(
    taught: Served, browser: Any, open_page: Open, drawings: Path, tmp_path: Path
) -> None:
    path = tmp_path / "<img src=x onerror=window.hacked=1>.png"
    path.write_bytes((drawings / "ring" / "ring-0.png").read_bytes())
    page = open_page(browser, f"{taught.url}#ask")
    drop(page, ".view.ask .zone", [path])
    expect(page.locator(".answer h3")).to_be_visible()
    assert page.evaluate("window.hacked") is None


def test_nothing_of_the_page_runs_from_elsewhere_or_inline(taught: Served, browser: Any, open_page: Open) -> None:
    open_page.expects(  # type: ignore[attr-defined]
        r"[Ee]xecuting inline script violates .*script-src 'self'",
        r"inline style violates .*style-src 'self'",
        r"example\.org/?'? violates .*connect-src 'self'",
        r"Fetch API cannot load https://example\.org/\. Refused to connect because it violates",
    )
    page = open_page(browser, taught.url)
    blocked = page.evaluate("""async () => {
        const blocked = [];
        document.addEventListener("securitypolicyviolation", (event) => blocked.push(event.effectiveDirective));
        const inline = document.createElement("script");
        inline.textContent = "window.hacked = 1";
        document.body.append(inline);
        const style = document.createElement("style");
        style.textContent = "body { display: none }";
        document.body.append(style);
        try { await fetch("https://example.org/"); } catch { /* as it should be */ }
        await new Promise((resolve) => setTimeout(resolve, 300));
        return [window.hacked ?? null, blocked.sort()];
    }""")
    assert blocked == [None, ["connect-src", "script-src-elem", "style-src-elem"]]


def test_a_service_with_a_token_asks_for_it_and_keeps_it_out_of_the_address(
    taught_model: Path, serve: Callable[..., Served], browser: Any, open_page: Open
) -> None:
    served = serve(taught_model, ("--port", "0", "--token", "--read-only"))
    token = "".join(served.child.written()).split("token, shown this once: ")[1].split()[0]
    open_page.expects(refusal(401, "session"))  # type: ignore[attr-defined]
    page = open_page(browser, served.url, wait=False)
    page.locator("#token").fill("wrong")
    page.get_by_role("button", name="Open").click()
    expect(page.locator(".notice.error")).to_be_visible()
    page.locator("#token").fill(token)
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("listitem", name="Class ring")).to_be_visible()
    assert token not in page.url
    assert page.evaluate("document.cookie") == ""
    # read-only: it answers, and nothing that would change it is offered
    expect(page.get_by_role("listitem", name="New class")).to_have_count(0)
    expect(page.get_by_role("button", name="Add files to ring")).to_have_count(0)
