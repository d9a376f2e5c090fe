"""One state of a model as files: `state.json`, `learner.safetensors`, and the stored examples on sheets (sheets.py).

Class names are in JSON alone: any script, any slash. An example is written once: where the learner replays the stored
examples, they are given back to it when it is restored. A state is stored whole, or as what differs from the one before it
(difference.py): whole again as soon as the differences add up to as much, so that the bytes of n lessons grow with n, and
reading one costs at most twice what is in it.

What the score of unknown is computed with changes with every lesson, all of it, and follows from the examples: the present
state has it in a file of its own, for earlier ones it is computed again.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fscl.classifier.calibrate import unknown_again
from fscl.classifier.knowledge import Knowledge
from fscl.classifier.labels import plain_labels
from fscl.classifier.store.cached import CachedRows, LazyRows
from fscl.classifier.store.difference import Assembly, added, changed_rows, difference
from fscl.classifier.store.manifest import STATE_FILES, UNKNOWN, StateRecord, record_of, verify
from fscl.classifier.store.sheets import ImageStore
from fscl.classifier.store.whole import (
    check_scales,
    check_unknown,
    check_whole,
    read_calibration,
    read_history,
    read_labels,
)
from fscl.classifier.teacher import Snapshot
from fscl.continual.learner import LearnerState
from fscl.data.pool import Examples
from fscl.errors import DataError, StorageError
from fscl.nets.network import grouped, named
from fscl.storage import canonical_json, load_tensors, read_json, save_tensors, sync_folder, write_json

ROWS = 2  # dimensions of examples that are rows of numbers
SCALES = "unknown/scales"
WHOLE, CHANGE = "classifier-state", "classifier-change"


@dataclass(frozen=True)
class Content:
    """All of a state but its pictures: a JSON value, and tensors by name."""

    details: dict[str, Any]
    tensors: dict[str, Tensor]

    @property
    def n_bytes(self) -> int:
        return len(canonical_json(self.details)) + sum(tensor.nbytes for tensor in self.tensors.values())


def content_of(snapshot: Snapshot, images: ImageStore, cached: CachedRows, *, anew: bool = False) -> Content:
    """What there is to write of a state; its examples are written already when this returns.

    Args:
        snapshot: the state.
        images, cached: where its examples go, and what was computed of them.
        anew: write the examples on new sheets, so that no sheet of an earlier state is needed.
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
    if knowledge.tells_unknown:
        tensors[SCALES] = knowledge.unknown["scales"]
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return Content(json.loads(canonical_json(details)), plain)


def write_state(
    root: Path,
    number: int,
    content: Content,
    *,
    before: tuple[Content, Sequence[StateRecord]] | None = None,
) -> StateRecord:
    """Write a state's files; it is not part of the model until the manifest names it.

    Args:
        root: the model's folder.
        number: of the state.
        content: of the state.
        before: the content of the state before it, and the records up to that; None to write it whole.
    """
    record = StateRecord(number=number, files={})
    details, tensors, kind = content.details, content.tensors, WHOLE
    if before is not None:
        old, records = before
        rows, notes = changed_rows(old.tensors, content.tensors)
        change = Content({"edit": difference(old.details, content.details), "rows": notes}, rows)
        if change.n_bytes + _changes_since_whole(records) < content.n_bytes:
            details, tensors, kind = change.details, change.tensors, CHANGE
            record = record.model_copy(update={"parent": records[-1].number})
    folder = root / record.folder
    write_json(folder / "state.json", kind, details, compact=True)
    save_tensors(folder / "learner.safetensors", "classifier-tensors", tensors)
    sync_folder(folder)
    sync_folder(folder.parent)
    return record.model_copy(update={"files": {name: record_of(folder / name) for name in STATE_FILES}})


def with_unknown(root: Path, record: StateRecord, knowledge: Knowledge) -> StateRecord:
    """Write what the present state alone has on disk; its record says so."""
    if not knowledge.tells_unknown:
        return record
    folder = root / record.folder
    save_tensors(folder / UNKNOWN, "classifier-unknown", dict(knowledge.unknown))
    sync_folder(folder)
    return record.model_copy(update={"files": {**record.files, UNKNOWN: record_of(folder / UNKNOWN)}})


def without_unknown(record: StateRecord) -> StateRecord:
    """The record of a state that is not the present one any more."""
    return record.model_copy(update={"files": {name: record.files[name] for name in STATE_FILES}})


def names_in(root: Path, record: StateRecord) -> dict[str, list[Any]]:
    """The names of sheets, cached rows and originals that a state has and the one before it, if it builds on that, not."""
    raw = _read_details(root, record)
    keys = ("images", "cached", "originals")
    try:
        if record.parent is None:
            return {key: list(raw.get(key, [])) for key in keys}
        edits = raw["edit"]["of"]
        return {key: added(edits[key]) if key in edits else [] for key in keys}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(f"{root / record.folder} does not hold a whole state ({error!r}).") from error


def each_content(root: Path, records: Sequence[StateRecord]) -> Iterator[Content | StorageError]:
    """The content of each state, every file verified; or why it cannot be read."""
    assembly, broken = Assembly(), None
    for record in records:
        try:
            if broken is not None and record.parent is not None:
                raise broken
            _follow(assembly, root, record)
            broken = None
            yield Content(assembly.details(), assembly.tensors())
        except StorageError as error:
            broken = error
            yield error


