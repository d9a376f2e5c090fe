"""One state of a model as files: `state.json`, `learner.safetensors`, and an image file for each stored example.

An image is stored as the network sees it, under the SHA-256 of its file, so that equal ones are stored once, and class
names are in JSON alone: any script, any slash. Where the learner's memory is the stored examples themselves, it is not
written twice.
"""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fscl.classifier.knowledge import Event, Judgement, Knowledge
from fscl.classifier.labels import plain_labels
from fscl.classifier.manifest import STATE_FILES, StateRecord, record_of, verify
from fscl.continual.base import LearnerState
from fscl.data.images import Pixels, read_image
from fscl.data.pool import Examples
from fscl.errors import DataError, StorageError
from fscl.storage import load_tensors, read_json, save_tensors, sync_folder, write_bytes, write_json

MAX_IMAGE_BYTES = 8 * 2**20
MEMORY = ("memory/images", "memory/labels")


@dataclass
class ImageStore:
    """The image files of a model. Remembers which picture has which name, so that none is encoded twice."""

    folder: Path
    names: dict[bytes, str] = field(default_factory=dict)

    def write(self, images: Tensor) -> list[str]:
        """Store pictures (n, channels, size, size); their names."""
        names = [self._write_one(image.numpy()) for image in images]
        if self.folder.is_dir():
            sync_folder(self.folder)
        return names

    def read(self, names: Sequence[str], *, image_size: int, channels: int) -> Tensor:
        """The pictures of these names, each verified."""
        found = {name: self._read_one(name, image_size, channels) for name in dict.fromkeys(names)}
        return torch.from_numpy(np.stack([found[name] for name in names]))

    def path(self, name: str) -> Path:
        """Where a picture is. A name is a SHA-256 and nothing else, so that it cannot lead out of the folder."""
        if len(name) != 64 or not set(name) <= set("0123456789abcdef"):
            raise StorageError(
                f"{name!r} is not the name of a stored image; the model was altered. Restore it from a copy."
            )
        return self.folder / f"{name}.png"

    def content(self, name: str) -> bytes:
        """A verified image file."""
        path = self.path(name)
        if path.is_symlink() or not path.is_file():
            raise StorageError(f"{path} is missing or no plain file, but belongs to the model. Restore it from a copy.")
        if path.stat().st_size > MAX_IMAGE_BYTES:
            raise StorageError(f"{path} has over {MAX_IMAGE_BYTES:,} bytes, which no stored image has.")
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != name:
            raise StorageError(f"{path} was altered after it was written. Restore it from a copy.")
        return content

    def _write_one(self, pixels: Pixels) -> str:
        key = hashlib.sha256(pixels.tobytes()).digest()
        name = self.names.get(key)
        if name is not None and self.path(name).is_file():
            return name
        content = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)).squeeze()).save(content, "PNG")
        name = hashlib.sha256(content.getvalue()).hexdigest()
        write_bytes(self.path(name), content.getvalue())
        self.names[key] = name
        return name

    def _read_one(self, name: str, image_size: int, channels: int) -> Pixels:
        try:
            pixels = read_image(
                self.content(name),
                image_size=image_size,
                channels=channels,
                name=str(self.path(name)),
                formats=("PNG",),
                original_size=(image_size, image_size),
            )
        except DataError as error:
            raise StorageError(f"{error} It belongs to the model; restore it from a copy.") from error
        self.names[hashlib.sha256(pixels.tobytes()).digest()] = name
        return pixels


