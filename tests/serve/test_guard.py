"""Who may ask: the guard refuses whatever the rules do not name, on every route and method."""

import http.client
import json
import socket
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from fscl.serve import endpoint
from fscl.serve.app import ENDPOINTS
from fscl.serve.guard import Guard, Rules, own_hosts
from fscl.serve.refusals import Refusal
from tests.serve.serving import CHANGE, Running, drawing, in_a_thread, model, running

PORT = 8420
RULES = Rules(own_hosts(PORT), frozenset({"teach.example.org"}))
HOST = ("host", f"127.0.0.1:{PORT}")
MARK = ("x-fscl", "1")


def status(*headers: tuple[str, str], method: str = "GET", path: str = "/api/v1/model", rules: Rules = RULES) -> int:
    """What the guard answers; 299 where it lets a request through."""
    sent: list[dict[str, Any]] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 299, "headers": []})

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers]
    scope = {"type": "http", "method": method, "path": path, "headers": raw}
    in_a_thread(Guard(inner, rules), scope, receive, send)
    return int(sent[0]["status"])


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"LOCALHOST:{PORT}", f"[::1]:{PORT}"])
def test_the_names_of_this_machine_are_let_through(host: str):
    assert status(("host", host)) == 299


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [""],
        ["127.0.0.1"],
        ["127.0.0.1:80"],
        [f"127.0.0.1:{PORT + 1}"],
        [f"127.0.0.1.evil.example:{PORT}"],
        [f"evil.example:{PORT}"],
        [f"localhost.:{PORT}"],
        [f"127.0.0.1:{PORT}@evil.example"],
        [f"evil.example@127.0.0.1:{PORT}"],
        [f"[::ffff:127.0.0.1]:{PORT}"],
        ["::1:8420"],
        [f"0.0.0.0:{PORT}"],
        [f"127.0.0.1:{PORT}", "evil.example"],
        [f"127.0.0.1:{PORT}", f"127.0.0.1:{PORT}"],
        [f"127.0.0.1:{PORT} "],
    ],
)
def test_any_other_host_is_refused(hosts: list[str]):
    assert status(*[("host", host) for host in hosts]) == 403


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (f"http://127.0.0.1:{PORT}", 299),
        ("null", 403),
        ("", 403),
        ("http://evil.example", 403),
        (f"https://127.0.0.1:{PORT}", 403),
        (f"http://localhost:{PORT}", 403),  # another name is another origin
        (f"http://127.0.0.1:{PORT}.evil.example", 403),
        (f"http://127.0.0.1:{PORT + 1}", 403),
        ("file://", 403),
    ],
)
def test_an_origin_is_ours_or_absent(origin: str, expected: int):
    assert status(HOST, ("origin", origin)) == expected
    assert status(HOST, ("origin", origin), MARK, method="POST") == expected


@pytest.mark.parametrize(
    ("site", "expected"), [("same-origin", 299), ("none", 299), ("same-site", 403), ("cross-site", 403), ("", 403)]
)
def test_only_our_own_pages_and_a_typed_address_are_answered(site: str, expected: int):
    assert status(HOST, ("sec-fetch-site", site)) == expected


@pytest.mark.parametrize("headers", [[], [("x-fscl", "0")], [("x-fscl", "")], [MARK, MARK], [("x-other", "1")]])
@pytest.mark.parametrize("endpoint", [each for each in ENDPOINTS if each.method != "GET"], ids=lambda e: e.path)
def test_whatever_is_not_plain_reading_needs_the_header(endpoint: Any, headers: list[tuple[str, str]]):
    assert status(HOST, *headers, method=endpoint.method, path=endpoint.path) == 403


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "PATCH", "TRACE", "CONNECT", "PROPFIND", "get"])
def test_other_methods_are_refused_even_with_the_header(method: str):
    assert status(HOST, MARK, method=method) == 405


def test_a_name_behind_a_proxy_may_be_https_and_nobody_elses_word_counts_for_it():
    outer = ("host", "teach.example.org")
    assert status(outer, ("origin", "https://teach.example.org")) == 299
    assert status(outer, ("origin", "https://127.0.0.1:8420")) == 403
    for name in ("x-forwarded-host", "forwarded", "x-original-url", "x-host"):
        assert status(("host", "evil.example"), (name, "teach.example.org")) == 403


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: f"{e.method} {e.path}")
def test_read_only_refuses_every_change_and_no_question(endpoint: Any):
    rules = Rules(own_hosts(PORT), read_only=True)
    allowed = endpoint.method == "GET" or endpoint.path in ("/api/v1/predict", "/api/v1/session")
    found = status(HOST, MARK, method=endpoint.method, path=endpoint.path, rules=rules)
    assert found == (299 if allowed else 403)


