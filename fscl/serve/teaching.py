"""Endpoints that change what is known. Each is one call of the history, under the command line's name for it."""

from collections.abc import Callable, Sequence
from typing import Any

from PIL import Image
from starlette.responses import Response

from fscl.classifier.changes import check_known, merged, moved, removed
from fscl.classifier.knowledge import CallName
from fscl.classifier.labels import Label
from fscl.classifier.trial import on_trial
from fscl.errors import DataError
from fscl.serve import answers, schemas
from fscl.serve.asking import finished, label_of
from fscl.serve.decoding import plain_from_bytes
from fscl.serve.endpoint import Call, Endpoint, Sent
from fscl.serve.jobs import Job
from fscl.serve.present import Present
from fscl.serve.refusals import Refusal
from fscl.serve.service import Service, now


async def learn(call: Call) -> Response:
    """Teach pictures of the tray, each with its label; or one raw picture or a form, all with one label."""
    service = call.service
    service.present()
    if call.is_json:
        wanted = await call.body(schemas.LearnRequest)
        ids = [each.id for each in wanted.pictures]
        labels = [each.label for each in wanted.pictures]
        for key in ids:
            service.tray.get(key)  # what is gone is said before any work

        def work(job: Job) -> answers.Json:
            return _taught(service, job, ids, labels, "learn", dry_run=wanted.dry_run)

        job = service.jobs.start(service.workers, "learn", _words(labels), work, total=len(ids))
        return await finished(job, wait=wanted.wait)
    query = call.query(schemas.LearnQuery)
    sent = await call.sent()
    label = sent.fields.get("label", query.label)
    if not label:
        raise Refusal("misuse", "the label is missing; give it as a field 'label' of the form, or as ?label=….")
    plains, left_out = await call.decoded(_plains, sent, skip_bad=query.skip_bad)

    def work_on_sent(job: Job) -> answers.Json:
        present = service.present()
        pictures = service.read_plain(present, plains)
        lesson = service.lesson(present, pictures, [label_of(present, label)] * len(plains), "learn")
        if query.dry_run:
            return _on_trial(service, job, present, lesson, left_out)
        return service.teach(job, lesson, left_out=left_out)

    words = _words([label] * len(plains))
    job = service.jobs.start(service.workers, "learn", words, work_on_sent, total=len(plains))
    return await finished(job, wait=query.wait)


async def correct(call: Call) -> Response:
    wanted, service = await call.body(schemas.CorrectRequest), call.service
    service.taught()
    service.tray.get(wanted.picture)

    def work(job: Job) -> answers.Json:
        present = service.taught()
        label = label_of(present, wanted.label)
        check_known(present.knowledge, label, new=wanted.new)
        return _taught(service, job, [wanted.picture], [label], "correct")

    job = service.jobs.start(service.workers, "correct", f"one picture is {wanted.label}", work, total=1)
    return await finished(job, wait=wanted.wait)


async def remove(call: Call) -> Response:
    wanted = await call.body(schemas.RemoveRequest)

    def made(teacher: Any, before: Any) -> Any:
        return removed(teacher, before, wanted.example, when=now())

    return await _change(call, wanted, f"remove example {wanted.example}", made, state=wanted.state)


async def move(call: Call) -> Response:
    wanted, present = await call.body(schemas.MoveRequest), call.service.taught()
    label = label_of(present, wanted.label)

    def made(teacher: Any, before: Any) -> Any:
        return moved(teacher, before, wanted.example, label, new=wanted.new, when=now())

    words = f"move example {wanted.example} to {wanted.label}"
    return await _change(call, wanted, words, made, state=wanted.state)


async def rename(call: Call) -> Response:
    wanted, present = await call.body(schemas.RenameRequest), call.service.taught()
    old = label_of(present, wanted.label)

    def made(teacher: Any, before: Any) -> Any:
        return teacher.renamed(before, old, wanted.to, when=now())

    return await _change(call, wanted, f"rename {wanted.label} to {wanted.to}", made)


async def merge(call: Call) -> Response:
    wanted, present = await call.body(schemas.MergeRequest), call.service.taught()
    label, into = label_of(present, wanted.label), label_of(present, wanted.into)

    def made(teacher: Any, before: Any) -> Any:
        return merged(teacher, before, label, into, when=now())

    return await _change(call, wanted, f"merge {wanted.label} into {wanted.into}", made)


