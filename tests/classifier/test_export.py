"""The classifier as one ONNX file: every method answers there as it does here."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fscl import ContinualClassifier
from fscl.errors import MisuseError
from fscl.nets.pretrained import pretrained_base
from fscl.testing import POOL, noise_pool
from tests.classifier.models import BASE, classifier, examples
from tests.continual.quick import quick

onnxruntime = pytest.importorskip("onnxruntime", reason="needs fscl[export]")
KINDS = ["tsc", "head", "tsc_gr", "prototypes", "neighbour", "discriminant", "gaussian", "projection"]


def run(path: Path, X: np.ndarray) -> np.ndarray:
    (chances,) = onnxruntime.InferenceSession(path).run(None, {"pixels": X[:, None]})
    return chances


@pytest.mark.parametrize("method", KINDS)
def test_an_exported_file_answers_as_the_classifier_for_any_number_of_pictures(method: str, tmp_path: Path):
    model = classifier(method, settings=quick(method, steps=3), invert=True).fit(*examples(2, 0, 1))
    exported = model.export(tmp_path / "model.onnx")
    assert exported.n_checked > 0
    assert exported.largest_difference < 1e-4
    X = 255 - POOL.images[:50, 0].numpy()
    for batch in (X, X[:1]):
        np.testing.assert_allclose(run(tmp_path / "model.onnx", batch), model.predict_proba(batch), atol=1e-4)
    assert json.loads((tmp_path / "model.json").read_text())["labels"] == ["class-0", "class-1", "class-2"]


def test_a_base_with_batch_norm_is_exported_with_the_statistics_that_it_answers_with(tmp_path: Path):
    from fscl.testing import small_base

    model = ContinualClassifier(small_base("batch"), "tsc", settings={"embedding_steps": 2}).fit(*examples(0, 1))
    assert model.export(tmp_path / "model.onnx").largest_difference < 1e-4


def test_a_pretrained_module_serves_as_base_and_is_exported_with_the_head(tmp_path: Path):
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    base = pretrained_base(nn.Sequential(*layers), image_size=16, mean=0.5, std=0.25)
    pool = noise_pool(3, 6, channels=3)
    y = np.repeat(["ant", "bee", "cat"], 6)
    for method in ("tsc", "prototypes"):
        model = ContinualClassifier(base, method=method).fit(pool.images.numpy(), y)
        exported = model.export(tmp_path / f"{method}.onnx")
        assert exported.largest_difference < 1e-4
    with pytest.raises(MisuseError, match="a base of your own module cannot be saved"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("setting", "reason"), [({"mirror": True}, "both ways cannot be one ONNX"), ({"views": 2}, "2 views of a picture")]
)
def test_a_classifier_that_looks_at_a_picture_more_than_once_is_not_exported(
    setting: dict[str, object], reason: str, tmp_path: Path
):
    model = ContinualClassifier(BASE, settings={"embedding_steps": 1, **setting}).fit(*examples(0, 1))
    with pytest.raises(MisuseError, match=reason):
        model.export(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
