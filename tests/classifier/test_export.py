"""The classifier as one ONNX file: every method answers there as it does here."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fscl import ContinualClassifier
from fscl.classifier.export import onnx_bytes
from fscl.errors import MisuseError
from fscl.nets.network import Network
from fscl.nets.pretrained import pretrained_base
from fscl.testing import POOL, noise_pool
from tests.classifier.models import BASE, classifier, examples
from tests.continual.quick import quick

onnx = pytest.importorskip("onnx", reason="needs fscl[export]")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs fscl[export]")
STILL = ["prototypes", "neighbour", "discriminant", "gaussian", "projection"]  # their embedding stands still
KINDS = [
    "tsc",
    "head",
    "tsc_gr",
    "prototypes",
    "neighbour",
    "discriminant",
    "gaussian",
    "projection",
    "ridge",
    "logistic",
    "lda",
    "plda",
]


def run(path: Path, X: np.ndarray, output: str = "probabilities") -> np.ndarray:
    (answers,) = onnxruntime.InferenceSession(path).run([output], {"pixels": X[:, None]})
    return answers


def has_doubles(path: Path) -> bool:
    """Whether anything in the graph is in double precision."""
    graph = onnx.load(path).graph
    casts = [attribute.i for node in graph.node if node.op_type == "Cast" for attribute in node.attribute]
    return onnx.TensorProto.DOUBLE in {*casts, *(tensor.data_type for tensor in graph.initializer)}


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
    if method != "neighbour":  # a stored picture is as far from itself as rounding says, and the unknown score shows it
        assert not has_doubles(tmp_path / "model.onnx")


@pytest.mark.parametrize("method", STILL)
def test_the_unknown_score_and_its_threshold_tell_the_same_pictures_as_the_classifier(method: str, tmp_path: Path):
    model = classifier(method).fit(*examples(2, 0, 1, n=6))
    exported = model.export(tmp_path / "model.onnx")
    assert exported.largest_score_difference is not None
    assert exported.largest_score_difference < 1e-4
    X = POOL.images[:, 0].numpy()  # most of them of classes that were never taught
    answers = model.explain_all(X)
    for batch in (slice(0, 240), slice(0, 1)):
        scores = [answer.unknown_score for answer in answers[batch]]
        np.testing.assert_allclose(
            run(tmp_path / "model.onnx", X[batch], "unknown_score"), scores, rtol=1e-3, atol=1e-3
        )
    about = json.loads((tmp_path / "model.json").read_text())
    assert about["unknown"]["output"] == "unknown_score"
    unknown = run(tmp_path / "model.onnx", X, "unknown_score") > about["unknown"]["above"]
    assert unknown.tolist() == [answer.unknown for answer in answers]
    assert set(unknown.tolist()) == {True, False}


def test_an_unknown_score_without_a_threshold_is_exported_where_every_class_has_one_example(tmp_path: Path):
    exported = classifier().fit(*examples(0, 1, n=1)).export(tmp_path / "model.onnx")
    assert exported.largest_score_difference is not None
    assert json.loads((tmp_path / "model.json").read_text())["unknown"] == {"output": "unknown_score", "above": None}


@pytest.mark.parametrize(("method", "settings"), [("tsc", {}), ("prototypes", {"memory_bytes": 0})])
def test_no_unknown_score_is_exported_where_the_answering_features_have_none(
    method: str, settings: dict[str, int], tmp_path: Path
):
    exported = classifier(method, **settings).fit(*examples(0, 1)).export(tmp_path / "model.onnx")
    assert exported.largest_score_difference is None
    about = json.loads((tmp_path / "model.json").read_text())
    assert about["unknown"] is None
    assert [output["name"] for output in about["outputs"]] == ["probabilities"]


@pytest.mark.parametrize("invert", [False, True])
def test_the_json_says_what_the_graph_takes_and_gives(invert: bool, tmp_path: Path):
    classifier(invert=invert).fit(*examples(2, 0, 1)).export(tmp_path / "model.onnx")
    about = json.loads((tmp_path / "model.json").read_text())
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")

    def said(each: dict[str, object]) -> tuple[object, ...]:
        return each["name"], f"tensor({each['type']})".replace("float32", "float"), each["shape"]

    assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == [said(about["input"])]
    assert [(o.name, o.type, o.shape) for o in session.get_outputs()] == [said(each) for each in about["outputs"]]
    assert ({"step": "exchange_light_and_dark"} in about["inside_the_graph"]) is invert
    assert about["model"] == "model.onnx"


def test_a_head_that_needs_double_precision_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from fscl.continual.methods.discriminant import Discriminant

    def far(self: Discriminant, features: torch.Tensor) -> torch.Tensor:  # float32 loses all digits
        return ((features.double() @ self.weights.T + 1e8) - 1e8).to(features.dtype)

    monkeypatch.setattr(Discriminant, "scores", far)
    model = classifier("discriminant").fit(*examples(0, 1, 2))
    assert model.export(tmp_path / "model.onnx").largest_difference < 1e-4
    assert has_doubles(tmp_path / "model.onnx")


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


class _Halves(nn.Module):
    """A network in its two parts, as a method that moves the tail has it."""

    def __init__(self, network: Network, depth: int) -> None:
        super().__init__()
        self.trunk, self.tail = network.split(depth)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.tail.embed(self.trunk.activations(pixels))


def test_trunk_and_tail_are_written_as_one_graph_for_any_number_of_pictures():
    content = onnx_bytes(_Halves(BASE, 2), POOL.images[:2], input_name="pixels", outputs=["features"])
    session = onnxruntime.InferenceSession(content)
    for n in (1, 700):  # more than the library embeds at once
        pixels = POOL.images[:1].repeat(n, 1, 1, 1)
        (features,) = session.run(None, {"pixels": pixels.numpy()})
        np.testing.assert_allclose(features, BASE.embed(pixels).numpy(), atol=1e-4)


@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("invert", [False, True])
def test_pixels_are_scaled_inside_the_first_layer(padding: int, invert: bool, tmp_path: Path):
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 4, 5, padding=padding), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    base = pretrained_base(nn.Sequential(*layers), image_size=16, mean=(0.5, 0.4, 0.3), std=(0.25, 0.2, 0.3))
    X = noise_pool(3, 6, channels=3).images.numpy()
    model = ContinualClassifier(base, "prototypes", invert=invert).fit(X, np.repeat(["ant", "bee", "cat"], 6))
    model.export(tmp_path / "model.onnx")
    graph = onnx.load(tmp_path / "model.onnx").graph
    names = [node.op_type for node in graph.node]
    assert names[: names.index("Conv")] == [*(["Sub"] if invert else []), "Cast", "Add"]
    (shift,) = [onnx.numpy_helper.to_array(each) for each in graph.initializer if each.name == "pixel_shift"]
    np.testing.assert_allclose(shift.ravel(), [-255 * 0.5, -255 * 0.4, -255 * 0.3], rtol=1e-6)
    (chances,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(["probabilities"], {"pixels": X})
    np.testing.assert_allclose(chances, model.predict_proba(X), atol=1e-5)


def test_distances_to_many_classes_take_no_room_for_every_pair(tmp_path: Path):
    X, y = examples(*range(12))
    model = classifier().fit(X, y)
    model.export(tmp_path / "model.onnx")
    inferred = onnx.shape_inference.infer_shapes(onnx.load(tmp_path / "model.onnx")).graph
    shapes = [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in inferred.value_info]
    assert [0, 12] in shapes  # (n, classes), of which n is open
    assert not [shape for shape in shapes if len(shape) == 3 and 12 in shape]
    np.testing.assert_allclose(run(tmp_path / "model.onnx", X), model.predict_proba(X), atol=1e-4)


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
