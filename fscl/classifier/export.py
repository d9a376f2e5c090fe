"""The whole classifier as one ONNX file: pixels in, probabilities out; its labels in a JSON file beside it.

The file is run with onnxruntime on the stored examples before it is kept, and must answer as the classifier does.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fscl.classifier.explaining import probabilities
from fscl.classifier.judging import features_of, scores_of
from fscl.classifier.knowledge import Knowledge
from fscl.classifier.labels import Label
from fscl.classifier.pictures import Shape
from fscl.continual.consolidation import Consolidation
from fscl.continual.frozen import FrozenFeatures
from fscl.continual.learner import ContinualLearner
from fscl.continual.methods.gaussian import GaussianHead, log_density, predictive
from fscl.continual.methods.neighbour import NearestNeighbour
from fscl.continual.methods.prototypes import Prototypes
from fscl.errors import MisuseError, StorageError
from fscl.nets.network import Network
from fscl.nets.params import linear
from fscl.nets.pretrained import PretrainedNetwork
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

    def __init__(self, learner: ContinualLearner, temperature: float, order: Sequence[int], *, invert: bool) -> None:
        super().__init__()
        self.learner, self.temperature, self.invert = learner, temperature, invert
        self.scores = _scorer(learner)
        self.order = torch.tensor(order)
        network = _network_of(learner)
        if isinstance(network, PretrainedNetwork):
            self.module = network.module  # torch exports the weights of modules that it is told of

    def forward(self, pixels: Tensor) -> Tensor:
        seen = 255 - pixels if self.invert else pixels
        scores = self.scores(_features(self.learner, seen))
        return torch.softmax(scores / self.temperature, 1)[:, self.order]


def export_onnx(
    path: Path, learner: ContinualLearner, knowledge: Knowledge, order: Sequence[int], shape: Shape
) -> Exported:
    """Write `path` and `path` with `.json`, once the file was seen to answer as the classifier does."""
    _check_can_export(path, learner)
    content = _onnx_bytes(_Whole(learner, knowledge.judgement.temperature, order, invert=shape.invert), shape)
    run = _runner(content)
    images = _to_check(knowledge, shape)
    scores = scores_of(learner, features_of(learner, images))
    expected = probabilities(scores, knowledge.judgement.temperature).numpy()[:, list(order)]
    found = run((255 - images if shape.invert else images).numpy())
    difference = float(np.abs(found - expected).max())
    if not difference <= TOLERANCE:
        raise StorageError(
            f"{path} was not written: run by onnxruntime, its probabilities differ by {difference:.1e} from the "
            f"classifier's, and {TOLERANCE:g} is allowed."
        )
    labels: list[Label] = [knowledge.classes[i] for i in order]
    write_bytes(path, content)
    beside = path.with_suffix(".json")
    about = {
        "labels": labels,
        "input": {
            "name": "pixels",
            "type": "uint8",
            "shape": ["n", shape.channels, shape.image_size, shape.image_size],
        },
        "output": {"name": "probabilities", "type": "float32", "shape": ["n", len(labels)]},
        "threshold": knowledge.judgement.threshold,
    }
    write_json(beside, "exported-labels", about)
    return Exported(path, beside, len(images), difference)


def _check_can_export(path: Path, learner: ContinualLearner) -> None:
    if path.suffix != ".onnx":
        raise MisuseError(f"an export is named for its format, such as model.onnx, but {path.name!r} is not.")
    if isinstance(learner, Consolidation) and learner.settings.views != 1:
        raise MisuseError(
            f"a classifier that looks at {learner.settings.views} views of a picture cannot be one ONNX file; teach it with "
            'settings={"views": 1}.'
        )
    if isinstance(learner, Consolidation) and learner.settings.mirror:
        raise MisuseError(
            "a classifier that looks at a picture both ways cannot be one ONNX file; teach it without the setting mirror."
        )
    if (network := _network_of(learner)) is not None and network.picture_shape is None:
        raise MisuseError("a classifier of rows of numbers has no extractor to export; export one of pictures.")
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise MisuseError(f"export needs {missing[0]}, which is not installed: python -m pip install 'fscl[export]'.")


def _network_of(learner: ContinualLearner) -> Network | None:
    return learner.network if isinstance(learner, Consolidation | FrozenFeatures) else None


def _features(learner: ContinualLearner, pixels: Tensor) -> Tensor:
    """As `features_of`, but all at once: a graph has no loop over batches."""
    if isinstance(learner, Consolidation):
        statistics = learner.network.statistics if learner.statistics is None else learner.statistics
        return learner.network.features(learner.network.to_input(pixels), learner.fast, statistics=statistics)
    if isinstance(learner, FrozenFeatures):
        network = learner.network
        return network.features(network.to_input(pixels), statistics=network.statistics)
    raise MisuseError(f"a {type(learner).__name__} cannot be exported.")


def _scorer(learner: ContinualLearner) -> Callable[[Tensor], Tensor]:
    """As `scores_of`, with distances written out, and all that does not depend on the picture computed beforehand."""
    if isinstance(learner, Consolidation):
        return partial(linear, learner.fast_head)
    if isinstance(learner, Prototypes):
        means = learner.sums / learner.counts[:, None]
        return lambda features: -_distances(features, means)
    if isinstance(learner, NearestNeighbour):
        stored, rows = learner.features, [(learner.labels == i).nonzero()[:, 0] for i in range(learner.n_classes)]
        return lambda features: -torch.stack([_distances(features, stored)[:, row].amin(1) for row in rows], 1)
    if isinstance(learner, GaussianHead):
        expected, variances = predictive(learner.squares, learner.sums, learner.counts)
        return lambda features: log_density(features.double(), expected, variances).float()
    if isinstance(learner, FrozenFeatures):
        return learner.score_features
    raise MisuseError(f"a {type(learner).__name__} cannot be exported.")


def _distances(features: Tensor, points: Tensor) -> Tensor:
    return (features[:, None] - points[None]).square().sum(2).sqrt()


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
                f"torch cannot write this base as ONNX ({type(error).__name__}). Export its extractor with the tools of its "
                "makers, or use a base that fscl trained."
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

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def run(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        (found,) = session.run(None, {"pixels": pixels})
        return np.asarray(found, dtype=np.float32)

    return run


def _to_check(knowledge: Knowledge, shape: Shape) -> Tensor:
    """Stored examples, or noise where none is stored."""
    if knowledge.shots is not None:
        return knowledge.shots.images[:MAX_CHECKED]
    random = torch.Generator().manual_seed(0)
    size = (8, shape.channels, shape.image_size, shape.image_size)
    return torch.randint(0, 256, size, generator=random, dtype=torch.uint8)
