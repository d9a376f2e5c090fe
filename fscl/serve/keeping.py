"""Endpoints beside the model: the first run, sessions, the tray and the inbox, jobs, exports, events, health, metrics."""

import secrets
import time
from importlib.metadata import version
from typing import Any

from starlette.responses import FileResponse, Response, StreamingResponse

from fscl.classifier.base_choice import default_base
from fscl.classifier.inputs import Pictures
from fscl.errors import MisuseError
from fscl.serve import replies, requests
from fscl.serve.asking import FOR_EVER, asked, finished
from fscl.serve.decoding import MAX_PICTURE_BYTES, MAX_PIXELS, plain_from_bytes, shown
from fscl.serve.endpoint import Call, Endpoint, json_response
from fscl.serve.events import encode
from fscl.serve.exports import write_model, write_onnx
from fscl.serve.guard import session_ids
from fscl.serve.inbox import NOT_ASKED, grouped
from fscl.serve.jobs import Job
from fscl.serve.present import Present
from fscl.serve.refusals import Refusal
from fscl.serve.service import Service, about
from fscl.serve.tokens import COOKIE, SESSION_SECONDS
from fscl.serve.tray import Kept

VERSION = version("fscl")
READ_ATTEMPTS = 20


# sessions and the first run


async def session(call: Call) -> Response:
    tokens = call.rules.tokens
    opened = tokens is None or any(tokens.is_open(each) for each in _sessions(call))
    content = {"token_needed": tokens is not None, "open": opened, "read_only": call.rules.read_only}
    return json_response({**content, "version": VERSION})


async def open_session(call: Call) -> Response:
    wanted, tokens = await call.body(requests.TokenRequest), call.rules.tokens
    if tokens is None:
        return Response(status_code=204)
    if not await tokens.is_right(wanted.token):
        raise Refusal("token", "this token is not the right one.")
    response = Response(status_code=204)
    secure = call.request.headers.get("origin", "").startswith("https://")
    response.set_cookie(
        COOKIE, tokens.opened(), max_age=SESSION_SECONDS, path="/", httponly=True, samesite="strict", secure=secure
    )
    return response


async def close_session(call: Call) -> Response:
    if call.rules.tokens is not None:
        for each in _sessions(call):
            call.rules.tokens.close(each)
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response


def _sessions(call: Call) -> list[str]:
    return session_ids({b"cookie": [value for name, value in call.request.headers.raw if name.lower() == b"cookie"]})


async def model(call: Call) -> Response:
    return json_response(await call.blocking(_model, call))


async def make_model(call: Call) -> Response:
    wanted, service = await call.body(requests.ModelRequest), call.service
    if service.exists:
        raise Refusal("misuse", f"there is a model already: {service.folder.name}.")
    await call.by_worker(lambda: service.create(wanted.purpose, invert=wanted.invert))
    return json_response(await call.blocking(_model, call), 201)


def _model(call: Call) -> dict[str, Any]:
    nothing = {"method": None, "base": None, "n_classes": 0, "n_examples": 0, "accuracy": None, "interval": None}
    nothing |= {"bytes": 0, "memory_bytes": None, "keep_states": None, "waiting": False}
    return {
        **nothing,
        **about(call.service),
        "name": call.service.folder.resolve().name,
        "read_only": call.rules.read_only,
        "choices": [_choice("photos"), _choice("drawings")],
        "limits": {
            "picture_bytes": MAX_PICTURE_BYTES,
            "body_bytes": call.rules.max_body_bytes,
            "pixels": MAX_PIXELS,
            "pictures_at_once": requests.MAX_AT_ONCE,
        },
    }


def _choice(purpose: str) -> dict[str, Any]:
    try:
        return {"for": purpose, "base": default_base(purpose), "installed": True, "message": ""}
    except MisuseError as error:
        return {"for": purpose, "base": "", "installed": False, "message": str(error)}


# the tray and the inbox


async def add_picture(call: Call) -> Response:
    call.service.present()
    call.query(requests.NameQuery)
    sent = await call.sent()
    if len(sent.files) != 1:
        raise Refusal("misuse", f"one picture at a time is sent here, but these are {len(sent.files)}.")
    ((content, name),) = sent.files

    def kept() -> Kept:
        return call.service.tray.add(plain_from_bytes(content, name=name or "the picture"), name)

    found = await call.decoded(kept)
    return json_response(
        {
            "id": found.id,
            "name": found.name,
            "width": found.width,
            "height": found.height,
            "url": f"/api/v1/pictures/{found.id}",
        },
        201,
    )


