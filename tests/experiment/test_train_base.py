"""Honesty of meta-training: what is trained on, what it is chosen on, and when the test classes are first looked at."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fscl.data.pool import ClassPool, Splits, split_classes
from fscl.errors import ConfigError
from fscl.experiment import base
from fscl.experiment.config import Config, make_config
from fscl.experiment.progress import Reporter
from fscl.meta import train as training
from fscl.meta.shipped import load_base_with_details
from fscl.testing import noise_pool

QUIET = Reporter(quiet=True)
TRAIN = {
    "steps": 4, "meta_batch": 1, "n_way": 3, "n_shot": 2, "n_query": 3, "validate_every": 2, "validation_episodes": 3,
    "validation_way": 3, "validation_query": 3, "test_episodes": 3,
}  # fmt: skip


def config(learner: str = "protonet", norm: str = "group", **train: object) -> Config:
    network = {"width": 4, "norm": norm}
    return make_config({"base": {"network": network, "learner": {"method": learner}, "train": {**TRAIN, **train}}})


def noise_splits() -> Splits:
    return split_classes(noise_pool(), train=range(10), validation=range(10, 15), test=range(15, 20))


@pytest.fixture
def splits(monkeypatch: pytest.MonkeyPatch) -> Splits:
    """Three pools of five or ten classes each, which `train_and_test` loads in place of a data set."""
    found = noise_splits()
    monkeypatch.setattr(base, "load_splits", lambda *_: found)
    return found


def spied(monkeypatch: pytest.MonkeyPatch, module: object, name: str, note: Callable[..., None]) -> None:
    """Let a function of a module be noted at every call, and do its work."""
    original = getattr(module, name)

    def spy(*arguments: Any, **named: Any) -> Any:
        note(*arguments, **named)
        return original(*arguments, **named)

    monkeypatch.setattr(module, name, spy)


@pytest.mark.parametrize("rotations", [False, True])
def test_training_gets_the_training_classes_and_choosing_the_validation_classes_and_nothing_gets_those_of_the_test(
    rotations: bool, splits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    handed: list[tuple[ClassPool, ClassPool]] = []
    spied(
        monkeypatch,
        base,
        "meta_train",
        lambda _learner, _spec, train, chosen_on, *_, **__: handed.append((train, chosen_on)),
    )
    base.train_base(config(rotations=rotations), splits, tmp_path / "c", QUIET)
    [(train, validation)] = handed
    assert {name.partition("@")[0] for name in train.class_names} == set(splits.train.class_names)
    assert train.content_hash == splits.train.content_hash or rotations
    assert validation.class_names == splits.validation.class_names
    assert validation.content_hash == splits.validation.content_hash


@pytest.mark.parametrize("learner", ["protonet", "maml"])
def test_no_episode_of_test_classes_is_drawn_before_the_base_is_chosen_and_none_of_others_after(
    learner: str, splits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    events: list[str] = []
    for name in ("sample_episode", "sample_positions"):
        spied(monkeypatch, training, name, lambda pool, **_: events.append(pool.name))
    original = base.meta_train

    def chosen(*arguments: Any, **named: Any) -> Any:
        trained = original(*arguments, **named)
        events.append("chosen")
        return trained

    monkeypatch.setattr(base, "meta_train", chosen)
    base.train_and_test(config(learner), tmp_path, QUIET)
    assert events == [
        *["noise (train)"] * 2, *["noise (validation)"] * 3, *["noise (train)"] * 2, *["noise (validation)"] * 3,
        "chosen", *["noise (test)"] * 3,
    ]  # fmt: skip


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_the_trained_network_is_the_same_whatever_the_test_classes_look_like(
    norm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    whole = noise_splits()
    inverted = replace(whole, test=replace(whole.test, images=255 - whole.test.images))
    networks, tests = [], []
    for number, splits in enumerate((whole, inverted)):
        monkeypatch.setattr(base, "load_splits", lambda *_, found=splits: found)
        path, _ = base.train_and_test(config(norm=norm), tmp_path / str(number), QUIET)
        network, about = load_base_with_details(path)
        networks.append(network.tensors())
        tests.append(about.pop("test"))
    assert tests[0] != tests[1]
    assert networks[0].keys() == networks[1].keys()
    assert all(torch.equal(networks[0][name], networks[1][name]) for name in networks[0])


def test_batch_norm_predicts_with_statistics_of_training_images_and_of_no_others(splits: Splits, tmp_path: Path):
    """Validated once, at the end, so that validation chooses nothing here."""
    once = config(norm="batch", validate_every=4)
    inverted = replace(splits, validation=replace(splits.validation, images=255 - splits.validation.images))
    one, other = (
        base.train_base(once, found, tmp_path / name, QUIET)[0].network.tensors()
        for name, found in (("one", splits), ("other", inverted))
    )
    assert any("statistics" in name for name in one)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_validation_decides_which_weights_are_kept(splits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    accuracies = iter([0.4, 0.9, 0.9, 0.5])
    monkeypatch.setattr(training._Job, "validation_accuracy", lambda *_: next(accuracies))
    trained, about = base.train_base(config(validate_every=1), splits, tmp_path / "c", QUIET)
    assert trained.history == ((1, 0.4), (2, 0.9), (3, 0.9), (4, 0.5))
    assert (trained.best_step, about["best_step"], about["validation_accuracy"]) == (2, 2, 0.9)  # the first of the best
    monkeypatch.undo()
    short = base.train_base(config(validate_every=2, steps=2), splits, tmp_path / "short", QUIET)[0]
    for name, tensor in short.network.params.items():
        assert torch.equal(trained.network.params[name], tensor)


def test_a_base_says_which_classes_it_was_trained_and_chosen_on(splits: Splits, tmp_path: Path):
    about = base.train_base(config(rotations=True), splits, tmp_path / "c", QUIET)[1]
    assert about["train_classes"] == sorted(splits.train.class_names)
    assert about["validation_classes"] == sorted(splits.validation.class_names)


@pytest.mark.parametrize(
    ("key", "side", "how"),
    [
        ("train_classes", "validation", "trained"),
        ("train_classes", "test", "trained"),
        ("validation_classes", "test", "chosen"),
    ],
)
def test_a_network_to_start_from_must_not_know_classes_that_the_base_is_chosen_or_tested_on(
    key: str, side: str, how: str, splits: Splits, tmp_path: Path
):
    started = config()
    trained, about = base.train_base(started, splits, tmp_path / "first", QUIET)
    path = tmp_path / "start.safetensors"
    trained.network.save(path, {**about, key: [*about[key], splits.pool(side).class_names[0]]})
    again = started.model_copy(update={"base": started.base.model_copy(update={"start": str(path)})})
    with pytest.raises(
        ConfigError, match=rf"the network to start from was {how} on 1 of the classes of 'noise \({side}\)'"
    ):
        base.train_base(again, splits, tmp_path / "again", QUIET)


@pytest.mark.parametrize(("key", "how"), [("train_classes", "trained"), ("validation_classes", "chosen")])
def test_a_base_is_refused_for_classes_that_the_network_before_it_knew(key: str, how: str, splits: Splits):
    name = splits.test.class_names[0]
    data = {"name": "glyphs"}
    grandparent = {"data": data, "train_classes": [], "validation_classes": [], key: [name]}
    about = {"data": {"name": "omniglot"}, "train_classes": [], "validation_classes": [], "before": grandparent}
    with pytest.raises(ConfigError, match=rf"the base was {how} on 1 of the classes of 'noise \(test\)'"):
        base.refuse_leak(config(), about, splits.test)
    base.refuse_leak(config(), about, splits.train)  # other classes
    base.refuse_leak(config(), about, splits.test, frozenset({name}))  # of a base session, known by right


def test_on_a_validation_stream_a_base_may_have_been_chosen_on_its_classes_but_not_trained(splits: Splits):
    validating = config().model_copy(update={"run": config().run.model_copy(update={"split": "validation"})})
    data = {"name": "glyphs"}
    names = list(splits.validation.class_names)
    base.refuse_leak(validating, {"data": data, "train_classes": [], "validation_classes": names}, splits.validation)
    with pytest.raises(ConfigError, match="the base was trained on 5 of the classes"):
        base.refuse_leak(validating, {"data": data, "train_classes": names}, splits.validation)


def test_a_data_set_without_training_classes_says_where_a_base_can_come_from(
    splits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    none = replace(splits, train=splits.train.subset([]))
    monkeypatch.setattr(base, "load_splits", lambda *_: none)
    with pytest.raises(ConfigError, match=r"glyphs has no training classes.*base\.use.*base_data\.name"):
        base.train_and_test(config(), tmp_path, QUIET)
