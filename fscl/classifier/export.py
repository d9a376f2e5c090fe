"""The whole classifier as one ONNX file: pixels in, probabilities and an unknown score out.

A JSON file beside it holds, as data, every step from a picture file to the input tensor, the labels, and the threshold of
the unknown score; `examples/run_exported.py` needs nothing else. The ONNX file is run with onnxruntime on the stored
examples before it is kept, and must answer as the classifier does.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fscl.classifier.explain import probabilities
from fscl.classifier.export_graph import leaner
from fscl.classifier.inputs import Shape
from fscl.classifier.knowledge import Knowledge
from fscl.classifier.teacher import Snapshot
from fscl.classifier.unknown import unknown_score
from fscl.continual.learner import ContinualLearner
from fscl.errors import MisuseError, StorageError
from fscl.storage import write_bytes, write_json

TOLERANCE = 1e-4  # of a probability; of an unknown score, as a share of the largest
OPSET = 18
MAX_CHECKED = 200  # stored examples that the file is tried on
N_NOISE = 8  # pictures of noise that it is tried on besides: far from every class, where stored examples are not
PROBABILITIES, UNKNOWN_SCORE = "probabilities", "unknown_score"  # the outputs

UnknownScorer = Callable[[Tensor, Tensor], Tensor]
Answers = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Exported:
    """What was written, and how far its answers were from the classifier's on `n_checked` pictures.

    Attributes:
        path: the ONNX file.
        labels_path: the JSON file beside it.
        n_checked: pictures that both were asked about.
        largest_difference: of a probability.
        largest_score_difference: of an unknown score, as a share of the largest; None where the file has none.
    """

    path: Path
    labels_path: Path
    n_checked: int
    largest_difference: float
    largest_score_difference: float | None


class _Whole(nn.Module):
    """Extractor and head as one: raw uint8 pictures to probabilities in the order of `classes_`, and unknown scores."""

    def __init__(self, snapshot: Snapshot, *, invert: bool) -> None:
        super().__init__()
        self.learner, self.invert = snapshot.learner, invert
        self.temperature = snapshot.knowledge.calibration.temperature
        self.order = None if list(snapshot.order) == sorted(snapshot.order) else torch.tensor(snapshot.order)
        self.unknown_scores = unknown_scorer(snapshot)

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        features = self.learner.features(255 - pixels if self.invert else pixels)
        scores = self.learner.scores(features)
        chances = torch.softmax(scores / self.temperature, 1)
        if self.order is not None:
            chances = chances.index_select(1, self.order)
        return (chances,) if self.unknown_scores is None else (chances, self.unknown_scores(features, scores))


def unknown_scorer(snapshot: Snapshot) -> UnknownScorer | None:
    """Maps features (n, n_features) and head scores (n, n_classes) to unknown scores (n,), by tensor operations alone.

    None where the features that answer are not those that the threshold is of, or nothing is stored to compare with.
    """
    knowledge = snapshot.knowledge
    elsewhere = knowledge.calibration.unknown_in_base and snapshot.learner.moves_embedding
    return None if elsewhere or not knowledge.tells_unknown else partial(unknown_score, knowledge.unknown)


def export_onnx(path: Path, snapshot: Snapshot, shape: Shape) -> Exported:
    """Write `path` and `path` with `.json`, once the file was seen to answer as the classifier does."""
    _check_can_export(path, snapshot.learner)
    images = _to_check(snapshot.knowledge, shape)
    expected = _expected(snapshot, images)
    given = (255 - images if shape.invert else images).numpy()
    whole = _Whole(snapshot, invert=shape.invert)
    written = onnx_bytes(whole, images[:2], input_name="pixels", outputs=list(expected))
    content = leaner(written, single=True)
    differences = _differences(_run(content, given), expected)
    if not max(differences.values()) <= TOLERANCE:  # a head that does need its double precision
        content = leaner(written, single=False)
        differences = _differences(_run(content, given), expected)
    for name, difference in differences.items():
        if not difference <= TOLERANCE:
            raise StorageError(
                f"{path} was not written: run by onnxruntime, its {name.replace('_', ' ')} differs by {difference:.1e} from "
                f"the classifier's, and {TOLERANCE:g} is allowed."
            )
    write_bytes(path, content)
    beside = path.with_suffix(".json")
    write_json(beside, "exported-classifier", _about(path, snapshot, shape, list(expected)))
    return Exported(path, beside, len(images), differences[PROBABILITIES], differences.get(UNKNOWN_SCORE))


def steps_to_input(shape: Shape) -> list[dict[str, Any]]:
    """What makes one input of a picture file, in order and as data; the same as `fscl.data.images` does.

    `examples/run_exported.py` carries them out, and docs/how-to/export.md says what each is.
    """
    side = shape.image_size
    return [
        {"step": "open_first_frame"},
        {"step": "turn_as_exif_says"},
        {"step": "scale_deep_grey", "largest": 65535},
        {"step": "flatten_transparency", "background": "white"},
        {"step": "convert", "mode": "L" if shape.channels == 1 else "RGB"},
        {"step": "resize", "size": [side, side], "filter": "LANCZOS"},
        {"step": "uint8_channels_first"},
    ]


def _about(path: Path, snapshot: Snapshot, shape: Shape, outputs: list[str]) -> dict[str, Any]:
    """What the JSON file says."""
    calibration = snapshot.knowledge.calibration
    shapes: dict[str, list[str | int]] = {PROBABILITIES: ["n", len(snapshot.order)], UNKNOWN_SCORE: ["n"]}
    exchange = [{"step": "exchange_light_and_dark"}] if shape.invert else []
    softmax = {"step": "softmax", "temperature": calibration.temperature}
    return {
        "model": path.name,
        "steps": steps_to_input(shape),
        "input": {
            "name": "pixels",
            "type": "uint8",
            "shape": ["n", shape.channels, shape.image_size, shape.image_size],
        },
        "inside_the_graph": [*exchange, {"step": "scale_and_normalise"}, {"step": "network_and_head"}, softmax],
        "outputs": [{"name": name, "type": "float32", "shape": shapes[name]} for name in outputs],
        "labels": snapshot.labels,
        "unknown": {"output": UNKNOWN_SCORE, "above": calibration.threshold} if UNKNOWN_SCORE in outputs else None,
    }


def _check_can_export(path: Path, learner: ContinualLearner) -> None:
    if path.suffix != ".onnx":
        raise MisuseError(f"an export is named for its format, such as model.onnx, but {path.name!r} is not.")
    if learner.network.picture_shape is None:
        raise MisuseError("a classifier of rows of numbers has no extractor to export; export one of pictures.")
    if (obstacle := learner.export_obstacle()) is not None:
        raise MisuseError(obstacle)
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise MisuseError(f"export needs {missing[0]}, which is not installed: python -m pip install 'fscl[export]'.")


def onnx_bytes(module: nn.Module, example: Tensor, *, input_name: str, outputs: list[str]) -> bytes:
    """A module's graph and weights, for any number of pictures at once.

    Args:
        module: what is written; its eval mode is.
        example: two inputs.
        input_name: of the graph; the module's own name of it does not matter.
        outputs: names of the outputs in their order.
    """
    with _quiet(), torch.no_grad():
        try:
            program = torch.onnx.export(
                module.eval(),
                (example,),
                input_names=[input_name],
                output_names=outputs,
                dynamic_shapes=({0: torch.export.Dim("n", min=1)},),
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
        except (
            Exception
        ) as error:  # a base of somebody else's may do what no graph can say, and torch has many ways to tell
            raise StorageError(
                f"torch cannot write this base and method as ONNX ({type(error).__name__}). Export the extractor with the "
                "tools of its makers, or use a base and a method of fscl."
            ) from error
    if program is None:
        raise StorageError("torch wrote no ONNX program.")
    return bytes(program.model_proto.SerializeToString())


@contextmanager
def _quiet() -> Iterator[None]:
    """torch's exporter prints its steps, and warns of what does not concern the caller."""
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("torch.onnx").setLevel(level)


