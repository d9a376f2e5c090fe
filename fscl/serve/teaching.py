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
from fscl.serve import answers, replies, requests
from fscl.serve.asking import finished, label_of
from fscl.serve.decoding import plain_from_bytes
from fscl.serve.endpoint import Call, Endpoint, Sent
from fscl.serve.jobs import Job
from fscl.serve.present import Present
from fscl.serve.refusals import Refusal
from fscl.serve.service import Service, now
from fscl.stopping import stoppable


async def learn(call: Call) -> Response:
    """Teach pictures of the tray, each with its label; or one raw picture or a form, all with one label."""
    service = call.service
    service.present()
    if call.is_json:
        wanted = await call.body(requests.LearnRequest)
        ids = [each.id for each in wanted.pictures]
        labels = [each.label for each in wanted.pictures]
        lesson_id = None if wanted.dry_run else wanted.lesson
        _check_there(service, ids, lesson_id, "learn")

        def work(job: Job) -> answers.Json:
            return _taught(service, job, ids, labels, "learn", dry_run=wanted.dry_run)

        words = _words(labels)
        job = service.jobs.start(service.workers, "learn", words, work, total=len(ids), lesson=lesson_id)
        return await finished(job, wait=wanted.wait)
    query = call.query(requests.LearnQuery)
    sent = await call.sent()
    if "lesson" in sent.fields:
        query = query.model_copy(update={"lesson": requests.LearnQuery(lesson=sent.fields["lesson"]).lesson})
    label = sent.fields.get("label", query.label)
    if not label:
        raise Refusal("misuse", "the label is missing; give it as a field 'label' of the form, or as ?label=….")
    plains, left_out = await call.decoded(_plains, sent, skip_bad=query.skip_bad)

    def work_on_sent(job: Job) -> answers.Json:
        present = service.present()
        pictures = service.read_plain(present, plains)
        lesson = service.lesson(pictures, [label_of(present, label)] * len(plains), "learn", id=job.lesson)
        if query.dry_run:
            return _on_trial(service, job, present, lesson, left_out)
        return service.teach(job, lesson, left_out=left_out)

    words, lesson_id = _words([label] * len(plains)), None if query.dry_run else query.lesson
    job = service.jobs.start(service.workers, "learn", words, work_on_sent, total=len(plains), lesson=lesson_id)
    return await finished(job, wait=query.wait)


async def correct(call: Call) -> Response:
    wanted, service = await call.body(requests.CorrectRequest), call.service
    service.taught()
    _check_there(service, [wanted.picture], wanted.lesson, "correct")

    def work(job: Job) -> answers.Json:
        present = service.taught()
        label = label_of(present, wanted.label)
        if service.learned_before(job.lesson, "correct", 1) is None:
            check_known(present.knowledge, label, new=wanted.new)
        return _taught(service, job, [wanted.picture], [label], "correct")

    words = f"one picture is {wanted.label}"
    job = service.jobs.start(service.workers, "correct", words, work, total=1, lesson=wanted.lesson)
    return await finished(job, wait=wanted.wait)


async def remove(call: Call) -> Response:
    wanted = await call.body(requests.RemoveRequest)

    def made(teacher: Any, before: Any) -> Any:
        return removed(teacher, before, wanted.example, when=now())

    return await _change(call, wanted, f"remove example {wanted.example}", made, state=wanted.state)


async def move(call: Call) -> Response:
    wanted, present = await call.body(requests.MoveRequest), call.service.taught()
    label = label_of(present, wanted.label)

    def made(teacher: Any, before: Any) -> Any:
        return moved(teacher, before, wanted.example, label, new=wanted.new, when=now())

    words = f"move example {wanted.example} to {wanted.label}"
    return await _change(call, wanted, words, made, state=wanted.state)


async def rename(call: Call) -> Response:
    wanted, present = await call.body(requests.RenameRequest), call.service.taught()
    old = label_of(present, wanted.label)

    def made(teacher: Any, before: Any) -> Any:
        return teacher.renamed(before, old, wanted.to, when=now())

    return await _change(call, wanted, f"rename {wanted.label} to {wanted.to}", made)


async def merge(call: Call) -> Response:
    wanted, present = await call.body(requests.MergeRequest), call.service.taught()
    label, into = label_of(present, wanted.label), label_of(present, wanted.into)

    def made(teacher: Any, before: Any) -> Any:
        return merged(teacher, before, label, into, when=now())

    return await _change(call, wanted, f"merge {wanted.label} into {wanted.into}", made)


async def forget(call: Call) -> Response:
    wanted, present = await call.body(requests.ForgetRequest), call.service.taught()
    label = label_of(present, wanted.label)

    def made(teacher: Any, before: Any) -> Any:
        return teacher.forgotten(before, label, when=now())

    return await _change(call, wanted, f"forget {wanted.label}", made, final=True)


async def undo(call: Call) -> Response:
    return await _go(call, "undo")


async def redo(call: Call) -> Response:
    return await _go(call, "redo")


async def _go(call: Call, kind: str) -> Response:
    wanted, service = await call.body(requests.GoRequest), call.service
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
    before = service.learned_before(job.lesson, name, len(ids))
    if before is not None:  # its pictures have left the tray
        return before
    present = service.present()
    pictures = service.read_kept(present, ids, job)
    lesson = service.lesson(pictures, [label_of(present, label) for label in labels], name, id=job.lesson)
    if dry_run:
        return _on_trial(service, job, present, lesson, ())
    job.at("waiting", len(ids), len(ids))
    return service.teach(job, lesson, drop=ids)


def _check_there(service: Service, ids: Sequence[str], lesson_id: str | None, name: CallName) -> None:
    """What is gone is said before any work; pictures of a lesson that is sent again may be gone."""
    if service.jobs.teaches(lesson_id) or service.learned_before(lesson_id, name, len(ids)) is not None:
        return
    for key in ids:
        service.tray.get(key)


def _on_trial(service: Service, job: Job, present: Present, lesson: Any, left_out: Sequence[str]) -> answers.Json:
    job.at("learning")
    with stoppable(job.check):
        found = on_trial(present.model.teacher, present.snapshot, lesson)
    return answers.trial(present, found, left_out=left_out)


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
        "POST", f"/api/v1/{name}", summary, handler, body=body, answer=replies.ChangeAnswer, later=True, **more
    )


ENDPOINTS = (
    _endpoint(
        "learn",
        "Teach new classes, or more examples of known ones; or say what that would do",
        learn,
        requests.LearnRequest,
        raw=True,
        form=True,
        query=requests.LearnQuery,
    ),
    _endpoint("correct", "Teach one picture that was misread", correct, requests.CorrectRequest),
    _endpoint("move", "Give one stored example to another class", move, requests.MoveRequest),
    _endpoint("remove", "Take one stored example out", remove, requests.RemoveRequest),
    _endpoint("rename", "Give a class another name", rename, requests.RenameRequest),
    _endpoint("merge", "Give all stored examples of one class to another", merge, requests.MergeRequest),
    _endpoint("forget", "Forget a class; this cannot be undone", forget, requests.ForgetRequest),
    _endpoint("undo", "Go back by some calls, or to a state", undo, requests.GoRequest),
    _endpoint("redo", "Bring back calls that were undone, or go to a state", redo, requests.GoRequest),
)
