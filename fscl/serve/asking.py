"""Endpoints that read: what is known, and what pictures show."""

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Any

from PIL import Image
from starlette.responses import Response
from torch import Tensor

from fscl.classifier.assessment import assessed
from fscl.classifier.explain import Explanation
from fscl.classifier.knowledge import Event
from fscl.classifier.labels import Label
from fscl.classifier.store.states import each_content
from fscl.data.duplicates import find_duplicates, repeated
from fscl.errors import StorageError, unknown_name
from fscl.serve import answers, replies, requests
from fscl.serve.decoding import is_small, plain_from_bytes, shown
from fscl.serve.endpoint import Call, Endpoint, json_response
from fscl.serve.inference import MAX_BATCH
from fscl.serve.jobs import Job
from fscl.serve.present import Present
from fscl.serve.refusals import Refusal
from fscl.serve.service import Service

FOR_EVER = {"Cache-Control": "private, max-age=31536000, immutable"}


async def predict(call: Call) -> Response:
    """Answers come from one state each; many pictures are asked about in parts, all from the same state."""
    service = call.service
    present = service.taught()
    if call.is_json:
        wanted = await call.body(requests.PredictRequest)
        if wanted.keep and service.read_only:
            raise Refusal("read_only", "this service is read-only; nothing can be kept.")
        pictures = await call.decoded(service.read_kept, present, wanted.pictures)
        found = await asked(service, present, pictures.images, wanted.nearest)
        to_keep = []
        if wanted.keep:
            pairs = zip(wanted.pictures, found, strict=True)
            to_keep = [key for key, each in pairs if each.unknown or answers.is_uncertain(each)]
        if to_keep:
            await call.blocking(service.tray.put_in_inbox, to_keep)
            service.tell_inbox()
        listed = [
            answers.answer(each, name=name, picture=key, top=wanted.top, nearest=wanted.nearest, kept=key in to_keep)
            for each, name, key in zip(found, pictures.sources, wanted.pictures, strict=True)
        ]
        return json_response({"state": present.number, "answers": listed})
    query = call.query(requests.PredictQuery)
    sent = await call.sent()
    if len(sent.files) == 1 and is_small(sent.files[0][0]):  # the state of the moment at which it is answered
        question = service.inference.ask(lambda state: _read(service, state, sent.files), n_nearest=query.nearest)
        present, found = await asyncio.wrap_future(question)
    else:
        found = await asked(service, present, await call.decoded(_read, service, present, sent.files), query.nearest)
    listed = [
        answers.answer(each, name=name, top=query.top, nearest=query.nearest)
        for each, (_, name) in zip(found, sent.files, strict=True)
    ]
    return json_response({"state": present.number, "answers": listed})


async def asked(service: Service, present: Present, images: Tensor, n_nearest: int) -> list[Explanation]:
    """Ask about many, all from one state; a part after another, so that others get their turn."""
    found: list[Explanation] = []
    for part in images.split(MAX_BATCH):
        question = service.inference.ask(part, n_nearest=n_nearest, present=present)
        found += (await asyncio.wrap_future(question))[1]
    return found


def _read(service: Service, present: Present, files: Sequence[tuple[bytes, str]]) -> Tensor:
    plains: list[tuple[Image.Image, str]] = [
        (plain_from_bytes(content, name=name or "the picture"), name) for content, name in files
    ]
    return service.read_plain(present, plains, to_teach=False).images


async def classes(call: Call) -> Response:
    return json_response(await call.blocking(answers.classes, call.service.present()))


async def examples(call: Call) -> Response:
    query, present = call.query(requests.ExamplesQuery), call.service.present()
    return json_response(await call.blocking(_examples, present, query))


def _examples(present: Present, query: Any) -> dict[str, Any]:
    numbers = range(1, len(present.examples) + 1)
    if query.label is not None:
        label = label_of(present, query.label)
        if label not in present.knowledge.classes:
            raise unknown_name("class", query.label, map(str, present.knowledge.classes))
        numbers = [each.number for each in present.examples if each.label == label]  # type: ignore[assignment]
    doubtful = {position + 1 for position, _, _ in present.knowledge.calibration.doubts}
    chosen = numbers[query.offset : query.offset + query.limit]
    listed = [{**answers.example(present, number), "doubtful": number in doubtful} for number in chosen]
    return {"state": present.number, "total": len(numbers), "examples": listed}


async def example_picture(call: Call) -> Response:
    size, present = call.query(requests.SizeQuery).size, call.service.present()
    content, media = await call.decoded(lambda: shown(present.picture(call.path["key"]), size))
    return Response(content, media_type=media, headers=FOR_EVER)


async def doubts(call: Call) -> Response:
    return json_response(await call.by_worker(_doubts, call.service.present()))