def read_contents(root: Path, records: Sequence[StateRecord]) -> Iterator[Content]:
    """The content of each state, every file verified."""
    for content in each_content(root, records):
        if isinstance(content, StorageError):
            raise content
        yield content


def read_content(root: Path, records: Sequence[StateRecord]) -> Content:
    """The content of the last of some states."""
    whole = max(position for position, record in enumerate(records) if record.parent is None)
    assembly = Assembly()
    for record in records[whole:]:
        _follow(assembly, root, record)
    return Content(assembly.details(), assembly.tensors())


def read_state(
    root: Path,
    record: StateRecord,
    content: Content,
    images: ImageStore,
    cached: CachedRows,
    *,
    image_size: int,
    channels: int,
    row_width: int | None,
) -> tuple[Knowledge, LearnerState | None]:
    """What a state's content says, checked: what is known, and the learner's state. Sheets are read and verified.

    Args:
        root: the model's folder.
        record: of the state.
        content: of the state.
        images, cached: where its examples are.
        image_size, channels: of a picture, as the base takes it.
        row_width: numbers in a row, for a model of rows.
    """
    folder, details, tensors = root / record.folder, content.details, content.tensors
    try:
        classes = tuple(plain_labels(details["classes"]))
        names = list(details["images"])
        labels = read_labels(details["labels"], len(classes))
        stored = images.read(names, image_size=image_size, channels=channels) if names else tensors.get("rows")
        if names and stored is not None:
            images.originals.remember(stored, list(details.get("originals", [])))
        examples = None if stored is None else Examples(stored, labels)
        features = tensors.get("features", torch.zeros(0, 0) if stored is None else stored)
        scales = tensors.get(SCALES)
        knowledge = Knowledge(
            classes=classes,
            examples=examples,
            replayed=bool(details["replayed"]),
            sources=tuple(map(str, details["sources"])),
            features=features,
            base_features=tensors.get("base_features", features),
            calibration=read_calibration(details["calibration"], tells_unknown=scales is not None),
            history=read_history(details["history"]),
        )
        state = None
        if details["learner"] is not None:
            (own,) = grouped(tensors, "learner")
            rows = cached.read(names, list(details["cached"])) if details.get("cached") else None
            replayed = examples if knowledge.replayed else None
            state = LearnerState(own, dict(details["learner"]), replayed, rows)
        check_whole(knowledge, state, row_width=row_width)
        check_scales(scales)
        return knowledge.with_unknown(_unknown(root, record, knowledge, scales)), state
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError, DataError) as error:
        raise StorageError(f"{folder} does not hold a whole state ({error}). Restore it from a copy.") from error


def _unknown(root: Path, record: StateRecord, knowledge: Knowledge, scales: Tensor | None) -> "LazyRows | None":
    """What the score of unknown is computed with: read, or computed when it is first asked for."""
    if scales is None:
        return None
    if UNKNOWN not in record.files:
        return LazyRows(partial(unknown_again, knowledge, scales), known={"scales": scales})
    path = verify(root / record.folder / UNKNOWN, record.files[UNKNOWN])
    tensors = load_tensors(path, "classifier-unknown")[0]
    check_unknown(tensors, knowledge)
    return LazyRows(partial(dict, tensors), known={"scales": scales})


def _follow(assembly: Assembly, root: Path, record: StateRecord) -> None:
    details = _read_details(root, record)
    path = root / record.folder / "learner.safetensors"
    tensors, _ = load_tensors(verify(path, record.files["learner.safetensors"]), "classifier-tensors")
    if record.parent is None:
        assembly.start(details, tensors)
        return
    try:
        assembly.follow(details["edit"], details["rows"], tensors)
    except (StorageError, KeyError) as error:
        raise StorageError(f"{root / record.folder}: {error} Restore it from a copy.") from error


def n_changes(records: Sequence[StateRecord]) -> int:
    """How many of some states, at their end, say only what differs from the one before."""
    return len(list(takewhile(lambda record: record.parent is not None, reversed(records))))


def needed_by(first: StateRecord, chain: Sequence[StateRecord]) -> tuple[StateRecord, ...]:
    """Which states before one it is read from: the last whole one, and those that follow it."""
    before = [record for record in chain if record.number < first.number]
    return () if first.parent is None else tuple(before[len(before) - n_changes(before) - 1 :])


def _changes_since_whole(records: Sequence[StateRecord]) -> int:
    """Bytes of the differences that lead to the last of some states."""
    total = 0
    for record in reversed(records):
        if record.parent is None:
            break
        total += sum(record.files[name].n_bytes for name in STATE_FILES)
    return total


def _read_details(root: Path, record: StateRecord) -> dict[str, Any]:
    """The verified `state.json` of a state, whole or as a change."""
    _check_names(root, record)
    path = verify(root / record.folder / "state.json", record.files["state.json"])
    return read_json(path, WHOLE if record.parent is None else CHANGE)


def _check_names(root: Path, record: StateRecord) -> None:
    if set(record.files) - {UNKNOWN} != set(STATE_FILES):
        raise StorageError(
            f"{root / record.folder} should hold {' and '.join(STATE_FILES)}, but the model says otherwise."
        )
    for folder in (root / "states", root / record.folder):
        if folder.is_symlink():
            raise StorageError(
                f"{folder} is a link; nothing outside the model's folder is read. Restore it from a copy."
            )
