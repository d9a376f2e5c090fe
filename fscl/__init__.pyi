"""The public names of the package, each with its home: the one list that tab completion, type checkers and `import` read."""

from fscl.continual.learner import ContinualLearner as ContinualLearner
from fscl.continual.registry import Method as Method
from fscl.continual.registry import find_method as find_method
from fscl.continual.registry import make_learner as make_learner
from fscl.continual.registry import methods as methods
from fscl.data.dataset import DataSet as DataSet
from fscl.data.folder import load_folder as load_folder
from fscl.data.folder import load_split_folder as load_split_folder
from fscl.data.pairs import pool_from as pool_from
from fscl.data.pool import ClassPool as ClassPool
from fscl.data.pool import Examples as Examples
from fscl.data.pool import Splits as Splits
from fscl.data.sets.cub import load_cub as load_cub
from fscl.data.sets.glyphs import load_glyphs as load_glyphs
from fscl.data.sets.mini_imagenet import load_mini_imagenet as load_mini_imagenet
from fscl.data.sets.omniglot import load_omniglot as load_omniglot
from fscl.data.sets.tiered_imagenet import load_tiered_imagenet as load_tiered_imagenet
from fscl.data.stream import Stream as Stream
from fscl.data.stream import StreamSpec as StreamSpec
from fscl.data.stream import Task as Task
from fscl.data.stream import sample_stream as sample_stream
from fscl.errors import FsclError as FsclError
from fscl.estimator import ContinualClassifier as ContinualClassifier
from fscl.evaluation.metrics import accuracy_curve as accuracy_curve
from fscl.evaluation.metrics import backward_transfer as backward_transfer
from fscl.evaluation.metrics import final_accuracy as final_accuracy
from fscl.evaluation.metrics import forgetting as forgetting
from fscl.evaluation.probe import ProbeSpec as ProbeSpec
from fscl.evaluation.probe import make_probe as make_probe
from fscl.evaluation.protocol import evaluate_stream as evaluate_stream
from fscl.meta.shipped import load_base as load_base
from fscl.meta.shipped import shipped_bases as shipped_bases
from fscl.nets.network import Network as Network
from fscl.nets.pretrained import pretrained_base as pretrained_base
from fscl.process import configure_process as configure_process
from fscl.rng import generator as generator

__version__: str
