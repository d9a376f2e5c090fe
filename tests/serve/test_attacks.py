"""Bytes that mean harm: refused with a sentence, and the service goes on."""

import io
import struct
import time
import zlib
from pathlib import Path

import pytest
from PIL import Image

from fscl.process import peak_memory
from tests.serve.serving import CHANGE, Running, drawing

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
HTML = b"<!doctype html><script>alert(1)</script>"


def png(width: int, height: int, data: bytes = b"") -> bytes:
    """A PNG file whose header says what it likes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def moving_gif() -> bytes:
    content = io.BytesIO()
    frames = [Image.new("L", (8, 8), shade) for shade in (0, 128, 255)]
    frames[0].save(content, "GIF", save_all=True, append_images=frames[1:])
    return content.getvalue()


BAD = {
    "svg": SVG,
    "html": HTML,
    "pdf": b"%PDF-1.7\n",
    "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
    "zip": b"PK\x03\x04" + b"\0" * 100,
    "half a png": drawing(0, 0)[:60],
    "a bomb": png(60_000, 60_000, b"\0" * 10**6),
    "one long row": png(64_000_000, 1, b"\0" * 10**6),
    "one long column": png(1, 64_000_000, b"\0" * 10**6),
    "a moving gif": moving_gif(),
    "nothing": b"",
}


@pytest.mark.parametrize("path", ["/predict", "/pictures", "/learn?label=x"])
@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_picture_of_a_listed_kind_is_refused_at_once(shared: Running, kind: str, path: str):
    started, before = time.process_time(), peak_memory()
    response = shared.client.post(f"/api/v1{path}", content=BAD[kind], headers={**CHANGE, "Content-Type": "image/png"})
    assert response.status_code == 422
    assert response.json()["error"]["kind"] == "data"
    assert time.process_time() - started < 2
    assert peak_memory() - before < 200 * 2**20
    assert shared.get("/classes")["state"] == 1


def test_a_picture_is_never_shown_as_it_came(shared: Running):
    content = io.BytesIO()
    image = Image.open(io.BytesIO(drawing(0, 0)))
    text = Image.new("RGB", (40, 40), "red")
    exif = text.getexif()
    exif[0x9286] = "<script>alert(1)</script>"
    text.save(content, "JPEG", exif=exif, comment=b"<script>alert(1)</script>")
    key = shared.send(content.getvalue() + HTML, "x.html")
    response = shared.client.get(f"/api/v1/pictures/{key}")
    assert response.headers["content-type"] in ("image/png", "image/jpeg")
    assert b"script" not in response.content
    assert Image.open(io.BytesIO(response.content)).size == (40, 40)
    assert image.size == (32, 32)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\a.png", "a.png"),
        ("a\r\nSet-Cookie: x=1.png", "aSet-Cookie: x=1.png"),
        ("\x1b[31mred\u202e.png", "[31mred.png"),
        ("<img src=x onerror=alert(1)>.png", "<img src=x onerror=alert(1)>.png"),
        ("x" * 900, "x" * 200),
    ],
)
def test_a_clients_file_name_is_text_for_people_and_never_a_path(shared: Running, name: str, shown: str):
    response = shared.client.post(
        "/api/v1/pictures",
        params={"name": name},
        content=drawing(1, len(name) % 12),
        headers={**CHANGE, "Content-Type": "image/png"},
    )
    assert response.json()["name"] == shown
    key = response.json()["id"]
    assert {path.stem for path in (shared.service.folder / "tray").iterdir() if path.stem == key} == {key}
    shared.client.delete(f"/api/v1/pictures/{key}", headers=CHANGE)


@pytest.mark.parametrize(
    "path",
    [
        "/page/../app.py",
        "/page/%2e%2e/app.py",
        "/page/..%2fapp.py",
        "/page//etc/passwd",
        "/page/",
        "/../model.json",
        "/api/v1/pictures/..%2f..%2fmodel.json",
        "/api/v1/pictures/../../model.json",
        "/api/v1/examples/..%2f../picture",
        "/api/v1/exports/..%2f..%2fetc%2fpasswd",
        "/api/v1/model/",
        "//evil.example/",
    ],
)
def test_no_path_leads_out(shared: Running, path: str):
    request = shared.client.build_request("GET", "/")
    request.url = request.url.copy_with(raw_path=path.encode())
    response = shared.client.send(request)
    assert response.status_code == 404
    assert "location" not in response.headers


def test_labels_with_markup_are_data_and_come_back_as_they_were(server: Running, folder: Path):
    label = '<img src=x onerror=alert(1)> & "quoted" ☃'
    server.teach(label, 3, 0, 1)
    response = server.client.get("/api/v1/classes")
    assert response.headers["content-type"] == "application/json"
    assert response.json()["classes"][-1]["label"] == label
    assert not [path for path in folder.rglob("*") if "img" in path.name]
    assert server.post("/forget", label=label)["event"]["known"] == [label]


@pytest.mark.parametrize("label", ["", " ", "a\nb", "\x00", "\u202b", "x" * 501, "\ud800", None, [], {"a": 1}])
def test_labels_that_cannot_be_are_refused_and_nothing_is_learned(shared: Running, label: object):
    key = shared.send(drawing(2, 11))
    raw = __import__("json").dumps({"pictures": [{"id": key, "label": label}]})
    response = shared.client.post(
        "/api/v1/learn", content=raw.encode(), headers={**CHANGE, "Content-Type": "application/json"}
    )
    assert response.status_code == 422
    assert shared.get("/classes")["state"] == 1


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"pictures": 1}', b'{"pictures": []}', b"[" * 100_000, b'{"x": NaN}', b"\xff\xfe"]
)
def test_broken_json_is_refused_with_a_sentence(shared: Running, body: bytes):
    for path in ("/learn", "/predict", "/undo", "/test"):
        if path == "/undo" and body in (b"",):
            continue
        headers = {**CHANGE, "Content-Type": "application/json"}
        response = shared.client.post(f"/api/v1{path}", content=body, headers=headers)
        assert response.status_code == 422
        assert response.json()["error"]["message"].endswith(".")


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "text/html"])
def test_bodies_of_another_kind_are_refused(shared: Running, kind: str):
    assert shared.ask_status(drawing(0, 0), kind=kind) == 415


def test_a_form_with_too_many_parts_or_none_is_refused(shared: Running):
    many = [("picture", (f"{i}.png", b"x", "image/png")) for i in range(501)]
    assert shared.client.post("/api/v1/predict", files=many, headers=CHANGE).status_code == 422
    fields = {"a": (None, "b")}
    assert shared.client.post("/api/v1/predict", files=fields, headers=CHANGE).status_code == 422
    broken = {**CHANGE, "Content-Type": "multipart/form-data; boundary=x"}
    assert shared.client.post("/api/v1/predict", content=b"--x\r\nnonsense", headers=broken).status_code == 422
    missing = {**CHANGE, "Content-Type": "multipart/form-data"}
    assert shared.client.post("/api/v1/predict", content=b"--x", headers=missing).status_code == 422
