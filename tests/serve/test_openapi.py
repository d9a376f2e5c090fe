"""The OpenAPI document says what the routes do: checked by hand, and by schemathesis against a real server."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from fscl.serve.app import ENDPOINTS, make_app
from fscl.serve.guard import Rules, own_hosts
from fscl.serve.openapi import document
from fscl.serve.service import Service
from tests.children import run_child
from tests.serve.serving import model
from tests.serve.test_process import served

# A label that is not known, or numbers of another state, are refused though their shape is right, so that
# `positive_data_acceptance` cannot be asked for.
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
)
ENDLESS = "/api/v1/events"  # an answer without an end


def test_the_document_names_every_route_and_method_and_no_other(tmp_path: Path):
    app: Any = make_app(Service(tmp_path / "none"), Rules(own_hosts(1)))
    routes = {route.path for route in app.app.app.routes if isinstance(route, Route)}
    described = document(ENDPOINTS)["paths"]
    assert set(described) == {path for path in routes if path.startswith("/api/")}
    assert routes - set(described) == {"/", "/page/{name:path}"}
    said = {(method.upper(), path) for path, methods in described.items() for method in methods}
    assert said == {(each.method, each.path) for each in ENDPOINTS}
    assert len({each["operationId"] for methods in described.values() for each in methods.values()}) == len(ENDPOINTS)


def test_every_reference_in_the_document_leads_somewhere():
    whole = document(ENDPOINTS)
    known = set(whole["components"]["schemas"])

    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if "$ref" in value else set()
            return own.union(*(references(each) for each in value.values()))
        return set().union(*(references(each) for each in value)) if isinstance(value, list) else set()

    assert {each.removeprefix("#/components/schemas/") for each in references(whole)} <= known


@pytest.mark.slow
def test_schemathesis_runs_clean(tmp_path: Path):
    model(tmp_path / "model", 0, 1, 2)
    with served(tmp_path / "model") as (_, client, _):
        address = f"{str(client.base_url).rstrip('/')}/api/v1/openapi.json"
        options = ["--header", "X-FSCL: 1", "--exclude-path", ENDLESS, "--checks", ",".join(CHECKS), "--seed", "1"]
        options += ["--max-examples", "5", "--phases", "examples,fuzzing", "--request-timeout", "200", "--no-color"]
        done = run_child([Path(sys.executable).with_name("schemathesis"), "run", address, *options], cwd=tmp_path)
        selected = re.search(r"Selected: (\d+)/", done.stdout)
        assert selected is not None
        assert f"Tested: {selected[1]}" in done.stdout
        assert int(selected[1]) >= len(ENDPOINTS) - 2
        assert client.get("/api/v1/health").json()["status"] == "ok"
