"""One guard in front of every route and method; what it does not allow is refused.

A page of another site can make the browser of a person send requests here (and, by rebinding a name of its own to 127.0.0.1,
read the answers). So the Host must be ours to the letter, Origin ours or absent, `Sec-Fetch-Site` same-origin or none, and
whatever is not plain reading has to carry a header that a foreign page cannot set without being asked for leave (CORS),
which is never given. The guard reads `scope` alone: what frameworks make of a URL can be led astray. Forwarded headers count
for nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fscl.serve.refusals import Refusal
from fscl.serve.tokens import COOKIE, Tokens

ANY_HOST = "0.0.0.0"  # listened at with a token alone (`fscl.serve.run._check`)  # nosec B104
HEADER = b"x-fscl"
READING = ("GET", "HEAD")
CHANGING = ("POST", "DELETE")
OPEN_PATHS = ("/", "/api/v1/session", "/api/v1/health")  # without a token: the page, and how to give one
OPEN_PREFIX = "/page/"
READ_ONLY_POSTS = ("/api/v1/predict", "/api/v1/session")  # these change no model and write nothing
MAX_BODY_BYTES = 24 * 2**20


@dataclass(frozen=True)
class Rules:
    """Who may ask what.

    Attributes:
        hosts: what a Host header may be, with its port, in lower case.
        outer_hosts: those of them that people reach through a proxy, perhaps by https.
        tokens: what proves that somebody was let in; None where only this machine can ask.
        read_only: whether everything that changes something is refused.
    """

    hosts: frozenset[str]
    outer_hosts: frozenset[str] = frozenset()
    tokens: Tokens | None = None
    read_only: bool = False
    max_body_bytes: int = field(default=MAX_BODY_BYTES)


def own_hosts(port: int, *, host: str = "127.0.0.1") -> frozenset[str]:
    """The names of this machine for itself, and of the interface that is listened at."""
    names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host} - {ANY_HOST, "[::]"}
    found = {f"{name}:{port}" for name in names}
    return frozenset(found | (names if port == 80 else set()))  # a browser leaves that port out


class Guard:
    """Lets through what the rules allow, with a body that ends before it is too long."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self.app = app
        self.rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # websockets
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            await self._check(scope)
        except Refusal as refusal:
            await refuse(send, refusal, head=scope["method"] == "HEAD")
            return
        await self.app(scope, bounded(receive, scope, self.rules.max_body_bytes), send)

    async def _check(self, scope: Scope) -> None:
        headers = _headers(scope)
        host = _host(headers, self.rules)
        _check_origin(headers, host, self.rules)
        _check_site(headers)
        method, path = scope["method"], scope["path"]
        if method not in (*READING, *CHANGING):
            raise Refusal(
                "method", f"{method} is not a method of this service.", {"Allow": ", ".join((*READING, *CHANGING))}
            )
        if method in CHANGING and headers.get(HEADER) != [b"1"]:
            raise Refusal("forbidden", "a request that may change something needs the header 'X-FSCL: 1'.")
        await self._check_token(headers, path)
        if self.rules.read_only and method in CHANGING and path not in READ_ONLY_POSTS:
            raise Refusal("read_only", "this service is read-only; nothing can be changed through it.")

    async def _check_token(self, headers: Mapping[bytes, list[bytes]], path: str) -> None:
        tokens = self.rules.tokens
        if tokens is None or path in OPEN_PATHS or path.startswith(OPEN_PREFIX):
            return
        given = headers.get(b"authorization", [])
        if len(given) == 1 and given[0][:7].lower() == b"bearer ":
            if await tokens.is_right(given[0][7:].decode("latin-1").strip()):
                return
            raise Refusal("token", "this token is not the right one.")
        if not any(tokens.is_open(session) for session in session_ids(headers)):
            raise Refusal("token", "a token is needed: the one that `fscl serve` showed when it started.")


def session_ids(headers: Mapping[bytes, list[bytes]]) -> list[str]:
    """The sessions that a request names in its cookies."""
    found = []
    for value in headers.get(b"cookie", []):
        try:
            cookies = SimpleCookie(value.decode("latin-1"))
        except CookieError:
            continue
        if COOKIE in cookies:
            found.append(cookies[COOKIE].value)
    return found


def bounded(receive: Receive, scope: Scope, limit: int) -> Receive:
    """Receives a body until it is longer than the limit; says so before anything is read where its length is told."""
    told = _headers(scope).get(b"content-length", [])
    too_long = any(not value.isdigit() or int(value) > limit for value in told)
    n_bytes = 0

    async def receive_bounded() -> Message:
        nonlocal n_bytes
        if too_long:
            raise too_large(limit)
        message = await receive()
        n_bytes += len(message.get("body", b""))
        if n_bytes > limit:
            raise too_large(limit)
        return message

    return receive_bounded


def too_large(limit: int) -> Refusal:
    """For a body, or one picture of it."""
    return Refusal(
        "too_large",
        f"this has over {limit / 2**20:.0f} MB, which is the most at once; send smaller pictures, or fewer.",
    )


async def refuse(send: Send, refusal: Refusal, *, head: bool = False) -> None:
    """Answer with a refusal; the connection ends, since the body may not have been read."""
    content = json.dumps(refusal.content(), ensure_ascii=False).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in refusal.headers.items()]
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else content})


def _headers(scope: Scope) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.lower(), []).append(value)
    return found


def _host(headers: Mapping[bytes, list[bytes]], rules: Rules) -> str:
    given = [value.decode("latin-1").lower() for value in headers.get(b"host", [])]
    if len(given) != 1 or given[0] not in rules.hosts | rules.outer_hosts:
        raise Refusal("forbidden", "this is not a name of this service; use the address that `fscl serve` printed.")
    return given[0]


def _check_origin(headers: Mapping[bytes, list[bytes]], host: str, rules: Rules) -> None:
    given = [value.decode("latin-1").lower() for value in headers.get(b"origin", [])]
    allowed = {f"http://{host}", *({f"https://{host}"} if host in rules.outer_hosts else ())}
    if len(given) > 1 or not set(given) <= allowed:
        raise Refusal("forbidden", "pages of other sites may not ask here.")


def _check_site(headers: Mapping[bytes, list[bytes]]) -> None:
    given = headers.get(b"sec-fetch-site", [])
    if len(given) > 1 or not set(given) <= {b"same-origin", b"none"}:
        raise Refusal("forbidden", "pages of other sites may not ask here; type the address yourself.")
