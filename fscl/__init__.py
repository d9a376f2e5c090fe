"""Few-shot continual learning: new classes for ever, from a few examples each, without forgetting the old ones.

The names below are all that most scripts need. They are imported when first used, so that `import fscl` is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fscl.continual.methods import METHODS, make_learner
    from fscl.data.dataset import DataSet
    from fscl.data.folder import load_folder, load_split_folder
    from fscl.data.pool import ClassPool, Examples, Splits
    from fscl.data.sets.cub import load_cub
    from fscl.data.sets.glyphs import load_glyphs
    from fscl.data.sets.mini_imagenet import load_mini_imagenet
    from fscl.data.sets.omniglot import load_omniglot
    from fscl.data.sets.tiered_imagenet import load_tiered_imagenet
    from fscl.data.stream import Stream, StreamSpec, Task, sample_stream
    from fscl.estimator import ContinualClassifier
    from fscl.evaluation.metrics import accuracy_curve, backward_transfer, final_accuracy, forgetting
    from fscl.evaluation.probe import ProbeSpec, make_probe
    from fscl.evaluation.protocol import evaluate_stream
    from fscl.meta.shipped import load_base, shipped_bases
    from fscl.nets.pretrained import pretrained_base
    from fscl.process import configure_process
    from fscl.rng import generator

__version__ = "0.1.0"

_HOME = {
    "METHODS": "continual.methods",
    "make_learner": "continual.methods",
    "load_cub": "data.sets.cub",
    "load_folder": "data.folder",
    "load_split_folder": "data.folder",
    "load_glyphs": "data.sets.glyphs",
    "load_mini_imagenet": "data.sets.mini_imagenet",
    "load_omniglot": "data.sets.omniglot",
    "load_tiered_imagenet": "data.sets.tiered_imagenet",
    "ClassPool": "data.pool",
    "DataSet": "data.dataset",
    "Examples": "data.pool",
    "Splits": "data.pool",
    "Stream": "data.stream",
    "StreamSpec": "data.stream",
    "Task": "data.stream",
    "sample_stream": "data.stream",
    "ContinualClassifier": "estimator",
    "accuracy_curve": "evaluation.metrics",
    "backward_transfer": "evaluation.metrics",
    "final_accuracy": "evaluation.metrics",
    "forgetting": "evaluation.metrics",
    "ProbeSpec": "evaluation.probe",
    "make_probe": "evaluation.probe",
    "evaluate_stream": "evaluation.protocol",
    "load_base": "meta.shipped",
    "shipped_bases": "meta.shipped",
    "pretrained_base": "nets.pretrained",
    "configure_process": "process",
    "generator": "rng",
}

__all__ = [
    "METHODS",
    "ClassPool",
    "ContinualClassifier",
    "DataSet",
    "Examples",
    "ProbeSpec",
    "Splits",
    "Stream",
    "StreamSpec",
    "Task",
    "__version__",
    "accuracy_curve",
    "backward_transfer",
    "configure_process",
    "evaluate_stream",
    "final_accuracy",
    "forgetting",
    "generator",
    "load_base",
    "load_cub",
    "load_folder",
    "load_glyphs",
    "load_mini_imagenet",
    "load_omniglot",
    "load_split_folder",
    "load_tiered_imagenet",
    "make_learner",
    "make_probe",
    "pretrained_base",
    "sample_stream",
    "shipped_bases",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fscl' has no attribute {name!r}")
    return getattr(import_module(f"fscl.{_HOME[name]}"), name)
