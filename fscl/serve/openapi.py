"""The OpenAPI document, made of the very endpoints that the routes are made of."""

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from fscl.serve.endpoint import FORM, JSON, RAW, Endpoint
from fscl.serve.replies import ErrorAnswer, JobAnswer

Json = dict[str, Any]
REFUSED = ("401", "403", "404", "405", "409", "413", "415", "422", "429", "500", "503")
CHANGE_HEADER: Json = {
    "name": "X-FSCL",
    "in": "header",
    "required": True,
    "description": "Whatever is not plain reading carries it; pages of other sites cannot.",
    "schema": {"type": "string", "enum": ["1"]},
}
BINARY: Json = {"type": "string", "format": "binary"}


def document(endpoints: Sequence[Endpoint]) -> Json:
    """All of it."""
    shapes: set[type[BaseModel]] = {ErrorAnswer, JobAnswer}
    shapes |= {shape for each in endpoints for shape in (each.body, each.answer) if shape is not None}
    ordered = sorted(shapes, key=lambda shape: shape.__name__)
    references, definitions = models_json_schema(
        [(shape, "validation") for shape in ordered], ref_template="#/components/schemas/{model}"
    )
    names: dict[type, Any] = {shape: schema for (shape, _), schema in references.items()}
    paths: dict[str, Json] = {}
    for each in endpoints:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, names)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fscl serve",
            "version": version("fscl"),
            "description": "Teach a classifier new classes at any time, and ask it. See docs/serve.md.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "fscl_session"},
            },
        },
        "security": [{}, {"token": []}, {"session": []}],
    }


def _operation(each: Endpoint, names: dict[type, Any]) -> Json:
    slug = re.sub(r"[^a-z]+", "_", each.path.removeprefix("/api/v1/").lower()).strip("_")
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\}", each.path)
    ]
    if each.method != "GET":
        parameters.append(CHANGE_HEADER)
    if each.query is not None:
        parameters += _query(each.query)
    operation: Json = {
        "operationId": f"{each.method.lower()}_{slug}",
        "summary": each.summary,
        "parameters": parameters,
        "responses": _responses(each, names),
    }
    content = _bodies(each, names)
    if content:
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _query(shape: type[BaseModel]) -> list[Json]:
    schema = shape.model_json_schema()
    return [
        {"name": name, "in": "query", "required": False, "schema": value}
        for name, value in schema.get("properties", {}).items()
    ]


def _bodies(each: Endpoint, names: dict[type, Any]) -> Json:
    content: Json = {}
    if each.body is not None:
        content[JSON] = {"schema": names[each.body]}
    if each.form:
        files = {"type": "array", "items": BINARY, "minItems": 1}
        form = {
            "type": "object",
            "properties": {"picture": files, "label": {"type": "string"}, "lesson": {"type": "string"}},
            "required": ["picture"],
        }
        content[FORM] = {"schema": form}
    if each.raw:
        content |= {kind: {"schema": BINARY} for kind in RAW}
    return content


def _responses(each: Endpoint, names: dict[type, Any]) -> Json:
    done: Json = {"description": "Done."}
    if each.answer is not None:
        done["content"] = {JSON: {"schema": names[each.answer]}}
    elif each.media:
        done["content"] = {media: {"schema": BINARY} for media in each.media}
    responses: Json = {str(each.status): done}
    if each.later:
        responses["202"] = {
            "description": "Asked not to wait: the job that does it.",
            "content": {JSON: {"schema": names[JobAnswer]}},
        }
    refused = {"description": "Refused, and why.", "content": {JSON: {"schema": names[ErrorAnswer]}}}
    responses |= dict.fromkeys(REFUSED, refused)
    if each.path.endswith("/health") and each.answer is not None:
        responses["503"] = {"description": "Failing.", "content": {JSON: {"schema": names[each.answer]}}}
    return responses
