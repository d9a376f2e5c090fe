"""Atomic, versioned save and load: tensors in safetensors, everything else in JSON. Loading never executes code.

A file is written under a temporary name in the same folder, flushed to disk, then renamed: a reader sees the old file or
the new one, never a part. Every file says its kind and schema version; tensor files also carry a digest of their content.
"""

import ctypes
import hashlib
import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as safetensors_load
from safetensors.torch import save as safetensors_save
from torch import Tensor

from fscl.errors import StorageError

SCHEMA = 1
HEADER = "fscl"
MAX_JSON_BYTES = 256 * 2**20
MAX_TENSOR_BYTES = 8 * 2**30
MAX_HEADER_BYTES = 100 * 10**6  # what safetensors itself reads


def cache_folder() -> Path:
    """Where downloads and prepared data are kept: `FSCL_CACHE`, or the user's cache folder."""
    import pooch  # slow to import, and rarely needed

    return Path(os.environ.get("FSCL_CACHE") or pooch.os_cache("fscl"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush a folder itself, so that the names of files written or renamed in it outlast a power cut."""
    if sys.platform == "win32":
        return  # folders cannot be opened there, and renames are flushed by the system
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(folder: Path) -> None:
    """Flush all that was written to the file system of a folder: one wait for many files. Not on Windows."""
    try:
        syncfs = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        os.sync()  # another system than Linux
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(descriptor)


def sync_folders(folder: Path, *, up_to: Path) -> None:
    """Flush a folder and those above it, up to one of them: so that the names of new folders outlast a power cut, too."""
    for each in [folder, *folder.parents]:
        sync_folder(each)
        if each == up_to:
            return


def canonical_json(content: Any) -> str:
    """One text for one value: sorted keys, no spaces, no NaN."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def digest(content: Any) -> str:
    """A short fingerprint of a JSON value."""
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:16]


def leaves(value: Any, prefix: str = "") -> dict[str, Any]:
    """The values of nested objects by their path: `{"a": {"b": 1}}` is `{"a.b": 1}`."""
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        path: leaf
        for key, inner in value.items()
        for path, leaf in leaves(inner, f"{prefix}.{key}" if prefix else str(key)).items()
    }


def json_bytes(kind: str, content: Mapping[str, Any], *, compact: bool = False) -> bytes:
    """A JSON file of `content` with its kind and schema version; `compact` on one line."""
    whole = {"kind": kind, "schema": SCHEMA, **content}
    text = json.dumps(
        whole,
        indent=None if compact else 1,
        separators=(",", ":") if compact else None,
        allow_nan=False,
        ensure_ascii=False,
    )
    return (text + "\n").encode()


def write_json(path: Path, kind: str, content: Mapping[str, Any], *, compact: bool = False) -> None:
    """Write `content` with its kind and schema version; `compact` on one line."""
    write_bytes(path, json_bytes(kind, content, compact=compact))


def read_json(path: Path, kind: str) -> dict[str, Any]:
    """Read what `write_json` wrote, or say what is wrong with the file."""
    try:
        content = json.loads(_read_bounded(path, MAX_JSON_BYTES).decode())
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path} is not a whole JSON file ({error}). Restore it from a copy.") from error
    if not isinstance(content, dict):
        raise StorageError(f"{path} holds a {type(content).__name__}, but a {kind} file holds an object.")
    _check_header(path, kind, content.pop("kind", None), content.pop("schema", None))
    return content


def save_tensors(
    path: Path, kind: str, tensors: Mapping[str, Tensor], details: Mapping[str, Any] | None = None
) -> None:
    """Write named tensors, wherever they are, and a JSON value `details` as one safetensors file."""
    write_bytes(path, tensor_bytes(kind, tensors, details))


def tensor_bytes(kind: str, tensors: Mapping[str, Tensor], details: Mapping[str, Any] | None = None) -> bytes:
    """What `save_tensors` would write."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {
        "kind": kind,
        "schema": SCHEMA,
        "digest": _whole_digest(plain, details or {}),
        "details": details or {},
    }
    # one entry, because safetensors writes several in no fixed order and equal content shall be equal bytes
    return safetensors_save(plain, metadata={HEADER: canonical_json(header)})


def load_tensors(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote: the tensors and the details. A truncated or altered file is refused by name."""
    return tensors_from_bytes(path, kind, _read_bounded(path, MAX_TENSOR_BYTES))


def tensors_from_bytes(path: Path, kind: str, content: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """As `load_tensors`, from the bytes of the file; `path` is what errors call it."""
    header = _safetensors_header(path, content)
    _check_header(path, kind, header.get("kind"), header.get("schema"))
    try:
        found = safetensors_load(content)
    except (SafetensorError, ValueError) as error:
        raise StorageError(f"{path} is not a whole safetensors file ({error}). Fetch or train it again.") from error
    tensors = {
        name: found[name] for name in sorted(found)
    }  # they come in no fixed order, and sums over them depend on it
    details = header.get("details", {})
    if _whole_digest(tensors, details) != header.get("digest"):
        raise StorageError(
            f"{path} was altered after it was written: its digest does not match. Fetch or train it again."
        )
    return tensors, details


def tensor_digest(tensors: Mapping[str, Tensor]) -> str:
    """A fingerprint of names, shapes, types and values."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        sha.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        sha.update(tensor.flatten().view(torch.uint8).numpy().data)
    return sha.hexdigest()[:32]


def _whole_digest(tensors: Mapping[str, Tensor], details: Mapping[str, Any]) -> str:
    return digest([tensor_digest(tensors), details])


def _read_bounded(path: Path, limit: int) -> bytes:
    try:
        size = path.stat().st_size
        if size > limit:
            raise StorageError(f"{path} has {size:,} bytes; a file of this kind has at most {limit:,}.")
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}.") from error


def _safetensors_header(path: Path, content: bytes) -> dict[str, Any]:
    length = int.from_bytes(content[:8], "little")
    if length > min(MAX_HEADER_BYTES, len(content)):
        raise StorageError(
            f"{path} is not a whole file of fscl's: its header should have {length:,} bytes, and at most "
            f"{min(MAX_HEADER_BYTES, len(content)):,} are read. Fetch or train it again."
        )
    try:
        header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][HEADER])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StorageError(
            f"{path} is not a whole file of fscl's (no readable header). Fetch or train it again."
        ) from error
    if not isinstance(header, dict):
        raise StorageError(f"{path} is not a file of fscl's (its header is no object).")
    return header


def _check_header(path: Path, kind: str, found_kind: object, found_schema: object) -> None:
    if found_kind != kind:
        raise StorageError(f"{path} is a {found_kind or 'foreign'} file where a {kind} file is needed.")
    if str(found_schema) != str(SCHEMA):
        raise StorageError(
            f"{path} has schema {found_schema}; this fscl reads schema {SCHEMA}. Use the fscl that wrote it."
        )
