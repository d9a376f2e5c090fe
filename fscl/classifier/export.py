"""The whole classifier as one ONNX file: pixels in, probabilities out; its labels in a JSON file beside it.

The file is run with onnxruntime on the stored examples before it is kept, and must answer as the classifier does.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fscl.classifier.explain import probabilities
from fscl.classifier.inputs import Shape
from fscl.classifier.knowledge import Knowledge
from fscl.classifier.teacher import Snapshot
from fscl.continual.learner import ContinualLearner
from fscl.errors import MisuseError, StorageError
from fscl.storage import write_bytes, write_json

TOLERANCE = 1e-4  # of a probability
OPSET = 18
MAX_CHECKED = 200  # stored examples that the file is tried on


@dataclass(frozen=True)
class Exported:
    """What was written, and how far its probabilities were from the classifier's on `n_checked` pictures."""

    path: Path
    labels_path: Path
    n_checked: int
    largest_difference: float


class _Whole(nn.Module):
    """Extractor and head as one: raw uint8 pictures to probabilities in the order of `classes_`."""

    def __init__(self, snapshot: Snapshot, *, invert: bool) -> None:
        super().__init__()
        self.learner, self.invert = snapshot.learner, invert
        self.temperature = snapshot.knowledge.calibration.temperature
        self.order = torch.tensor(snapshot.order)

    def forward(self, pixels: Tensor) -> Tensor:
        scores = self.learner.scores(self.learner.features(255 - pixels if self.invert else pixels))
        return torch.softmax(scores / self.temperature, 1)[:, self.order]


def export_onnx(path: Path, snapshot: Snapshot, shape: Shape) -> Exported:
    """Write `path` and `path` with `.json`, once the file was seen to answer as the classifier does."""
    _check_can_export(path, snapshot.learner)
    knowledge = snapshot.knowledge
    content = _onnx_bytes(_Whole(snapshot, invert=shape.invert), shape)
    run = _runner(content)
    images = _to_check(knowledge, shape)
    scores = snapshot.learner.predict(images)
    expected = probabilities(scores, knowledge.calibration.temperature).numpy()[:, list(snapshot.order)]
    answers = run((255 - images if shape.invert else images).numpy())
    difference = float(np.abs(answers - expected).max())
    if not difference <= TOLERANCE:
        raise StorageError(
            f"{path} was not written: run by onnxruntime, its probabilities differ by {difference:.1e} from the "
            f"classifier's, and {TOLERANCE:g} is allowed."
        )
    write_bytes(path, content)
    beside = path.with_suffix(".json")
    about = {
        "labels": snapshot.labels,
        "input": {
            "name": "pixels",
            "type": "uint8",
            "shape": ["n", shape.channels, shape.image_size, shape.image_size],
        },
        "output": {"name": "probabilities", "type": "float32", "shape": ["n", len(snapshot.order)]},
        "threshold": knowledge.calibration.threshold,
    }
    write_json(beside, "exported-labels", about)
    return Exported(path, beside, len(images), difference)


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


def _onnx_bytes(whole: nn.Module, shape: Shape) -> bytes:
    """The graph and its weights, for any number of pictures at once."""
    example = torch.zeros(2, shape.channels, shape.image_size, shape.image_size, dtype=torch.uint8)
    with _quiet(), torch.no_grad():
        try:
            program = torch.onnx.export(
                whole.eval(),
                (example,),
                input_names=["pixels"],
                output_names=["probabilities"],
                dynamic_shapes={"pixels": {0: torch.export.Dim("n", min=1)}},
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


def _runner(content: bytes) -> Callable[[NDArray[np.uint8]], NDArray[np.float32]]:
    import onnxruntime

    def run(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        try:
            session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
            (answers,) = session.run(None, {"pixels": pixels})
        except Exception as error:  # onnxruntime has a class of its own for every fault
            reason = " ".join(str(error).split())
            raise StorageError(
                f"the exported file was not kept: onnxruntime cannot run it on {len(pixels)} pictures ({reason}). A method "
                "of your own should use features.shape[0], not len(features), and tensor operations alone."
            ) from error
        return np.asarray(answers, dtype=np.float32)

    return run


def _to_check(knowledge: Knowledge, shape: Shape) -> Tensor:
    """Stored examples, or noise where none is stored."""
    if knowledge.examples is not None:
        return knowledge.examples.images[:MAX_CHECKED]
    random = torch.Generator().manual_seed(0)
    size = (8, shape.channels, shape.image_size, shape.image_size)
    return torch.randint(0, 256, size, generator=random, dtype=torch.uint8)
