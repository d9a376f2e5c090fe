"""Base learners and the meta-training loop."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fscl.continual.methods import make_learner
from fscl.data.augment import jittered
from fscl.data.episode import Episode, jittered_episode, sample_episode
from fscl.data.pool import ClassPool, Examples, Splits, split_classes
from fscl.data.sets import load_splits
from fscl.errors import ConfigError, DataError, Divergence, Interrupted, RunError, StorageError
from fscl.experiment.base import train_and_test
from fscl.experiment.config import load_config
from fscl.experiment.progress import Reporter
from fscl.meta.base import BaseLearner
from fscl.meta.maml import Maml
from fscl.meta.mamlpp import MamlPlusPlus, step_shares
from fscl.meta.protonet import ProtoNet, prototype_scores
from fscl.meta.shipped import load_base, load_base_with_details
from fscl.meta.supervised import Supervised
from fscl.meta.team import Team
from fscl.meta.train import TrainedBase, TrainSpec, episode_accuracy, meta_train
from fscl.nets.fast import Params
from fscl.nets.network import Network, NetworkSpec, init_params
from fscl.rng import generator
from fscl.storage import load_tensors
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


def a_meta(learner: BaseLearner, norm: str) -> Params:
    spec = TINY.model_copy(update={"norm": norm})
    return learner.init(spec, n_way=3, n_classes=20, generator=generator(0, "init"))


def a_base(learner: BaseLearner, norm: str) -> Network:
    spec = TINY.model_copy(update={"norm": norm})
    network = learner.network(spec, a_meta(learner, norm))
    images = noise_pool().images[:60]
    return replace(network, statistics=network.freeze_statistics(network.to_input(images)))


def only(episode: Episode, number: int) -> Episode:
    one = Examples(episode.query.images[number : number + 1], episode.query.labels[number : number + 1])
    return replace(episode, query=one)


def shifted(meta: Params, direction: Params, size: float) -> Params:
    return {name: (tensor + size * direction[name]).detach().requires_grad_() for name, tensor in meta.items()}


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize(
    "learner",
    [
        ProtoNet(),
        ProtoNet(both_ways=True),
        Maml(inner_steps=1),
        Maml(inner_steps=3, inner_rate=0.3),
        Maml(inner_steps=3, inner_rate=0.3, adapt="head"),
        MamlPlusPlus(inner_steps=2),
        Supervised(),
        Supervised(classifier="linear"),
    ],
    ids=str,
)
def test_the_meta_gradient_agrees_with_finite_differences(learner: BaseLearner, norm: str, small_pool: ClassPool):
    spec = TINY.model_copy(update={"norm": norm})
    meta, episode = doubles(learner, spec), an_episode(small_pool)
    _, grads = learner.gradients(spec, meta, episode)
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
    _, grads = learner.gradients(TINY, meta, episode)

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
        Maml(inner_rate=0.3, first_order=first).gradients(TINY, meta, episode)[1] for first in (False, True)
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


@pytest.mark.parametrize(
    "learner",
    [
        Maml(inner_steps=2, inner_rate=0.3),
        Maml(inner_steps=2, inner_rate=0.3, first_order=True),
        Maml(inner_steps=2, inner_rate=0.3, adapt="head"),
        MamlPlusPlus(inner_steps=2, inner_rate=0.3),
    ],
    ids=str,
)
def test_learning_to_learn_helps_with_classes_never_seen(splits: Splits, tmp_path: Path, learner: BaseLearner):
    spec = QUICK.model_copy(
        update={"steps": 100, "meta_batch": 2, "validate_every": 50, "validation_episodes": 20, "learning_rate": 5e-3}
    )
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


@pytest.mark.parametrize("learner", [ProtoNet(), Maml(inner_steps=2), MamlPlusPlus(inner_steps=2)], ids=str)
def test_training_stopped_by_ctrl_c_and_continued_ends_with_the_same_bits(
    splits: Splits, tmp_path: Path, learner: BaseLearner
):
    spec = QUICK.model_copy(update={"averaging": 0.9, "jitter": 0.5})
    whole = train(splits, tmp_path / "whole", learner, spec)

    def stop_after_three(step: int, total: int, note: str) -> None:
        if step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="after step 3 of 6"):
        meta_train(
            learner,
            TINY,
            splits.train,
            splits.validation,
            spec,
            seed=0,
            checkpoint=tmp_path / "cut",
            progress=stop_after_three,
        )
    continued = train(splits, tmp_path / "cut", learner, spec)
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


def test_a_diverging_training_says_so(splits: Splits, tmp_path: Path):
    spec = QUICK.model_copy(update={"steps": 40})
    learner = Maml(inner_steps=5, inner_rate=1e30)
    with pytest.raises(Divergence, match=r"diverged: the loss is .* at step 1 with learning rate"):
        train(splits, tmp_path / "c", learner, spec)
    assert not (tmp_path / "c").exists()


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


def test_shares_of_the_multi_step_loss_move_to_the_last_step():
    assert step_shares(5, 0.0) == pytest.approx([0.2] * 5)
    assert step_shares(5, 0.5) == pytest.approx([0.1] * 4 + [0.6])
    assert step_shares(5, 0.9) == pytest.approx([0.02] * 4 + [0.92])
    assert step_shares(5, 0.99) == pytest.approx([0.006] * 4 + [0.976])  # a floor, until it ends
    assert step_shares(5, 1.0) == [0.0] * 4 + [1.0]


def test_every_learned_rate_and_every_step_s_scale_gets_a_gradient(small_pool: ClassPool):
    learner = MamlPlusPlus(inner_steps=3, multi_step_loss=False)
    spec = TINY.model_copy(update={"norm": "batch"})
    meta = learner.init(spec, n_way=3, n_classes=20, generator=generator(0, "init"))
    grads = dict(zip(meta, learner.gradients(spec, meta, an_episode(small_pool), 1.0)[1], strict=True))
    learned = [name for name in meta if name.startswith(("rate/", "per-step/"))]
    assert len(learned) == (4 + 2) + 4 * 2  # rates of four filters and the head, two vectors of each norm
    for name in learned:
        assert meta[name].shape[0] == 3
        assert (grads[name].reshape(3, -1).abs().sum(1) > 0).all(), name


def test_maml_plus_plus_hands_over_the_scales_of_its_last_step():
    learner = MamlPlusPlus(inner_steps=3)
    meta = learner.init(TINY, n_way=3, n_classes=20, generator=generator(0, "init"))
    meta["per-step/norms.1.weight"] = torch.arange(3.0)[:, None].expand(3, 4)
    network = learner.network(TINY, meta)
    assert network.params["norms.1.weight"].tolist() == [2.0] * 4
    assert network.head is not None
    assert list(network.params) == list(init_params(TINY, generator(0)))


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize(
    "learner",
    [
        ProtoNet(),
        Supervised(),
        Maml(inner_steps=2),
        Maml(inner_steps=2, adapt="head"),
        MamlPlusPlus(inner_steps=2),
        MamlPlusPlus(inner_steps=2, per_step_statistics=False),
    ],
    ids=str,
)
def test_queries_do_not_influence_each_other(learner: BaseLearner, norm: str, small_pool: ClassPool):
    network, meta, episode = a_base(learner, norm), a_meta(learner, norm), an_episode(small_pool)
    together = learner.query_scores(network, meta, episode)
    alone = [learner.query_scores(network, meta, only(episode, number)) for number in range(len(episode.query))]
    torch.testing.assert_close(torch.cat(alone), together, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("learner", [Maml(inner_steps=2), MamlPlusPlus(inner_steps=2)], ids=str)
def test_transductive_queries_do_and_are_tested_under_that_name(learner: BaseLearner, small_pool: ClassPool):
    spec = TINY.model_copy(update={"norm": "batch"})
    assert list(learner.ways_to_test(TINY)) == [""]  # GroupNorm looks at one image at a time
    ways = learner.ways_to_test(spec)
    assert list(ways) == ["", "transductive BatchNorm"]
    assert ways[""] == learner
    together = ways["transductive BatchNorm"]
    network, meta, episode = a_base(together, "batch"), a_meta(together, "batch"), an_episode(small_pool)
    fewer = Episode(episode.support, Examples(episode.query.images[:4], episode.query.labels[:4]), 3, episode.classes)
    found = together.query_scores(network, meta, fewer)
    assert not torch.allclose(found, together.query_scores(network, meta, episode)[:4], rtol=1e-2)


def test_anil_moves_the_head_alone(small_pool: ClassPool):
    learner = Maml(inner_steps=3, inner_rate=0.5, adapt="head")
    network, meta, episode = a_base(learner, "group"), a_meta(learner, "group"), an_episode(small_pool)
    known, asked = network.embed(episode.support.images), network.embed(episode.query.images)
    layer = torch.nn.Linear(network.n_features, 3)  # by another route: plain descent on a layer over frozen features
    with torch.no_grad():
        layer.weight.copy_(meta["head/weight"])
        layer.bias.copy_(meta["head/bias"])
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.5)
    for _ in range(3):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(layer(known), episode.support.labels).backward()
        optimiser.step()
    torch.testing.assert_close(learner.query_scores(network, meta, episode), layer(asked).detach())


@pytest.mark.parametrize("classifier", ["linear", "cosine"])
def test_supervised_pretraining_helps_with_classes_never_seen(splits: Splits, tmp_path: Path, classifier: str):
    learner = Supervised.model_validate({"classifier": classifier})
    network = TINY.model_copy(update={"width": 16, "norm": "batch"})
    spec = QUICK.model_copy(
        update={"steps": 60, "n_way": 10, "n_query": 6, "learning_rate": 3e-3, "validate_every": 20}
    )
    trained = train(splits, tmp_path / "t", learner, spec, network)
    assert trained.network.head is None  # the continual stage grows its own
    untrained = train(
        splits, tmp_path / "u", learner, spec.model_copy(update={"steps": 1, "learning_rate": 1e-9}), network
    )
    before, after = (
        sum(
            episode_accuracy(
                learner, base.network, base.meta, splits.test, n_episodes=30, n_way=5, n_shot=1, n_query=8, seed=0
            )
        )
        / 30
        for base in (untrained, trained)
    )
    assert after > before + 0.05


def test_averaged_weights_are_the_running_mean_of_the_weights(splits: Splits, tmp_path: Path):
    seen: list[Params] = []

    class Watched(ProtoNet):
        def gradients(
            self, spec: NetworkSpec, meta: Params, episode: Episode, done: float = 0.0
        ) -> tuple[Tensor, tuple[Tensor, ...]]:
            seen.append({name: tensor.detach().clone() for name, tensor in meta.items()})
            return super().gradients(spec, meta, episode, done)

    spec = QUICK.model_copy(update={"averaging": 0.5, "steps": 4, "validate_every": 4})
    trained = train(splits, tmp_path / "c", Watched(), spec)
    tensors, _ = load_tensors(tmp_path / "c", "meta-training checkpoint")
    for name, found in trained.meta.items():
        average = seen[0][name]
        for step, weights in enumerate([*(later[name] for later in seen[1:]), tensors[f"meta/{name}"]], start=1):
            decay = min(0.5, step / (step + 10))
            average = decay * average + (1 - decay) * weights
        torch.testing.assert_close(found, average)


def test_jitter_bends_training_images_and_nothing_else(small_pool: ClassPool):
    episode = an_episode(small_pool)
    bent = jittered_episode(episode, 1.0, generator(0, "jitter"))
    again = jittered_episode(episode, 1.0, generator(0, "jitter"))
    assert torch.equal(bent.support.images, again.support.images)
    assert bent.support.images.dtype == torch.uint8
    assert not torch.equal(bent.support.images, episode.support.images)
    assert torch.equal(bent.support.labels, episode.support.labels)
    assert torch.equal(jittered(episode.query.images, 0.0, generator(0)), episode.query.images)


def test_jitter_moves_a_stroke_by_no_more_than_it_says():
    dots = torch.zeros(200, 1, 32, 32, dtype=torch.uint8)
    dots[:, :, 15:17, 15:17] = 255
    bent = jittered(dots, 1.0, generator(0, "jitter")).float()[:, 0]
    rows = torch.arange(32.0)
    for axis in (1, 2):
        profile = bent.sum(3 - axis)
        centres = (profile * rows).sum(1) / profile.sum(1)
        assert (centres - 15.5).abs().max() < 2.5  # two pixels, and the other changes about the middle
        assert (centres - 15.5).abs().mean() > 0.5


TINY_TRAINING = (
    "base.network.width=4",
    "base.network.norm=batch",
    "base.train.meta_batch=3",
    "base.train.steps=6",
    "base.train.validate_every=3",
    "base.train.validation_episodes=5",
    "base.train.n_way=5",
    "base.train.validation_way=5",
    "base.train.test_episodes=3",
    "base.train.jitter=1.0",
    "base.train.averaging=0.9",
)


def test_two_processes_under_torchrun_end_with_the_bits_of_one(tmp_path: Path):
    command = ["-m", "fscl", "train", "glyphs-protonet", *TINY_TRAINING, "--out"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *command]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    outputs = []
    for arguments, name in ((command, "one"), (launcher, "two")):
        done = subprocess.run(
            [sys.executable, *arguments, str(tmp_path / name)],
            check=True, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=300,
        )  # fmt: skip
        outputs.append(done.stdout.replace(str(tmp_path / name), ""))
    assert outputs[0] == outputs[1]  # and the second process says nothing
    for name in ("meta-training.safetensors", "network.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize(
    ("part", "sentence"), [("loss", "the loss is nan at step 4"), ("gradient", "the gradient is not finite at step 4")]
)
def test_a_diverging_run_keeps_the_checkpoint_of_before(splits: Splits, tmp_path: Path, part: str, sentence: str):
    class Explodes(ProtoNet):
        def gradients(
            self, spec: NetworkSpec, meta: Params, episode: Episode, done: float = 0.0
        ) -> tuple[Tensor, tuple[Tensor, ...]]:
            loss, grads = super().gradients(spec, meta, episode, done)
            if done < 0.5:
                return loss, grads
            return (loss * float("nan"), grads) if part == "loss" else (loss, tuple(g * float("inf") for g in grads))

    spec = QUICK.model_copy(update={"validate_every": 1})
    with pytest.raises(Divergence, match=sentence):
        train(splits, tmp_path / "c", Explodes(), spec)
    _, details = load_tensors(tmp_path / "c", "meta-training checkpoint")
    assert details["step"] == 3


def test_a_checkpoint_of_another_backbone_is_refused(splits: Splits, tmp_path: Path):
    network = TINY.model_copy(update={"width": 8, "norm": "batch"})
    train(splits, tmp_path / "c", network=network)
    with pytest.raises(RunError, match=r"network\.backbone = 'conv4', but now it is 'resnet18'"):
        train(splits, tmp_path / "c", network=network.model_copy(update={"backbone": "resnet18"}))
    with pytest.raises(RunError, match=r"learner\.method = 'protonet', but now it is 'supervised'"):
        train(splits, tmp_path / "c", Supervised(), network=network)


@pytest.mark.parametrize("damage", ["truncated", "tampered"])
def test_damaged_weights_are_refused_by_name(splits: Splits, tmp_path: Path, damage: str):
    path = tmp_path / "network.safetensors"
    train(splits, tmp_path / "c").network.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage == "truncated" else whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(StorageError, match=r"network\.safetensors"):
        load_base(path)


@pytest.mark.parametrize(
    "learner", [ProtoNet(), Maml(inner_steps=1), MamlPlusPlus(inner_steps=1), Supervised()], ids=str
)
@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("backbone", ["conv4", "resnet12", "resnet18"])
def test_every_learner_trains_every_network_and_its_base_learns_a_stream(
    learner: BaseLearner, backbone: str, norm: str, splits: Splits, tmp_path: Path
):
    spec = NetworkSpec.model_validate({"backbone": backbone, "norm": norm, "width": 8, "image_size": 16})
    plan = QUICK.model_copy(update={"steps": 2, "validation_episodes": 2})
    trained = train(splits, tmp_path / "c", learner, plan, spec)
    trained.network.save(tmp_path / "n.safetensors")
    network = load_base(tmp_path / "n.safetensors")
    assert (network.head is None) == isinstance(learner, (ProtoNet, Supervised))
    student = make_learner("tsc", network, seed=0, dials={"steps": 3, "embedding_steps": 1})
    images = torch.cat([splits.test.of_class(index)[:2] for index in range(3)])
    student.learn_task(Examples(images, torch.arange(3).repeat_interleave(2)))
    assert student.predict(images).shape[0] == 6


@pytest.mark.parametrize("learner", [Maml(inner_steps=2), MamlPlusPlus(inner_steps=2)], ids=str)
def test_training_may_start_from_a_trained_backbone(splits: Splits, tmp_path: Path, learner: BaseLearner):
    start = train(splits, tmp_path / "start").network
    begun = meta_train(
        learner,
        TINY,
        splits.train,
        splits.validation,
        QUICK.model_copy(update={"steps": 1, "learning_rate": 1e-9}),
        seed=0,
        checkpoint=tmp_path / "begun",
        start=start,
    )
    for name, tensor in start.params.items():
        torch.testing.assert_close(begun.network.params[name], tensor)
    with pytest.raises(ConfigError, match="start from has width = 4, but 8 is to be trained"):
        meta_train(
            learner,
            TINY.model_copy(update={"width": 8}),
            splits.train,
            splits.validation,
            QUICK,
            seed=0,
            checkpoint=tmp_path / "other",
            start=start,
        )
    with pytest.raises(RunError, match=r"start\.weights"):
        train(splits, tmp_path / "begun", learner, QUICK.model_copy(update={"steps": 1, "learning_rate": 1e-9}))


def test_processes_with_different_checkpoints_refuse_to_go_on(monkeypatch: pytest.MonkeyPatch):
    steps = iter([torch.tensor([3.0]), torch.tensor([0.0])])
    monkeypatch.setattr(Team, "map", lambda team, count, work: [next(steps) for _ in range(count)])
    with pytest.raises(RunError, match=r"from different steps: \[3, 0\]"):
        Team(0, 2).agree(3)


def test_the_tests_of_a_base_may_change_and_its_training_go_on(splits: Splits, tmp_path: Path):
    train(splits, tmp_path / "c", spec=QUICK.model_copy(update={"test_episodes": 0}))
    train(splits, tmp_path / "c", spec=QUICK.model_copy(update={"test_episodes": 5, "test_ways": (3, 5)}))
    with pytest.raises(ValueError, match="one episode gives no interval"):
        TrainSpec(test_episodes=1)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("base.train.validation_way=100", "testing the base at 100 ways needs 100 classes, but"),
        ("base.train.test_ways=[300]", "testing the base at 300 ways needs 300 classes, but 'glyphs (test)' has 240"),
        ("base.train.n_shot=40", "needs 20 classes of 55 images each"),
    ],
)
def test_what_the_split_cannot_serve_is_refused_before_training(
    override: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = load_config("glyphs-protonet", [override])
    if "validation_way" in override:  # a test split that is smaller than the others
        whole = load_splits(config.data)
        small = Splits(whole.train, whole.validation, whole.test.subset(range(50)))
        monkeypatch.setattr("fscl.experiment.base.load_splits", lambda *_: small)
    with pytest.raises(DataError, match=re.escape(sentence)):
        train_and_test(config, tmp_path, Reporter(quiet=True))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("train_classes", "the network to start from was trained on 1 of the classes of 'glyphs (validation)'"),
        ("validation_classes", "the network to start from was chosen on 1 of the classes of 'glyphs (test)'"),
    ],
)
def test_a_start_that_knows_the_classes_of_the_test_is_refused(key: str, sentence: str, tmp_path: Path):
    network, about = load_base_with_details("glyphs-protonet-conv4")
    splits = load_splits(load_config("glyphs-protonet").data)
    pool = splits.validation if key == "train_classes" else splits.test
    network.save(tmp_path / "start.safetensors", about | {key: [pool.class_names[0]]})
    overrides = [f"base.start={tmp_path / 'start.safetensors'}", "base.train.steps=1", "base.train.test_episodes=0"]
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        train_and_test(load_config("glyphs-protonet", overrides), tmp_path / "out", Reporter(quiet=True))


def test_a_base_remembers_the_classes_of_what_it_started_from(tmp_path: Path):
    network, about = load_base_with_details("glyphs-protonet-conv4")
    network.save(tmp_path / "start.safetensors", about | {"train_classes": ["of another split"]})
    overrides = [
        f"base.start={tmp_path / 'start.safetensors'}",
        "base.train.steps=1",
        "base.train.validation_episodes=2",
        "base.train.test_episodes=0",
    ]
    path, lines = train_and_test(load_config("glyphs-protonet", overrides), tmp_path / "out", Reporter(quiet=True))
    assert len(lines) == 1  # the figure on validation classes, and none on test classes
    assert "of another split" in load_base_with_details(path)[1]["train_classes"]