def _run(content: bytes, pixels: NDArray[np.uint8]) -> Answers:
    """What onnxruntime answers, by the names of the outputs."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        answers = session.run(None, {"pixels": pixels})
    except Exception as error:  # onnxruntime has a class of its own for every fault
        reason = " ".join(str(error).split())
        raise StorageError(
            f"the exported file was not kept: onnxruntime cannot run it on {len(pixels)} pictures ({reason}). A method "
            "of your own should use features.shape[0], not len(features), and tensor operations alone."
        ) from error
    return {output.name: answer for output, answer in zip(session.get_outputs(), answers, strict=True)}


def _expected(snapshot: Snapshot, images: Tensor) -> Answers:
    """What the classifier answers, in the order of the outputs."""
    features = snapshot.learner.features(images)
    scores = snapshot.learner.scores(features)
    chances = probabilities(scores, snapshot.knowledge.calibration.temperature)[:, list(snapshot.order)]
    answers = {PROBABILITIES: chances.float().numpy()}
    if (scorer := unknown_scorer(snapshot)) is not None:
        answers[UNKNOWN_SCORE] = scorer(features, scores).float().numpy()
    return answers


def _differences(answers: Answers, expected: Answers) -> dict[str, float]:
    """The largest of each output, as a share of its largest value; a probability's is 1."""
    scales = {name: 1.0 if name == PROBABILITIES else float(np.abs(values).max()) for name, values in expected.items()}
    return {name: float(np.abs(answers[name] - expected[name]).max()) / (scales[name] or 1.0) for name in expected}


def _to_check(knowledge: Knowledge, shape: Shape) -> Tensor:
    """Stored examples, and noise."""
    random = torch.Generator().manual_seed(0)
    size = (N_NOISE, shape.channels, shape.image_size, shape.image_size)
    noise = torch.randint(0, 256, size, generator=random, dtype=torch.uint8)
    return noise if knowledge.examples is None else torch.cat([knowledge.examples.images[:MAX_CHECKED], noise])
