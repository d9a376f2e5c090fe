"""Base learners and the meta-training loop."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fscl.data.episode import Episode, sample_episode
from fscl.data.pool import ClassPool, Splits, split_classes
from fscl.errors import ConfigError, DataError, Divergence, Interrupted, RunError, StorageError
from fscl.meta.base import BaseLearner
from fscl.meta.maml import Maml
from fscl.meta.protonet import ProtoNet, prototype_scores
from fscl.meta.train import TrainedBase, TrainSpec, episode_accuracy, meta_train
from fscl.nets.fast import Params
from fscl.nets.network import NetworkSpec
from fscl.rng import generator
from tests.conftest import ROOT, noise_pool

TINY = NetworkSpec(width=4, image_size=16)
QUICK = TrainSpec(
    steps=6, n_way=3, n_shot=2, n_query=3, validate_every=2, validation_episodes=3, validation_way=3, validation_query=3
)


@pytest.fixture(scope="module")
def splits() -> Splits:
    return split_classes(noise_pool(), train=range(10), validation=range(10, 15), test=range(15, 20))


def doubles(learner: BaseLearner, spec: NetworkSpec) -> Params:
    meta = learner.init(spec, n_way=3, n_classes=20, generator=generator(0, "init"))
    return {name: tensor.double().requires_grad_() for name, tensor in meta.items()}


def an_episode(pool: ClassPool) -> Episode:
    return sample_episode(pool, n_way=3, n_shot=2, n_query=3, generator=generator(0, "episode"))


def shifted(meta: Params, direction: Params, size: float) -> Params:
    return {name: (tensor + size * direction[name]).detach().requires_grad_() for name, tensor in meta.items()}


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("learner", [ProtoNet(), Maml(inner_steps=1), Maml(inner_steps=3, inner_rate=0.3)], ids=str)
def test_the_meta_gradient_agrees_with_finite_differences(learner: BaseLearner, norm: str, small_pool: ClassPool):
    spec = TINY.model_copy(update={"norm": norm})
    meta, episode = doubles(learner, spec), an_episode(small_pool)
    grads = torch.autograd.grad(learner.loss(spec, meta, episode), list(meta.values()))
    random = generator(0, "direction")
    direction = {n: torch.randn(t.shape, generator=random, dtype=torch.float64) for n, t in meta.items()}
    along = sum(float((grad * direction[name]).sum()) for grad, name in zip(grads, meta, strict=True))
    size = 1e-6
    ahead = learner.loss(spec, shifted(meta, direction, size), episode).item()
    behind = learner.loss(spec, shifted(meta, direction, -size), episode).item()
    assert along == pytest.approx((ahead - behind) / (2 * size), rel=1e-5)


def test_the_first_order_gradient_is_that_of_the_query_loss_at_the_adapted_weights(small_pool: ClassPool):
    learner = Maml(inner_steps=2, inner_rate=0.3, first_order=True)
    meta, episode = doubles(learner, TINY), an_episode(small_pool)
    grads = torch.autograd.grad(learner.loss(TINY, meta, episode), list(meta.values()))

    # by another route: plain gradient descent in place, then the gradient where it ends
    weights = {name: tensor.detach().clone().requires_grad_() for name, tensor in meta.items()}
    optimiser = torch.optim.SGD(weights.values(), lr=0.3)

    def loss_on(images: Tensor, labels: Tensor) -> Tensor:
        network = learner.network(TINY, weights)
        assert network.head is not None
        scores = network.features(network.to_input(images)) @ network.head["weight"].T + network.head["bias"]
        return torch.nn.functional.cross_entropy(scores, labels)

    for _ in range(2):
        optimiser.zero_grad()
        loss_on(episode.support.images, episode.support.labels).backward()
        optimiser.step()
    at_the_end = torch.autograd.grad(loss_on(episode.query.images, episode.query.labels), list(weights.values()))
    for found, expected in zip(grads, at_the_end, strict=True):
        torch.testing.assert_close(found, expected)


def test_second_order_differs_from_first_order(small_pool: ClassPool):
    meta, episode = doubles(Maml(), TINY), an_episode(small_pool)
    exact, rough = (
        torch.autograd.grad(Maml(inner_rate=0.3, first_order=first).loss(TINY, meta, episode), list(meta.values()))
        for first in (False, True)
    )
    assert not all(torch.allclose(a, b, rtol=1e-3) for a, b in zip(exact, rough, strict=True))


def test_prototype_scores_are_minus_the_squared_distance_to_the_class_mean():
    support = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0]])
    scores = prototype_scores(support, torch.tensor([0, 0, 1]), torch.tensor([[1.0, 1.0]]), 2)
    torch.testing.assert_close(scores, torch.tensor([[-1.0, -10.0]]))


def test_equal_prototypes_give_equal_scores():
    scores = prototype_scores(torch.ones(4, 3), torch.tensor([0, 1, 2, 3]), torch.randn(5, 3), 4)
    torch.testing.assert_close(scores.softmax(1), torch.full((5, 4), 0.25))


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


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_training_beats_the_untrained_network_on_unseen_classes(splits: Splits, tmp_path: Path, norm: str):
    spec = QUICK.model_copy(update={"steps": 60, "n_query": 6, "n_way": 5, "validate_every": 20, "learning_rate": 3e-3})
    network = TINY.model_copy(update={"norm": norm, "width": 16})
    trained = train(splits, tmp_path / "c", spec=spec, network=network)
    untrained = train(
        splits, tmp_path / "u", spec=spec.model_copy(update={"steps": 1, "learning_rate": 1e-9}), network=network
    )
    before, after = (
        sum(
            episode_accuracy(
                ProtoNet(), base.network, base.meta, splits.test, n_episodes=30, n_way=5, n_shot=1, n_query=8, seed=0
            )
        )
        / 30
        for base in (untrained, trained)
    )
    assert after > before + 0.05


@pytest.mark.parametrize("first_order", [False, True])
def test_maml_learns_to_learn_classes_that_it_never_saw(splits: Splits, tmp_path: Path, first_order: bool):
    learner = Maml(inner_steps=2, inner_rate=0.3, first_order=first_order)
    spec = QUICK.model_copy(update={"steps": 60, "meta_batch": 2, "validate_every": 20, "learning_rate": 5e-3})
    network = TINY.model_copy(update={"width": 16})
    untrained = train(
        splits, tmp_path / "u", learner, spec.model_copy(update={"steps": 1, "learning_rate": 1e-9}), network
    )
    trained = train(splits, tmp_path / "t", learner, spec, network)
    before, after = (
        sum(
            episode_accuracy(
                learner, found.network, found.meta, splits.test, n_episodes=40, n_way=3, n_shot=2, n_query=8, seed=0
            )
        )
        / 40
        for found in (untrained, trained)
    )
    assert after > before + 0.15


@pytest.mark.parametrize("learner", [ProtoNet(), Maml(inner_steps=2)], ids=str)
def test_training_stopped_by_ctrl_c_and_continued_ends_with_the_same_bits(
    splits: Splits, tmp_path: Path, learner: BaseLearner
):
    whole = train(splits, tmp_path / "whole", learner)

    def stop_after_three(step: int, total: int, note: str) -> None:
        if step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="after step 3 of 6"):
        meta_train(
            learner,
            TINY,
            splits.train,
            splits.validation,
            QUICK,
            seed=0,
            checkpoint=tmp_path / "cut",
            progress=stop_after_three,
        )
    continued = train(splits, tmp_path / "cut", learner)
    assert continued.history == whole.history
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()
    assert all(torch.equal(continued.network.params[n], whole.network.params[n]) for n in whole.network.params)


def test_a_killed_training_continues_with_the_same_bits(tmp_path: Path):
    arguments = [
        "train",
        "glyphs-protonet",
        "base.network.width=4",
        "base.train.steps=40",
        "base.train.validate_every=4",
        "base.train.validation_episodes=2",
        "base.train.n_way=5",
        "base.train.validation_way=5",
        "base.train.test_episodes=2",
        "--out",
    ]
    command = [sys.executable, "-c", "from fscl.cli import main; main()", *arguments]
    process = subprocess.Popen([*command, str(tmp_path / "cut")], cwd=ROOT)
    checkpoint = tmp_path / "cut" / "meta-training.safetensors"
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    for name in ("cut", "whole"):
        subprocess.run([*command, str(tmp_path / name)], check=True, cwd=ROOT, capture_output=True)
    assert checkpoint.read_bytes() == (tmp_path / "whole" / "meta-training.safetensors").read_bytes()
    network = "network.safetensors"
    assert (tmp_path / "cut" / network).read_bytes() == (tmp_path / "whole" / network).read_bytes()


def test_the_best_weights_by_validation_are_kept_not_the_last(splits: Splits, tmp_path: Path):
    spec = QUICK.model_copy(update={"steps": 8, "learning_rate": 0.5})  # so large that training ruins the network
    trained = train(splits, tmp_path / "c", spec=spec)
    best = max(accuracy for _, accuracy in trained.history)
    assert trained.best_accuracy == best
    assert trained.best_step == next(step for step, accuracy in trained.history if accuracy == best)
    found = episode_accuracy(
        ProtoNet(), trained.network, trained.meta, splits.validation, n_episodes=3, n_way=3, n_shot=2, n_query=3, seed=0
    )
    assert sum(found) / 3 == pytest.approx(best)


def test_a_checkpoint_of_another_configuration_is_refused_with_both_values(splits: Splits, tmp_path: Path):
    train(splits, tmp_path / "c")
    before = (tmp_path / "c").read_bytes()
    with pytest.raises(RunError, match=r"train\.n_shot = 2, but now it is 1"):
        train(splits, tmp_path / "c", spec=QUICK.model_copy(update={"n_shot": 1}))
    with pytest.raises(RunError, match=r"network\.width = 4, but now it is 8"):
        train(splits, tmp_path / "c", network=TINY.model_copy(update={"width": 8}))
    assert (tmp_path / "c").read_bytes() == before


def test_a_truncated_checkpoint_is_refused_by_name(splits: Splits, tmp_path: Path):
    (tmp_path / "c").write_bytes(b"\x10\x00")
    with pytest.raises(StorageError, match="c is not a whole file"):
        train(splits, tmp_path / "c")


def test_a_diverging_training_says_so_and_leaves_the_checkpoint(splits: Splits, tmp_path: Path):
    spec = QUICK.model_copy(update={"steps": 40})
    learner = Maml(inner_steps=5, inner_rate=1e30)
    with pytest.raises(Divergence, match=r"diverged: the loss is .* at step 1 with learning rate"):
        train(splits, tmp_path / "c", learner, spec)


def test_ways_that_the_split_cannot_serve_are_refused_before_training(splits: Splits, tmp_path: Path):
    with pytest.raises(DataError, match="meta-training needs 11 classes"):
        train(splits, tmp_path / "c", spec=QUICK.model_copy(update={"n_way": 11}))
    with pytest.raises(DataError, match="validation of meta-training needs 6 classes"):
        train(splits, tmp_path / "c", spec=QUICK.model_copy(update={"validation_way": 6}))
    assert not (tmp_path / "c").exists()


def test_maml_is_validated_with_as_many_ways_as_its_head_has_rows(splits: Splits, tmp_path: Path):
    with pytest.raises(ConfigError, match="has 2 rows"):
        train(splits, tmp_path / "c", Maml(), QUICK.model_copy(update={"n_way": 2}))


def test_the_cosine_schedule_begins_at_the_rate_and_ends_near_zero():
    spec = TrainSpec(steps=100, learning_rate=0.1, schedule="cosine")
    assert spec.rate(0) == pytest.approx(0.1)
    assert spec.rate(50) == pytest.approx(0.05)
    assert spec.rate(99) < 1e-4
