"""The rivals on frozen features, and small things for them to learn."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fscl.continual.frozen import FrozenFeatures
from fscl.continual.methods.discriminant import Discriminant
from fscl.continual.methods.gaussian import GaussianHead
from fscl.continual.methods.heads import FrozenHead
from fscl.continual.methods.neighbour import NearestNeighbour
from fscl.continual.methods.projection import RandomProjection
from fscl.continual.methods.prototypes import Prototypes
from fscl.data.stream import StreamSpec, sample_stream
from fscl.nets.network import Network
from fscl.nets.trained import NetworkSpec, init_network
from fscl.rng import generator
from fscl.testing import noise_pool

POOL = noise_pool()
STREAM = sample_stream(POOL, StreamSpec(n_tasks=3, n_way=3, n_shot=3, n_query=5), generator(0, "stream"))
TASKS = [STREAM.task(POOL, number) for number in range(3)]
N_FEATURES = 8


def base(norm: str = "group", *, double: bool = False) -> Network:
    spec = NetworkSpec.model_validate({"norm": norm, "width": N_FEATURES, "image_size": 16})
    network = init_network(spec, generator(0, "base"))
    if double:
        return replace(network, params={name: tensor.double() for name, tensor in network.params.items()})
    return replace(network, statistics=network.freeze_statistics(network.to_input(POOL.images[:60])))


def rival(learner: type[FrozenFeatures], **settings: object) -> Callable[[Network], FrozenFeatures]:
    """What makes a learner with these settings on a network."""
    return lambda network: learner(network, learner.Settings.model_validate(settings), seed=0)


projection = rival(RandomProjection, n_projected=50)
discriminant, gaussian = rival(Discriminant), rival(GaussianHead)
neighbour, prototypes = rival(NearestNeighbour), rival(Prototypes)
KINDS_OF_HEAD = ("means", "ridge", "logistic", "discriminant", "plda")
RIVALS: dict[str, Callable[[Network], FrozenFeatures]] = {
    "prototypes": prototypes,
    "neighbour": neighbour,
    "discriminant": discriminant,
    "projection": projection,
    "gaussian": gaussian,
    **{f"{kind} head": rival(FrozenHead, head=kind) for kind in KINDS_OF_HEAD},
}
each_rival = pytest.mark.parametrize("make", RIVALS.values(), ids=RIVALS)


def toy_features(n_classes: int = 6, n_shot: int = 5, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Shots of classes in an order of no meaning."""
    random = generator(seed, "toy")
    labels = torch.arange(n_classes).repeat_interleave(n_shot)
    order = torch.randperm(len(labels), generator=random)
    centres = 2 * torch.randn(n_classes, N_FEATURES, generator=random)
    features = centres[labels] + torch.randn(len(labels), N_FEATURES, generator=random)
    return features[order], labels[order]


def in_three_tasks(learner: FrozenFeatures, features: Tensor, labels: Tensor) -> FrozenFeatures:
    """Classes 0 to 3 without some shots, then the others, then new shots of both kinds."""
    late = torch.arange(len(labels)) % 4 == 0
    for part in ((labels < 4) & ~late, (labels >= 4) & ~late, late):
        learner.learn_features(features[part], labels[part])
    return learner


def at_once(learner: FrozenFeatures, features: Tensor, labels: Tensor) -> FrozenFeatures:
    learner.learn_features(features, labels)
    return learner


def taught(make: Callable[[Network], FrozenFeatures], network: Network, n_tasks: int = 3) -> FrozenFeatures:
    learner = make(network)
    for task in TASKS[:n_tasks]:
        learner.learn_task(task.support)
    return learner