async def picture(call: Call) -> Response:
    size = call.query(requests.SizeQuery).size
    content, media = await call.decoded(lambda: shown(call.service.tray.open(call.path["id"]), size))
    return Response(content, media_type=media, headers=FOR_EVER)


async def drop_picture(call: Call) -> Response:
    tray = call.service.tray
    waited = tray.get(call.path["id"]).inbox
    await call.blocking(tray.drop, [call.path["id"]])
    if waited:
        call.service.tell_inbox()
    return Response(status_code=204)


async def inbox(call: Call) -> Response:
    """Grouped by likeness; the answers are by the state of now."""
    service = call.service
    present = service.present()
    kept, pictures = await call.decoded(_waiting, service, present)
    if not kept:
        return json_response({"state": present.number, "total": 0, "groups": []})
    ids = [each.id for each in kept]
    found = [NOT_ASKED] * len(ids)
    if present.knowledge.classes:
        found = await asked(service, present, pictures.images, 0)
    features = await call.by_worker(service.likeness.features, present, ids, pictures.images)
    groups = await call.by_worker(grouped, present, kept, found, features)
    return json_response({"state": present.number, "total": len(ids), "groups": groups})


def _waiting(service: Service, present: Present) -> tuple[list[Kept], Pictures]:
    """What is in the inbox; what is taught or deleted while it is being read is not there any more."""
    for _ in range(READ_ATTEMPTS):
        kept = service.tray.inbox()
        try:
            return kept, service.read_kept(present, [each.id for each in kept])
        except Refusal as gone:
            if gone.kind != "not_found":
                raise
    raise Refusal("busy", "the inbox is being changed all the time; try again.", {"Retry-After": "1"})


async def add_to_inbox(call: Call) -> Response:
    wanted = await call.body(requests.PicturesRequest)
    await call.blocking(call.service.tray.put_in_inbox, wanted.pictures)
    return json_response({"total": call.service.tell_inbox()})


async def discard(call: Call) -> Response:
    wanted = await call.body(requests.PicturesRequest)
    await call.blocking(call.service.tray.put_in_inbox, wanted.pictures, waits=False)
    return json_response({"total": call.service.tell_inbox()})


# long work


async def jobs(call: Call) -> Response:
    return json_response({"jobs": [job.content() for job in call.service.jobs.newest_first()]})


async def job(call: Call) -> Response:
    return json_response({"job": call.service.jobs.get(call.path["id"]).content()})


async def stop_job(call: Call) -> Response:
    found = call.service.jobs.get(call.path["id"])
    found.stop()
    return json_response({"job": found.content()}, 202)


async def export(call: Call) -> Response:
    wanted, service = await call.body(requests.ExportRequest), call.service
    _ = service.taught() if wanted.format == "onnx" else service.present()

    def work(job: Job) -> dict[str, Any]:
        key = secrets.token_hex(16)
        path = service.exports.path() / f"{key}.zip"
        job.at("writing")
        lines = write_onnx(path, service.folder, job) if wanted.format == "onnx" else write_model(path, service.folder)
        name = f"{service.folder.resolve().name}-{wanted.format}.zip"
        service.exports.add(key, path, name)
        return {
            "format": wanted.format,
            "name": name,
            "bytes": path.stat().st_size,
            "url": f"/api/v1/exports/{key}",
            "lines": lines,
        }

    executor = service.workers if wanted.format == "onnx" else service.writer
    started = service.jobs.start(executor, "export", f"export as {wanted.format}", work)
    return await finished(started, wait=wanted.wait)


async def exported(call: Call) -> Response:
    found = call.service.exports.files.get(call.path["id"])
    if found is None:
        raise Refusal("not_found", "this export is gone; make it again.")
    return FileResponse(found[0], media_type="application/zip", filename=found[1])


# telling


async def events(call: Call) -> Response:
    service = call.service
    listener = service.hub.join()
    if listener is None:
        raise Refusal("busy", "too many pages are open; close one.", {"Retry-After": "5"})
    state = service.present().number if service.exists else 0
    hello = {"state": state, "version": VERSION, "jobs": [each.content() for each in service.jobs.active()]}
    return StreamingResponse(service.hub.heard(listener, encode("hello", hello)), media_type="text/event-stream")


