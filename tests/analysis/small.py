"""Small learners that are observed, for every test of this folder."""

from typing import Any

from fscl.continual.consolidation import Consolidation
from fscl.continual.learner import ContinualLearner
from fscl.continual.registry import make_learner
from fscl.data.pool import ClassPool
from fscl.data.stream import Stream
from fscl.evaluation.observer import Observer
from fscl.evaluation.protocol import StreamResult, evaluate_stream
from fscl.nets.trained import NetworkSpec, TrainedNetwork, init_network
from fscl.rng import generator

QUICK = {"steps": 6, "learning_rate": 2e-2}


def base(norm: str = "group") -> TrainedNetwork:
    return init_network(NetworkSpec.model_validate({"norm": norm, "width": 4, "image_size": 16}), generator(0, "base"))


def learner_of(method: str, norm: str = "group", **settings: Any) -> Consolidation:
    learner = make_learner(method, base(norm), seed=0, settings={**QUICK, **settings})
    assert isinstance(learner, Consolidation)
    return learner


def watched(learner: ContinualLearner, stream: Stream, pool: ClassPool, *observers: Observer) -> StreamResult:
    """Learn a whole stream, with the observers looking on."""

    def look(n_tasks: int, learner: ContinualLearner) -> None:
        for observer in observers:
            observer.look(n_tasks, learner)

    return evaluate_stream(learner, stream, pool, on_learned=look)
