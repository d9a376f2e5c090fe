"""A forged folder, with every seal right, is refused in a sentence or works: it never crashes in the middle of a call."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fscl import ContinualClassifier
from fscl.classifier.store.check import check_model
from fscl.classifier.store.manifest import read_manifest, record_of, write_manifest
from fscl.errors import FsclError, StorageError
from fscl.storage import load_tensors, save_tensors
from tests.classifier.models import POOL, classifier, examples

KINDS = {
    "learner.safetensors": "classifier-tensors",
    "unknown.safetensors": "classifier-unknown",
}
ODD = (None, True, -1, 2**70, 1e308, "x", "", [], [None], {}, [[1]], [2**70], [0.5])


def sealed(folder: Path, name: str) -> None:
    """The manifest as a forger would write it."""
    manifest = read_manifest(folder)
    record = manifest.states[-1]
    files = {**record.files, name: record_of(folder / record.folder / name)}
    states = (*manifest.states[:-1], record.model_copy(update={"files": files}))
    write_manifest(folder, manifest.model_copy(update={"states": states}))


def reaction(folder: Path) -> str:
    """What becomes of it: "refused" by a sentence or "works"; whatever else is raised passes through."""
    try:
        model = ContinualClassifier.load(folder)
        X = POOL.images[:5, 0].numpy()
        answers = model.predict_proba(X)
        model.explain_all(X)
        model.about()
        assert np.isfinite(answers).all()
        model.partial_fit(*examples(3))
        model.forget(model.classes_[0])
    except FsclError:
        return "refused"
    return "works"


def tensor_forgeries(tensor: torch.Tensor) -> list[torch.Tensor]:
    forged = [tensor[None], tensor.double(), tensor.to(torch.int64), tensor.to(torch.uint8), torch.zeros(0)]
    if tensor.ndim:
        forged += [tensor[:-1], torch.cat([tensor, tensor]), tensor.flatten()[:1]]
    if tensor.is_floating_point():
        forged += [tensor * torch.nan, tensor + torch.inf, tensor * 1e38 * 1e3]
    return forged


def paths(value: Any, where: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value; of a list the first place alone."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    return [where, *(path for key, each in inner for path in paths(each, (*where, key)))]


def forge_json(change: Callable[[Any], None], folder: Path) -> None:
    path = folder / read_manifest(folder).states[-1].folder / "state.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    sealed(folder, "state.json")


@pytest.mark.parametrize("method", ["prototypes", "tsc", "ridge"])
def test_tensors_of_the_wrong_shape_or_kind_are_refused_in_a_sentence(method: str, tmp_path: Path):
    classifier(method).partial_fit(*examples(0, 1, 2)).save(tmp_path / "model")
    state = tmp_path / "model" / read_manifest(tmp_path / "model").states[-1].folder
    seen = set()
    for name, kind in KINDS.items():
        tensors, _ = load_tensors(state / name, kind)
        chosen = [key for key in tensors if not key.startswith("learner/slow")][:14]
        for key in chosen:
            for number, forged in enumerate(tensor_forgeries(tensors[key])):
                if method == "tsc" and number % 4:
                    continue  # for speed
                copy = Path(shutil.copytree(tmp_path / "model", tmp_path / "copy"))
                save_tensors(copy / state.relative_to(tmp_path / "model") / name, kind, {**tensors, key: forged})
                sealed(copy, name)
                seen.add(reaction(copy))
                shutil.rmtree(copy)
    assert "refused" in seen


def test_values_of_the_wrong_kind_are_refused_in_a_sentence(tmp_path: Path):
    classifier().partial_fit(*examples(0, 1, 2)).save(tmp_path / "model")
    path = tmp_path / "model" / read_manifest(tmp_path / "model").states[-1].folder / "state.json"
    content = json.loads(path.read_text())
    for number, where in enumerate(paths(content)[1:]):
        for odd in ODD[number % 3 :: 3]:
            copy = Path(shutil.copytree(tmp_path / "model", tmp_path / "copy"))

            def change(content: Any, where: tuple[Any, ...] = where, odd: Any = odd) -> None:
                for key in where[:-1]:
                    content = content[key]
                content[where[-1]] = odd

            forge_json(change, copy)
            reaction(copy)  # raises what is no sentence
            shutil.rmtree(copy)


@pytest.mark.parametrize("label", [2**63, 2**70, -1, 3, 0.5, True, None, "0"])
def test_labels_that_are_no_numbers_of_classes_are_refused(label: Any, tmp_path: Path):
    folder = tmp_path / "model"
    classifier().partial_fit(*examples(0, 1, 2)).save(folder)
    forge_json(lambda content: content["labels"].__setitem__(0, label), folder)
    with pytest.raises(StorageError, match="its labels are not numbers of its 3 classes"):
        ContinualClassifier.load(folder)
    assert check_model(folder).problems


ROWS = torch.eye(3, dtype=torch.float64)[:2]


@pytest.mark.parametrize(
    ("of_rows", "forged"),
    [
        (True, ROWS.to(torch.complex64)),
        (True, ROWS.float()),
        (True, ROWS * float("nan")),
        (True, ROWS[:, :2]),
        (True, ROWS[None].repeat(2, 1, 1)),
        (False, torch.zeros(2, 1, 16, 16)),
        (False, torch.zeros(2, 3, 16, 16, dtype=torch.uint8)),
        (False, torch.zeros(2, 1, 8, 8, dtype=torch.uint8)),
        (False, ROWS),
    ],
)
def test_a_lesson_that_waits_and_does_not_fit_is_refused_and_can_be_dropped(
    of_rows: bool, forged: torch.Tensor, tmp_path: Path
):
    folder = tmp_path / "model"
    if of_rows:
        ContinualClassifier(method="prototypes").fit(np.eye(3), ["a", "b", "c"]).save(folder)
    else:
        classifier().partial_fit(*examples(0, 1)).save(folder)
    known = ContinualClassifier.load(folder).classes_.tolist()
    details = {"labels": ["x", "y"], "sources": ["", ""], "call": "learn", "when": "", "originals": []}
    path = folder / "journal" / f"{read_manifest(folder).next_number:06}.safetensors"
    save_tensors(path, "lesson", {"examples": forged}, details)
    with pytest.raises(StorageError, match=r"cannot be completed: it has examples of .* Drop it with `fscl undo"):
        ContinualClassifier.load(folder).recover()
    assert ContinualClassifier.load(folder).undo().classes_.tolist() == known
