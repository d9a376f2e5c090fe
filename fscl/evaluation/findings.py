"""What observers found, as files of a run directory: JSON with a digest, refused by name when damaged."""

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from fscl.errors import StorageError
from fscl.storage import SCHEMA, digest, read_json

MAX_BYTES = 16 * 2**20
Value = TypeVar("Value", bound=BaseModel)


def finding_bytes(found: BaseModel) -> bytes:
    """The content of the file of a finding."""
    content = found.model_dump(mode="json")
    whole = {"kind": _kind(type(found)), "schema": SCHEMA, "digest": digest(content), "found": content}
    return (json.dumps(whole, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()


def load_finding(path: Path, what: type[Value]) -> Value:
    """Read what `finding_bytes` made. A file that is cut off, altered or of another kind is refused by name."""
    way_out = "Delete it to have the report without it."
    if path.is_file() and path.stat().st_size > MAX_BYTES:
        raise StorageError(f"{path} has {path.stat().st_size:,} bytes; a finding has at most {MAX_BYTES:,}. {way_out}")
    content = read_json(path, _kind(what))
    if content.get("digest") != digest(content.get("found")):
        raise StorageError(f"{path} was altered after it was written: its digest does not match. {way_out}")
    try:
        return what.model_validate(content["found"])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise StorageError(f"{path} is damaged: {where}: {first['msg']}. {way_out}") from error


def _kind(what: type[BaseModel]) -> str:
    return what.__name__.lower()
