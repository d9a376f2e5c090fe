"""Small meta-trainings on patterns."""

from pathlib import Path

from fscl.data.pool import Splits
from fscl.meta.base import BaseLearner
from fscl.meta.protonet import ProtoNet
from fscl.meta.train import TrainedBase, TrainSpec, meta_train
from fscl.nets.trained import NetworkSpec

TINY = NetworkSpec(width=4, image_size=16)
QUICK = TrainSpec(
    steps=6, n_way=3, n_shot=2, n_query=3, validate_every=2, validation_episodes=3, validation_way=3, validation_query=3
)


def train(
    splits: Splits,
    checkpoint: Path,
    learner: BaseLearner | None = None,
    spec: TrainSpec = QUICK,
    network: NetworkSpec = TINY,
) -> TrainedBase:
    return meta_train(
        learner or ProtoNet(), network, splits.train, splits.validation, spec, seed=0, checkpoint=checkpoint
    )