def test_websockets_are_closed():
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def inner(*_: Any) -> None:
        raise AssertionError("let through")

    in_a_thread(Guard(inner, RULES), {"type": "websocket", "headers": [], "path": "/"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


# against the real server


@pytest.mark.parametrize(
    "path", ["/", "/page/main.js", "/api/v1/model", "/api/v1/nothing", "/nothing", "/api/v1/events"]
)
def test_a_rebound_name_reads_nothing(shared: Running, path: str):
    response = shared.client.get(path, headers={"Host": f"evil.example:{shared.port}"})
    assert response.status_code == 403
    assert response.json()["error"]["kind"] == "forbidden"


@pytest.mark.parametrize("path", ["/", "/api/v1/model", "/api/v1/nothing", "/api/v1/openapi.json"])
def test_every_answer_has_the_security_headers_and_none_gives_leave_to_others(shared: Running, path: str):
    for headers in ({}, {"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        found = shared.client.get(path, headers=headers).headers
        assert found["x-content-type-options"] == "nosniff"
        assert found["referrer-policy"] == "no-referrer"
        assert found["cross-origin-resource-policy"] == "same-origin"
        assert found["cross-origin-opener-policy"] == "same-origin"
        assert found["content-security-policy"].startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in found["content-security-policy"]
        assert "camera=(self)" in found["permissions-policy"]
        assert not [name for name in found if name.startswith("access-control-")]
        assert "server" not in found


def test_a_request_with_a_whole_address_in_its_first_line_is_judged_by_its_host(shared: Running):
    raw = f"GET http://127.0.0.1:{shared.port}/api/v1/model HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", shared.port)) as connection:
        connection.sendall(raw.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize("told", [True, False])
def test_a_body_of_30_mb_is_refused_before_it_is_held(shared: Running, told: bool):
    connection = http.client.HTTPConnection("127.0.0.1", shared.port, timeout=30)
    connection.putrequest("POST", "/api/v1/pictures")
    for name, value in {**CHANGE, "Content-Type": "image/png"}.items():
        connection.putheader(name, value)
    connection.putheader(*(("Content-Length", str(30 * 2**20)) if told else ("Transfer-Encoding", "chunked")))
    connection.endheaders()
    part, n_sent = b"x" * 2**20, 0
    try:
        for _ in range(30):
            connection.send(part if told else b"100000\r\n" + part + b"\r\n")
            n_sent += 1
    except OSError:
        pass  # the server has hung up
    try:
        response = connection.getresponse()
    except (OSError, http.client.HTTPException):
        assert n_sent < 30  # it hung up while we were sending
    else:
        assert response.status == 413
        assert json.loads(response.read())["error"]["kind"] == "too_large"
    assert shared.get("/health")["status"] == "ok"


def test_a_client_that_leaves_in_the_middle_of_a_body_is_no_failure(shared: Running, caplog: pytest.LogCaptureFixture):
    head = f"POST /api/v1/predict HTTP/1.1\r\nHost: 127.0.0.1:{shared.port}\r\nX-FSCL: 1\r\nContent-Type: image/png\r\n"
    with socket.create_connection(("127.0.0.1", shared.port)) as connection:
        connection.sendall(f"{head}Content-Length: 1000\r\n\r\nonly this".encode())
        time.sleep(0.2)
    deadline = time.monotonic() + 10
    while 'path="/api/v1/predict",status="422"' not in shared.client.get("/api/v1/metrics").text:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert [record.message for record in caplog.records if record.name == "fscl.serve"] == []


def test_a_token_is_needed_exchanged_for_a_cookie_and_never_in_an_address(tmp_path: Path):
    model(tmp_path / "model", 0, 1)
    with running(tmp_path / "model", token=True) as server:
        assert server.client.get("/").status_code == 200
        assert server.client.get("/api/v1/health").status_code == 200
        assert server.get("/session")["open"] is False
        for path in ("/api/v1/model", "/api/v1/metrics", "/api/v1/events", "/api/v1/openapi.json"):
            assert server.client.get(path).status_code == 401
            assert server.client.get(path, params={"token": server.token}).status_code == 401
        for wrong in ("", "x", f"{server.token}x", "é"):
            response = server.client.post("/api/v1/session", json={"token": wrong}, headers=CHANGE)
            assert response.status_code in (401, 422)
            assert "set-cookie" not in response.headers
        response = server.client.post("/api/v1/session", json={"token": server.token}, headers=CHANGE)
        assert response.status_code == 204
        cookie = response.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert str(server.token).lower() not in cookie
        assert server.get("/model")["n_classes"] == 2
        assert server.client.delete("/api/v1/session", headers=CHANGE).status_code == 204
        server.client.cookies.clear()
        bearer = {"Authorization": f"Bearer {server.token}"}
        assert server.client.get("/api/v1/model", headers=bearer).status_code == 200
        assert server.client.get("/api/v1/model", headers={"Authorization": "Bearer x"}).status_code == 401


def test_a_closed_session_opens_nothing_any_more(tmp_path: Path):
    model(tmp_path / "model", 0, 1)
    with running(tmp_path / "model", token=True) as server:
        server.post("/session", token=server.token)
        stolen = {"Cookie": "; ".join(f"{name}={value}" for name, value in server.client.cookies.items())}
        server.client.delete("/api/v1/session", headers=CHANGE)
        assert server.client.get("/api/v1/model", headers=stolen).status_code == 401


def test_a_read_only_service_answers_and_changes_nothing(folder: Path):
    with running(folder, read_only=True) as server:
        assert server.ask(drawing(0, 8))["answers"][0]["ranked"][0]["label"] == "glyph 0"
        for path in ("/learn", "/forget", "/undo", "/pictures", "/inbox"):
            assert server.post(path, expect=403)["error"]["kind"] == "read_only"
        assert not (folder / "tray").exists()


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(endpoint, "BODY_SECONDS", 0.05)

    async def waits() -> None:
        async with endpoint._in_time():
            await anyio.sleep(5)

    with pytest.raises(Refusal, match=r"the body did not come within 0\.05 seconds; send it again"):
        in_a_thread(waits)
