"""One state of a model as files: `state.json`, `learner.safetensors`, and the stored examples on sheets (sheets.py).

Class names are in JSON alone: any script, any slash. Where the learner's memory is the stored examples themselves, it is
not written twice.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fscl.classifier.knowledge import Event, Judgement, Knowledge
from fscl.classifier.labels import plain_labels
from fscl.classifier.manifest import STATE_FILES, StateRecord, record_of, verify
from fscl.classifier.sheets import ImageStore
from fscl.continual.learner import LearnerState
from fscl.data.pool import Examples
from fscl.errors import DataError, StorageError
from fscl.storage import load_tensors, read_json, save_tensors, sync_folder, write_json

MEMORY = ("memory/images", "memory/labels")


def write_state(
    root: Path, number: int, knowledge: Knowledge, images: ImageStore, *, anew: bool = False
) -> StateRecord:
    """Write a state's files; it is not part of the model until the manifest names it.

    `anew` writes its examples on new sheets, so that no sheet of an earlier state is needed.
    """
    shots, state = knowledge.shots, knowledge.learner
    tensors: dict[str, Tensor] = {"features": knowledge.features.clone()}  # of rows they are the rows themselves
    if knowledge.fair is not knowledge.features and not torch.equal(knowledge.fair, knowledge.features):
        tensors["fair"] = knowledge.fair.clone()
    details: dict[str, Any] = {**knowledge.details(), "images": [], "memory_is_shots": False}
    if shots is not None and shots.images.ndim == 2:
        tensors["rows"] = shots.images
    elif shots is not None:
        details["images"] = images.write(shots.images, anew=anew)
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
            fair=tensors.get("fair", tensors["features"]),
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
    fits = len(labels) == n == len(knowledge.sources) == len(knowledge.features) == len(knowledge.fair)
    if not fits or (n and not 0 <= int(labels.min()) <= int(labels.max()) < len(knowledge.classes)):
        raise StorageError(
            f"{folder} does not hold a whole state: its examples and labels do not fit. Restore it from a copy."
        )
