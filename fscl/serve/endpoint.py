"""One thing that can be asked: method, path, shapes, and the function that does it. Routes and OpenAPI are made of these."""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from pydantic import BaseModel
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fscl.serve.decoding import MAX_PICTURE_BYTES, for_people
from fscl.serve.guard import Rules, too_large
from fscl.serve.metrics import Metrics
from fscl.serve.refusals import Refusal
from fscl.serve.requests import MAX_AT_ONCE
from fscl.serve.service import Service

JSON, FORM = "application/json", "multipart/form-data"
RAW = ("image/*", "application/octet-stream")
BODY_SECONDS = 60  # in which a body must have come
MAX_FIELD_BYTES = 10_000

T = TypeVar("T")


@dataclass(frozen=True)
class Sent:
    """The parts of a multipart body, or one raw body: fields, and files with the names that the client gave."""

    files: list[tuple[bytes, str]]
    fields: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """A request that is allowed, and all that it can be done with."""

    request: Request
    service: Service
    rules: Rules
    metrics: Metrics
    decoding: anyio.CapacityLimiter

    @property
    def path(self) -> Mapping[str, str]:
        """The parts of the path that have names."""
        return self.request.path_params

    @property
    def kind(self) -> str:
        """The media type of the body."""
        return self.request.headers.get("content-type", "").split(";")[0].strip().lower()

    @property
    def is_json(self) -> bool:
        return self.kind == JSON

    def query(self, shape: type[BaseModel]) -> Any:
        """The parameters of the address."""
        return shape.model_validate(dict(self.request.query_params))

    async def body(self, shape: type[BaseModel]) -> Any:
        """The body as JSON of a shape."""
        if not self.is_json:
            raise unsupported(self.kind, JSON)
        return shape.model_validate_json(await self._all())

    async def sent(self) -> Sent:
        """Pictures that came as a raw body, or as files of a form."""
        if self.kind == FORM:
            return await self._form()
        if not self.kind.startswith("image/") and self.kind != RAW[1]:
            raise unsupported(self.kind, f"image/…, {RAW[1]} or {FORM}")
        return Sent([(await self._all(), for_people(self.request.query_params.get("name", "")))])

    async def blocking(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Have something done by a thread, so that others can be answered meanwhile."""
        return await anyio.to_thread.run_sync(functools.partial(work, *arguments, **named))

    async def decoded(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """The same for decoding pictures, of which few are done at once: each may need hundreds of megabytes."""
        return await anyio.to_thread.run_sync(functools.partial(work, *arguments, **named), limiter=self.decoding)

    async def by_worker(self, work: Callable[..., T], *arguments: Any) -> T:
        """The same by a thread that is set up for arithmetic."""
        return await asyncio.get_running_loop().run_in_executor(self.service.workers, work, *arguments)

    async def _all(self) -> bytes:
        async with _in_time():
            return await self.request.body()

    async def _form(self) -> Sent:
        files, fields = [], {}
        try:
            async with (
                _in_time(),
                self.request.form(max_files=MAX_AT_ONCE, max_fields=20, max_part_size=MAX_FIELD_BYTES) as form,
            ):
                for name, value in form.multi_items():
                    if not isinstance(value, UploadFile):
                        fields[name] = value
                        continue
                    content = await value.read(MAX_PICTURE_BYTES + 1)
                    if len(content) > MAX_PICTURE_BYTES:
                        raise too_large(MAX_PICTURE_BYTES)
                    files.append((content, for_people(value.filename or "")))
        except HTTPException as error:  # of Starlette's parser
            raise Refusal("misuse", f"the form cannot be read: {error.detail}") from error
        if not files:
            raise Refusal("misuse", "the form has no file; send each picture as a file in the field 'picture'.")
        return Sent(files, fields)


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True)
class Endpoint:
    """One thing that can be asked.

    Attributes:
        body: the shape of a JSON body.
        raw, form: whether one picture as it is, or a form with pictures, is taken instead.
        query: the shape of the parameters of the address.
        answer: the shape of what comes back; None where that is no JSON.
        media: what comes back where it is no JSON.
        later: whether it can be asked not to wait, and then gives a job.
    """

    method: str
    path: str
    summary: str
    handler: Handler
    body: type[BaseModel] | None = None
    raw: bool = False
    form: bool = False
    query: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    media: tuple[str, ...] = ()
    status: int = 200
    later: bool = False


def json_response(content: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON, in which nothing is infinite."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "replace"), status, headers, media_type=JSON)


def unsupported(kind: str, wanted: str) -> Refusal:
    """For a body of another kind."""
    return Refusal("unsupported", f"the Content-Type is {kind[:60] or 'missing'!r}; it must be {wanted}.")


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """A body that does not come is not waited for."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            yield
    except TimeoutError:
        raise Refusal("misuse", f"the body did not come within {BODY_SECONDS} seconds; send it again.") from None