async def health(call: Call) -> Response:
    service = call.service
    status = "failing" if service.problem else ("ok" if service.ready else "starting")
    content = {
        "status": status,
        "state": service.present().number if service.exists else 0,
        "version": VERSION,
        "seconds": round(time.monotonic() - service.started, 3),
        "problem": service.problem,
    }
    return json_response(content, 503 if service.problem else 200)


async def metrics(call: Call) -> Response:
    service = call.service
    present = service.present() if service.exists else None
    inference = service.inference
    gauges = {
        "fscl_state": ("Number of the present state.", 0 if present is None else present.number),
        "fscl_classes": ("Classes that are known.", 0 if present is None else len(present.knowledge.classes)),
        "fscl_examples": ("Stored examples.", 0 if present is None else sum(present.knowledge.counts)),
        "fscl_pictures_waiting": ("Pictures that wait for an answer.", inference.n_waiting),
        "fscl_pictures_answered_total": ("Pictures that were answered.", inference.n_answered),
        "fscl_batches_total": ("Passes through the network.", inference.n_batches),
        "fscl_jobs_active": ("Jobs that wait or run.", len(service.jobs.active())),
        "fscl_listeners": ("Pages that are open.", service.hub.n_listeners),
        "fscl_tray_bytes": ("Pictures that were sent and not taught.", service.tray.n_bytes() if present else 0),
        "fscl_up_seconds": ("Since the start.", round(time.monotonic() - service.started, 3)),
    }
    text = call.metrics.text({name: (what, float(value)) for name, (what, value) in gauges.items()})
    return Response(text, media_type="text/plain; version=0.0.4")


ENDPOINTS = (
    Endpoint("GET", "/api/v1/session", "Whether a token is needed", session, answer=replies.SessionAnswer),
    Endpoint(
        "POST",
        "/api/v1/session",
        "Exchange the token for a cookie",
        open_session,
        body=requests.TokenRequest,
        status=204,
    ),
    Endpoint("DELETE", "/api/v1/session", "End the session", close_session, status=204),
    Endpoint("GET", "/api/v1/model", "What the model is", model, answer=replies.ModelAnswer),
    Endpoint(
        "POST",
        "/api/v1/model",
        "Make the model",
        make_model,
        body=requests.ModelRequest,
        answer=replies.ModelAnswer,
        status=201,
    ),
    Endpoint(
        "POST",
        "/api/v1/pictures",
        "Send a picture, to be used by its id",
        add_picture,
        raw=True,
        query=requests.NameQuery,
        answer=replies.PictureAnswer,
        status=201,
    ),
    Endpoint(
        "GET",
        "/api/v1/pictures/{id}",
        "A picture that was sent, in small",
        picture,
        query=requests.SizeQuery,
        media=("image/png", "image/jpeg"),
    ),
    Endpoint("DELETE", "/api/v1/pictures/{id}", "Delete a picture that was sent", drop_picture, status=204),
    Endpoint(
        "GET", "/api/v1/inbox", "Unknown and uncertain pictures, grouped by likeness", inbox, answer=replies.InboxAnswer
    ),
    Endpoint(
        "POST",
        "/api/v1/inbox",
        "Put pictures there",
        add_to_inbox,
        body=requests.PicturesRequest,
        answer=replies.TotalAnswer,
    ),
    Endpoint(
        "POST",
        "/api/v1/inbox/discard",
        "Take pictures out",
        discard,
        body=requests.PicturesRequest,
        answer=replies.TotalAnswer,
    ),
    Endpoint("GET", "/api/v1/jobs", "The work of now, and what ended", jobs, answer=replies.JobsAnswer),
    Endpoint("GET", "/api/v1/jobs/{id}", "How far one is", job, answer=replies.JobAnswer),
    Endpoint(
        "POST", "/api/v1/jobs/{id}/stop", "Stop one before it counts", stop_job, answer=replies.JobAnswer, status=202
    ),
    Endpoint(
        "POST",
        "/api/v1/export",
        "Make a file of the model: ONNX, or the folder",
        export,
        body=requests.ExportRequest,
        answer=replies.ExportAnswer,
        later=True,
    ),
    Endpoint("GET", "/api/v1/exports/{id}", "Download it", exported, media=("application/zip",)),
    Endpoint("GET", "/api/v1/events", "Server-sent events", events, media=("text/event-stream",)),
    Endpoint("GET", "/api/v1/health", "Whether it is well", health, answer=replies.HealthAnswer),
    Endpoint("GET", "/api/v1/metrics", "For Prometheus", metrics, media=("text/plain",)),
)
