"""The meta-training loop: checkpoints, stops and kills, choosing, sharing the work, and what is refused."""

import os
import re
import signal
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fscl.data.catalogue import load_splits
from fscl.data.episode import Episode
from fscl.data.pool import Splits
from fscl.errors import ConfigError, DataError, Divergence, Interrupted, RunError, StorageError
from fscl.experiment.base import train_and_test
from fscl.experiment.config import load_config
from fscl.experiment.progress import Reporter
from fscl.meta.base import BaseLearner
from fscl.meta.maml import Maml
from fscl.meta.mamlpp import MamlPlusPlus
from fscl.meta.protonet import ProtoNet
from fscl.meta.shipped import load_base, load_base_with_details
from fscl.meta.supervised import Supervised
from fscl.meta.train import TrainSpec, episode_accuracy, meta_train
from fscl.nets.params import Params
from fscl.nets.trained import NetworkSpec
from fscl.storage import load_tensors
from tests.children import FSCL, run_child, started_child
from tests.meta.small import QUICK, TINY, train


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


@pytest.mark.slow
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
    checkpoint = tmp_path / "cut" / "meta-training.safetensors"
    with started_child([*FSCL, *arguments, tmp_path / "cut"]) as child:
        child.wait_until(checkpoint.exists)
        child.send(signal.SIGKILL)
        child.finish(expect=-signal.SIGKILL)
    for name in ("cut", "whole"):
        run_child([*FSCL, *arguments, tmp_path / name])
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
