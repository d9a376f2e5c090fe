"""The meta-training loop redone by hand: which episodes, bent how, at which rate, and what validation asks."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fscl.data.augment import Variation
from fscl.data.episode import Episode, jittered_episode, sample_episode, sample_positions, varied_episode
from fscl.data.pool import ClassPool, Splits, split_classes
from fscl.meta import train as training
from fscl.meta.protonet import ProtoNet
from fscl.meta.train import TrainSpec, episode_accuracy, meta_train
from fscl.nets.params import Params, trainable_copy
from fscl.nets.trained import NetworkSpec
from fscl.rng import generator
from fscl.storage import load_tensors
from fscl.testing import noise_pool

SHAPE = NetworkSpec(width=4, image_size=16)
PLAN = TrainSpec(
    steps=2, meta_batch=2, n_way=3, n_shot=2, n_query=3, jitter=0.5, flip=True, crop=0.3, weight_decay=0.1,
    learning_rate=0.01, schedule="cosine", validate_every=2, validation_episodes=3, validation_way=4,
    validation_shot=1, validation_query=5,
)  # fmt: skip


@pytest.fixture(scope="module")
def splits() -> Splits:
    return split_classes(noise_pool(), train=range(10), validation=range(10, 15), test=range(15, 20))


def test_two_steps_are_adamw_on_the_mean_gradient_of_bent_and_varied_episodes(splits: Splits, tmp_path: Path):
    parts_done: list[float] = []

    class Watched(ProtoNet):
        def loss(self, spec: NetworkSpec, meta: Params, episode: Episode, done: float = 0.0) -> Tensor:
            parts_done.append(done)
            return super().loss(spec, meta, episode, done)

    meta_train(Watched(), SHAPE, splits.train, splits.validation, PLAN, seed=7, checkpoint=tmp_path / "c")
    assert parts_done == [0.0, 0.0, 0.5, 0.5]

    learner = ProtoNet()
    meta = trainable_copy(learner.init(SHAPE, n_way=3, n_classes=10, generator=generator(7, "meta", "init")))
    optimiser = torch.optim.AdamW(meta.values(), weight_decay=0.1)
    for step in range(2):
        losses = []
        for number in range(2):
            random = generator(7, "meta", "episode", step, number)
            episode = sample_episode(splits.train, n_way=3, n_shot=2, n_query=3, generator=random)
            bent = jittered_episode(episode, 0.5, random)
            losses.append(learner.loss(SHAPE, meta, varied_episode(bent, Variation(flip=True, crop=0.3), random)))
        optimiser.zero_grad()
        torch.stack(losses).mean().backward()
        optimiser.param_groups[0]["lr"] = 0.01 * 0.5 * (1 + math.cos(math.pi * step / 2))
        optimiser.step()
    tensors, _ = load_tensors(tmp_path / "c", "meta-training checkpoint")
    for name, tensor in meta.items():
        torch.testing.assert_close(tensors[f"meta/{name}"], tensor.detach(), rtol=1e-4, atol=1e-6)


def test_validation_asks_episodes_of_its_own_size(splits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[str, int, int, int]] = []

    def watched(pool: ClassPool, *, n_way: int, n_shot: int, n_query: int, generator: torch.Generator) -> object:
        asked.append((pool.name, n_way, n_shot, n_query))
        return sample_positions(pool, n_way=n_way, n_shot=n_shot, n_query=n_query, generator=generator)

    monkeypatch.setattr(training, "sample_positions", watched)
    meta_train(ProtoNet(), SHAPE, splits.train, splits.validation, PLAN, seed=0, checkpoint=tmp_path / "c")
    assert asked == [("noise (validation)", 4, 1, 5)] * 3


@pytest.mark.parametrize("mirrored", [False, True])
def test_an_episode_is_scored_on_features_of_each_picture_or_on_their_mean_with_the_mirrored_ones(
    mirrored: bool, splits: Splits, tmp_path: Path
):
    scored: list[Tensor] = []

    class Watched(ProtoNet):
        def feature_scores(self, support: Tensor, labels: Tensor, query: Tensor, n_way: int) -> Tensor:
            scored.append(torch.cat([support, query]))
            return super().feature_scores(support, labels, query, n_way)

    plan = PLAN.model_copy(update={"steps": 1})
    base = meta_train(ProtoNet(), SHAPE, splits.train, splits.validation, plan, seed=0, checkpoint=tmp_path / "c")
    shape = {"n_way": 3, "n_shot": 2, "n_query": 3}
    episode_accuracy(Watched(), base.network, base.meta, splits.test, n_episodes=1, seed=5, mirrored=mirrored, **shape)
    drawn = sample_positions(splits.test, **shape, generator=generator(5, "evaluation-episode", 0))
    images = splits.test.images[torch.cat([drawn.support.flatten(), drawn.query.flatten()])]
    expected = base.network.embed(images)
    if mirrored:
        expected = (expected + base.network.embed(images.flip(3))) / 2
    torch.testing.assert_close(scored[0], expected)


def test_the_meta_parameters_that_come_back_are_those_of_the_best_network(splits: Splits, tmp_path: Path):
    plan = PLAN.model_copy(update={"steps": 8, "learning_rate": 0.5, "validate_every": 1})  # so large that it ruins it
    base = meta_train(ProtoNet(), SHAPE, splits.train, splits.validation, plan, seed=0, checkpoint=tmp_path / "c")
    assert base.best_step < 8
    assert base.meta.keys() == base.network.params.keys()
    assert all(torch.equal(base.meta[name], tensor) for name, tensor in base.network.params.items())