async def forget(call: Call) -> Response:
    wanted, present = await call.body(schemas.ForgetRequest), call.service.taught()
    label = label_of(present, wanted.label)

    def made(teacher: Any, before: Any) -> Any:
        return teacher.forgotten(before, label, when=now())

    return await _change(call, wanted, f"forget {wanted.label}", made, final=True)


async def undo(call: Call) -> Response:
    return await _go(call, "undo")


async def redo(call: Call) -> Response:
    return await _go(call, "redo")


async def _go(call: Call, kind: str) -> Response:
    wanted, service = await call.body(schemas.GoRequest), call.service
    service.present()
    if wanted.calls is not None and wanted.to is not None:
        raise Refusal("misuse", "calls and to were both given; choose one.")

    def act(before: Present, job: Job) -> None:
        model = before.model
        if model.folder is None:
            raise Refusal("no_model", "there is no model yet.")
        job.commit()
        if wanted.to is not None:
            model.snapshot = model.folder.go_to(wanted.to)
        elif kind == "undo":
            model.undo(wanted.calls or 1)
        else:
            model.redo(wanted.calls or 1)

    words = kind if wanted.to is None else f"{kind} to state {wanted.to}"
    job = service.jobs.start(service.writer, kind, words, lambda job: service.apply(job, act))
    return await finished(job, wait=wanted.wait)


async def _change(
    call: Call,
    wanted: Any,
    words: str,
    made: Callable[[Any, Any], Any],
    *,
    state: int | None = None,
    final: bool = False,
) -> Response:
    call.service.taught()
    kind = words.split(" ", 1)[0]
    job = call.service.change(kind, words, made, state=state, final=final)
    return await finished(job, wait=wanted.wait)


def _taught(
    service: Service, job: Job, ids: Sequence[str], labels: Sequence[Label], name: CallName, *, dry_run: bool = False
) -> answers.Json:
    """In a worker's thread: read pictures of the tray, and have them learned."""
    present = service.present()
    pictures = service.read_kept(present, ids, job)
    lesson = service.lesson(present, pictures, [label_of(present, label) for label in labels], name)
    if dry_run:
        return _on_trial(service, job, present, lesson, ())
    job.at("waiting", len(ids), len(ids))
    return service.teach(job, lesson, drop=ids)


def _on_trial(service: Service, job: Job, present: Present, lesson: Any, left_out: Sequence[str]) -> answers.Json:
    job.at("learning")
    return answers.trial(present, on_trial(present.model.teacher, present.snapshot, lesson), left_out=left_out)


def _plains(sent: Sent, *, skip_bad: bool) -> tuple[list[tuple[Image.Image, str]], list[str]]:
    plains, left_out = [], []
    for content, name in sent.files:
        try:
            plains.append((plain_from_bytes(content, name=name or "the picture"), name))
        except DataError as error:
            if not skip_bad:
                raise
            left_out.append(str(error))
    if not plains:
        raise DataError(f"none of the {len(sent.files)} pictures can be read, such as: {left_out[0]}")
    return plains, left_out


def _words(labels: Sequence[Label]) -> str:
    names = list(dict.fromkeys(map(str, labels)))
    what = names[0] if len(names) == 1 else f"{len(names)} classes"
    return f"{len(labels)} {'picture' if len(labels) == 1 else 'pictures'} of {what}"


def _endpoint(name: str, summary: str, handler: Any, body: Any, **more: Any) -> Endpoint:
    return Endpoint(
        "POST", f"/api/v1/{name}", summary, handler, body=body, answer=schemas.ChangeAnswer, later=True, **more
    )


ENDPOINTS = (
    _endpoint(
        "learn",
        "Teach new classes, or more examples of known ones; or say what that would do",
        learn,
        schemas.LearnRequest,
        raw=True,
        form=True,
        query=schemas.LearnQuery,
    ),
    _endpoint("correct", "Teach one picture that was misread", correct, schemas.CorrectRequest),
    _endpoint("move", "Give one stored example to another class", move, schemas.MoveRequest),
    _endpoint("remove", "Take one stored example out", remove, schemas.RemoveRequest),
    _endpoint("rename", "Give a class another name", rename, schemas.RenameRequest),
    _endpoint("merge", "Give all stored examples of one class to another", merge, schemas.MergeRequest),
    _endpoint("forget", "Forget a class; this cannot be undone", forget, schemas.ForgetRequest),
    _endpoint("undo", "Go back by some calls, or to a state", undo, schemas.GoRequest),
    _endpoint("redo", "Bring back calls that were undone, or go to a state", redo, schemas.GoRequest),
)