def _doubts(present: Present) -> dict[str, Any]:
    stored, groups = present.knowledge.examples, []
    if stored is not None and present.knowledge.calibration.n_repeats:
        for positions in repeated(find_duplicates(stored.images, present.knowledge.base_features, stored.labels)):
            members = [answers.example(present, position + 1) for position in positions]
            groups.append({"examples": members, "same_label": len({str(each["label"]) for each in members}) == 1})
    return {"state": present.number, "wrong_labels": answers.doubtful(present), "duplicates": groups}


async def history(call: Call) -> Response:
    return json_response(await call.blocking(_history, call.service))


def _history(service: Service) -> dict[str, Any]:
    """Every state that can be gone to, beside what it changed."""
    present, manifest = service.present(), service.manifest()
    now = manifest.states[-1].number if manifest.states else 0
    states: list[dict[str, Any]] = []
    earlier: dict[Label, float | None] = {}
    if manifest.begins_empty:
        states.append({"state": 0, "event": None, "accuracy": None, "changes": []})
    contents = islice(each_content(service.folder, manifest.stored), len(manifest.ground), None)
    for record, content in zip(manifest.kept, contents, strict=True):
        if isinstance(content, StorageError):  # a writer dropped it meanwhile
            continue
        details = content.details
        accuracies = dict(zip(details["classes"], details["calibration"]["per_class"], strict=True))
        changes = [
            {"label": label, "before": earlier.get(label), "after": accuracy, "new": label not in earlier}
            for label, accuracy in accuracies.items()
            if label not in earlier or earlier[label] != accuracy
        ]
        if not states:
            changes = []  # nothing to compare the first with
        event = Event(**details["history"][-1])
        states.append(
            {
                "state": record.number,
                "event": answers.event(event),
                "accuracy": details["calibration"]["accuracy"],
                "changes": changes,
            }
        )
        earlier = accuracies
    numbers = {record.number for record in manifest.undone}
    for each in states:
        each |= {"present": each["state"] == now, "undone": each["state"] in numbers}
    return {"state": now, "states": states, "events": [answers.event(event) for event in present.knowledge.history]}


async def test(call: Call) -> Response:
    """Ask for labelled pictures, a part at a time: it shows how far it is, and can be stopped."""
    wanted, service = await call.body(requests.TestRequest), call.service
    service.taught()

    def work(job: Job) -> dict[str, Any]:
        present = service.taught()
        ids = [each.id for each in wanted.pictures]
        labels = [label_of(present, each.label) for each in wanted.pictures]
        pictures = service.read_kept(present, ids, job)
        found: list[Explanation] = []
        for part in pictures.images.split(MAX_BATCH // 2):
            job.at("asking", len(found), len(ids))
            found += service.inference.ask(part, n_nearest=1, present=present).result()[1]
        names = dict(zip(ids, pictures.sources, strict=True))
        result = assessed(present.snapshot, pictures.images, labels, ids, found, inverted=present.model.shape.invert)
        return answers.assessment(present, result, names)

    n = len(wanted.pictures)
    job = service.jobs.start(service.workers, "test", f"test with {n} pictures", work, total=n)
    return await finished(job, wait=wanted.wait)


async def finished(job: Job, *, wait: bool) -> Response:
    """The result of a job, or at once the job itself."""
    if not wait:
        return json_response({"job": job.content()}, 202)
    result = await asyncio.shield(asyncio.wrap_future(job.finished))
    return json_response(result)


def label_of(present: Present, name: Label) -> Label:
    """The class of this name, whatever the kind of its label; a name that is not known is itself."""
    if name in present.knowledge.classes:
        return name
    return next((label for label in present.knowledge.classes if str(label) == str(name)), name)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/api/v1/predict",
        "What pictures show: label, probability, unknown, nearest examples",
        predict,
        body=requests.PredictRequest,
        raw=True,
        form=True,
        query=requests.PredictQuery,
        answer=replies.PredictAnswer,
    ),
    Endpoint("GET", "/api/v1/classes", "Every class, and how good it is", classes, answer=replies.ClassesAnswer),
    Endpoint(
        "GET",
        "/api/v1/examples",
        "The stored examples, of one class or of all",
        examples,
        query=requests.ExamplesQuery,
        answer=replies.ExamplesAnswer,
    ),
    Endpoint(
        "GET",
        "/api/v1/examples/{key}/picture",
        "A stored example in small",
        example_picture,
        query=requests.SizeQuery,
        media=("image/png", "image/jpeg"),
    ),
    Endpoint(
        "GET",
        "/api/v1/doubts",
        "Labels that are probably wrong, and pictures that repeat",
        doubts,
        answer=replies.DoubtsAnswer,
    ),
    Endpoint(
        "GET",
        "/api/v1/history",
        "What was learned when, and which states can be gone to",
        history,
        answer=replies.HistoryAnswer,
    ),
    Endpoint(
        "POST",
        "/api/v1/test",
        "How good the answers to labelled pictures are",
        test,
        body=requests.TestRequest,
        answer=replies.TestAnswer,
        later=True,
    ),
)
