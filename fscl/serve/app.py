"""The service as an ASGI application: headers, guard, routes."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from fscl.serve import asking, keeping, teaching
from fscl.serve.endpoint import Call, Endpoint, json_response
from fscl.serve.guard import Guard, Rules
from fscl.serve.headers import SecurityHeaders
from fscl.serve.metrics import Metrics
from fscl.serve.openapi import document
from fscl.serve.refusals import Refusal, refusal_of
from fscl.serve.service import Service

PAGE = Path(__file__).with_name("page")
MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
N_DECODING = 2  # pictures that are decoded at once


async def _openapi(call: Call) -> Response:
    return json_response(document(ENDPOINTS))


ENDPOINTS: tuple[Endpoint, ...] = (
    *asking.ENDPOINTS,
    *teaching.ENDPOINTS,
    *keeping.ENDPOINTS,
    Endpoint("GET", "/api/v1/openapi.json", "This document", _openapi, media=("application/json",)),
)


def make_app(service: Service, rules: Rules) -> ASGIApp:
    """All of it; the service begins and ends with the application."""
    metrics = Metrics()
    limiters: list[anyio.CapacityLimiter] = []

    @asynccontextmanager
    async def living(_: Starlette) -> AsyncIterator[None]:
        limiters.append(anyio.CapacityLimiter(N_DECODING))
        if not service.ready:
            await anyio.to_thread.run_sync(service.start)
        try:
            yield
        finally:
            await anyio.to_thread.run_sync(service.close)

    def call_of(request: Request) -> Call:
        return Call(request, service, rules, metrics, limiters[0])

    by_path: dict[str, dict[str, Endpoint]] = {}
    for each in ENDPOINTS:
        by_path.setdefault(each.path, {})[each.method] = each
    routes = [_route(path, methods, call_of, metrics) for path, methods in by_path.items()]
    routes += [Route("/", _page_file("index.html")), Route("/page/{name:path}", _page_file(None))]
    app = Starlette(routes=routes, lifespan=living, exception_handlers={HTTPException: _unrouted})
    app.router.redirect_slashes = False  # a redirection would be made of what the client says its address is
    return SecurityHeaders(Guard(app, rules))


def _route(path: str, methods: dict[str, Endpoint], call_of: Callable[[Request], Call], metrics: Metrics) -> Route:
    async def answer(request: Request) -> Response:
        started = time.perf_counter()
        endpoint = methods.get("GET" if request.method == "HEAD" else request.method)
        try:
            if endpoint is None:
                raise Refusal("method", f"{request.method} cannot be done here.", {"Allow": ", ".join(methods)})
            response = await endpoint.handler(call_of(request))
        except Exception as error:  # every refusal is JSON; `refusal_of` logs what nobody expected
            response = _refused(refusal_of(error))
        metrics.count(request.method, path, response.status_code, time.perf_counter() - started)
        return response

    return Route(path, answer, methods=["GET", "HEAD", "POST", "DELETE"])


def _refused(refusal: Refusal) -> Response:
    headers = dict(refusal.headers)
    if refusal.kind == "too_large":
        headers["Connection"] = "close"  # the rest of the body is not read
    return json_response(refusal.content(), refusal.status, headers)


async def _unrouted(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    kind = {404: "not_found", 405: "method"}.get(status, "misuse")
    headers = dict(getattr(error, "headers", None) or {})
    return json_response(Refusal(kind, "there is nothing at this address.").content(), status, headers)


def _page_file(name: str | None) -> Callable[[Request], Awaitable[Response]]:
    """Files of the page, by a list that is made from the folder: no path of a client is ever put together."""
    files = {
        path.relative_to(PAGE).as_posix(): path for path in PAGE.rglob("*") if path.is_file() and path.suffix in MEDIA
    }

    async def answer(request: Request) -> Response:
        wanted: Any = name or request.path_params["name"]
        found = files.get(wanted)
        if found is None:
            return _refused(Refusal("not_found", "there is nothing at this address."))
        return FileResponse(found, headers={"Content-Type": MEDIA[found.suffix], "Cache-Control": "no-cache"})

    return answer
