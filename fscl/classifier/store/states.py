"""One state of a model as files: `state.json`, `learner.safetensors`, and the stored examples on sheets (sheets.py).

Class names are in JSON alone: any script, any slash. An example is written once: where the learner replays the stored
examples, they are given back to it when it is restored.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fscl.classifier.knowledge import Calibration, Event, Knowledge
from fscl.classifier.labels import plain_labels
from fscl.classifier.store.cached import CachedRows
from fscl.classifier.store.manifest import STATE_FILES, StateRecord, record_of, verify
from fscl.classifier.store.sheets import ImageStore
from fscl.classifier.teacher import Snapshot
from fscl.continual.learner import LearnerState
from fscl.data.pool import Examples
from fscl.errors import DataError, StorageError
from fscl.nets.network import grouped, named
from fscl.storage import load_tensors, read_json, save_tensors, sync_folder, write_json

ROWS = 2  # dimensions of examples that are rows of numbers


def write_state(
    root: Path, number: int, snapshot: Snapshot, images: ImageStore, cached: CachedRows, *, anew: bool = False
) -> StateRecord:
    """Write a state's files; it is not part of the model until the manifest names it.

    `anew` writes its examples on new sheets, so that no sheet of an earlier state is needed.
    """
    knowledge, state = snapshot.knowledge, snapshot.learner_state()
    examples = knowledge.examples
    tensors: dict[str, Tensor] = {} if state is None else named(learner=state.tensors)
    details: dict[str, Any] = {
        **knowledge.details(),
        "learner": None if state is None else state.details,
        "images": [],
        "cached": [],
    }
    if examples is not None:
        if examples.images.ndim == ROWS:
            tensors["rows"] = examples.images
        else:
            details["images"] = images.write(examples.images, anew=anew)
            details["originals"] = images.originals.names_of(examples.images)
            if state is not None and state.cached is not None:
                details["cached"] = cached.write(details["images"], state.cached, anew=anew)
        if knowledge.features is not examples.images:
            tensors["features"] = knowledge.features
        if knowledge.base_features is not knowledge.features:
            tensors["base_features"] = knowledge.base_features
    tensors |= named(unknown=knowledge.unknown)
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


def read_state(
    root: Path, record: StateRecord, images: ImageStore, cached: CachedRows, *, image_size: int, channels: int
) -> tuple[Knowledge, LearnerState | None]:
    """What a state's files hold, each verified: what is known, and the learner's state."""
    details = read_details(root, record)
    path = root / record.folder / "learner.safetensors"
    tensors, _ = load_tensors(verify(path, record.files["learner.safetensors"]), "classifier-tensors")
    try:
        names = list(details["images"])
        labels = torch.tensor(details["labels"], dtype=torch.int64)
        stored = images.read(names, image_size=image_size, channels=channels) if names else tensors.get("rows")
        if names and stored is not None:
            images.originals.remember(stored, list(details.get("originals", [])))
        examples = None if stored is None else Examples(stored, labels)
        features = tensors.get("features", torch.zeros(0, 0) if stored is None else stored)
        (unknown,) = grouped(tensors, "unknown")
        knowledge = Knowledge(
            classes=tuple(plain_labels(details["classes"])),
            examples=examples,
            replayed=bool(details["replayed"]),
            sources=tuple(map(str, details["sources"])),
            features=features,
            base_features=tensors.get("base_features", features),
            calibration=_calibration(details["calibration"], tells_unknown=bool(unknown)),
            unknown=unknown,
            history=tuple(
                Event(**{**event, "new": tuple(event["new"]), "known": tuple(event["known"])})
                for event in details["history"]
            ),
        )
        state = None
        if details["learner"] is not None:
            (own,) = grouped(tensors, "learner")
            rows = cached.read(names, list(details["cached"])) if details.get("cached") else None
            replayed = examples if knowledge.replayed else None
            state = LearnerState(own, dict(details["learner"]), replayed, rows)
    except (KeyError, TypeError, ValueError, DataError) as error:
        raise StorageError(
            f"{root / record.folder} does not hold a whole state ({error}). Restore it from a copy."
        ) from error
    _check_whole(root / record.folder, knowledge, state)
    return knowledge, state


def _calibration(stored: dict[str, Any], *, tells_unknown: bool) -> Calibration:
    """JSON knows lists where this has tuples. A threshold of an earlier version, of a distance, is left out."""
    interval = stored.get("interval")
    doubts = stored.get("doubts", ())
    changes = {
        "per_class": tuple(stored["per_class"]),
        "threshold": stored["threshold"] if tells_unknown else None,
        "interval": None if interval is None else (float(interval[0]), float(interval[1])),
        "doubts": tuple((int(position), int(likelier), float(sure)) for position, likelier, sure in doubts),
    }
    return Calibration(**{**stored, **changes})


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


def _check_whole(folder: Path, knowledge: Knowledge, state: LearnerState | None) -> None:
    examples = knowledge.examples
    n = 0 if examples is None else len(examples.images)
    labels = torch.zeros(0, dtype=torch.int64) if examples is None else examples.labels
    fits = len(labels) == n == len(knowledge.sources) == len(knowledge.features) == len(knowledge.base_features)
    fits = fits and len(knowledge.calibration.per_class) == len(knowledge.classes)
    if (state is None) != (not knowledge.classes):
        raise StorageError(f"{folder} does not hold a whole state: its learner is missing. Restore it from a copy.")
    if not fits or (n and not 0 <= int(labels.min()) <= int(labels.max()) < len(knowledge.classes)):
        raise StorageError(
            f"{folder} does not hold a whole state: its examples and labels do not fit. Restore it from a copy."
        )