def write_state(root: Path, number: int, knowledge: Knowledge, images: ImageStore) -> StateRecord:
    """Write a state's files; it is not part of the model until the manifest names it."""
    shots, state = knowledge.shots, knowledge.learner
    tensors: dict[str, Tensor] = {"features": knowledge.features.clone()}  # of rows they are the rows themselves
    details: dict[str, Any] = {**knowledge.details(), "images": [], "memory_is_shots": False}
    if shots is not None and shots.images.ndim == 2:
        tensors["rows"] = shots.images
    elif shots is not None:
        details["images"] = images.write(shots.images)
    if state is not None:
        shared = shots is not None and _memory_is(state, shots)
        details["memory_is_shots"] = shared
        left_out = MEMORY if shared else ()
        tensors |= {f"learner/{name}": tensor for name, tensor in state.tensors.items() if name not in left_out}
    record = StateRecord(number=number, files={})
    folder = root / record.folder
    write_json(folder / "state.json", "classifier-state", details)
    save_tensors(folder / "learner.safetensors", "classifier-tensors", tensors)
    sync_folder(folder)
    sync_folder(folder.parent)
    return record.model_copy(update={"files": {name: record_of(folder / name) for name in STATE_FILES}})


def read_details(root: Path, record: StateRecord) -> dict[str, Any]:
    """The verified `state.json` of a state."""
    _check_names(root, record)
    return read_json(verify(root / record.folder / "state.json", record.files["state.json"]), "classifier-state")


def read_state(root: Path, record: StateRecord, images: ImageStore, *, image_size: int, channels: int) -> Knowledge:
    """What a state's files hold, each verified."""
    details = read_details(root, record)
    path = root / record.folder / "learner.safetensors"
    tensors, _ = load_tensors(verify(path, record.files["learner.safetensors"]), "classifier-tensors")
    try:
        names = list(details["images"])
        labels = torch.tensor(details["labels"], dtype=torch.int64)
        pictures = images.read(names, image_size=image_size, channels=channels) if names else tensors.get("rows")
        shots = None if pictures is None else Examples(pictures, labels)
        knowledge = Knowledge(
            classes=tuple(plain_labels(details["classes"])),
            learner=_learner_state(details, tensors, shots),
            shots=shots,
            sources=tuple(map(str, details["sources"])),
            features=tensors["features"],
            judgement=Judgement(
                **{**details["judgement"], "per_class": tuple(details["judgement"]["per_class"])},
            ),
            history=tuple(
                Event(**{**event, "new": tuple(event["new"]), "known": tuple(event["known"])})
                for event in details["history"]
            ),
        )
    except (KeyError, TypeError, ValueError, DataError) as error:
        raise StorageError(
            f"{root / record.folder} does not hold a whole state ({error}). Restore it from a copy."
        ) from error
    _check_whole(root / record.folder, knowledge)
    return knowledge


def _memory_is(state: LearnerState, shots: Examples) -> bool:
    stored, labels = (state.tensors.get(name) for name in MEMORY)
    if stored is None or labels is None:
        return False
    return torch.equal(stored, shots.images) and torch.equal(labels, shots.labels)


def _learner_state(details: dict[str, Any], tensors: dict[str, Tensor], shots: Examples | None) -> LearnerState | None:
    if details["learner"] is None:
        return None
    prefix = "learner/"
    own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if details["memory_is_shots"] and shots is not None:
        own |= dict(zip(MEMORY, (shots.images, shots.labels), strict=True))
    return LearnerState(own, dict(details["learner"]))


def _check_names(root: Path, record: StateRecord) -> None:
    if set(record.files) != set(STATE_FILES):
        raise StorageError(
            f"{root / record.folder} should hold {' and '.join(STATE_FILES)}, but the model says otherwise."
        )
    for folder in (root / "states", root / record.folder):
        if folder.is_symlink():
            raise StorageError(
                f"{folder} is a link; nothing outside the model's folder is read. Restore it from a copy."
            )


def _check_whole(folder: Path, knowledge: Knowledge) -> None:
    n = 0 if knowledge.shots is None else len(knowledge.shots.images)
    labels = torch.zeros(0, dtype=torch.int64) if knowledge.shots is None else knowledge.shots.labels
    fits = len(labels) == n == len(knowledge.sources) == len(knowledge.features)
    if not fits or (n and not 0 <= int(labels.min()) <= int(labels.max()) < len(knowledge.classes)):
        raise StorageError(
            f"{folder} does not hold a whole state: its examples and labels do not fit. Restore it from a copy."
        )
