"""IDA in meta-training: what travels with the meta-parameters, the loss by hand, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fscl.data.episode import Episode, sample_episode
from fscl.data.pool import Splits, chosen_classes
from fscl.errors import ConfigError
from fscl.meta.ida import Ida
from fscl.meta.protonet import ProtoNet
from fscl.meta.statistics import base_statistics
from fscl.meta.train import TrainedBase, TrainSpec, meta_train
from fscl.nets.anchors import discriminant_divergence, feature_distance
from fscl.nets.params import Params
from fscl.nets.trained import NetworkSpec, TrainedNetwork, init_network
from fscl.rng import generator
from fscl.testing import noise_pool
from tests.meta.small import QUICK, TINY

POOL = noise_pool()


def start(spec: NetworkSpec = TINY) -> TrainedNetwork:
    """A network that carries class means."""
    network = init_network(spec, generator(0, "start"))
    network = replace(network, statistics=network.freeze_statistics(network.to_input(POOL.images[:60])))
    return replace(network, extras=base_statistics(network, POOL))


def begun(learner: Ida, spec: NetworkSpec = TINY) -> Params:
    meta = learner.init(spec, n_way=3, n_classes=10, generator=generator(0, "init"))
    return learner.started_from(meta, start(spec))


def some_episode() -> Episode:
    return sample_episode(POOL, n_way=3, n_shot=2, n_query=3, generator=generator(0, "episode"))


def train(splits: Splits, path: Path, learner: Ida, spec: TrainSpec = QUICK) -> TrainedBase:
    return meta_train(
        learner, TINY, splits.train, splits.validation, spec, seed=0, checkpoint=path / "c", start=start()
    )


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_at_the_start_the_loss_and_its_gradient_are_those_of_a_prototypical_network(norm: str):
    spec, episode = TINY.model_copy(update={"norm": norm}), some_episode()
    meta = begun(Ida(weight=10), spec)
    own = {name: tensor for name, tensor in meta.items() if not name.startswith(("teacher", "anchors"))}
    plain = {name: tensor.clone().requires_grad_() for name, tensor in own.items()}
    aligned = {name: tensor.clone().requires_grad_() for name, tensor in meta.items()}
    loss, grads = Ida(weight=10).gradients(spec, aligned, episode)
    expected, expected_grads = ProtoNet().gradients(spec, plain, episode)
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
    for name, grad in zip(aligned, grads, strict=True):
        if name in own:
            torch.testing.assert_close(grad, expected_grads[list(own).index(name)], rtol=1e-3, atol=1e-4)
        else:
            assert not grad.any()  # the old network and its anchors stay


@pytest.mark.parametrize("alignment", ["discriminant", "features", "none"])
def test_the_loss_once_weights_have_moved(alignment: str):
    learner = Ida(alignment=alignment, weight=3, temperature=2)  # type: ignore[arg-type]
    meta, episode = begun(learner), some_episode()
    moved = {name: t * (1.0 if name.startswith(("teacher", "anchors")) else 1.3) + 0.0 for name, t in meta.items()}
    moved["norms.3.bias"] = meta["norms.3.bias"] + torch.linspace(0, 1, 4)
    own = learner.network(TINY, moved)
    assert own.params.keys() == start().params.keys()
    x = own.to_input(torch.cat([episode.support.images, episode.query.images]))
    new, old = own.features(x), start().features(x)
    held = {
        "discriminant": 3 * discriminant_divergence(new, old, start().extras["class_means"].float(), 2),
        "features": 3 * feature_distance(new, old, 2),
        "none": torch.zeros(()),
    }
    assert alignment == "none" or held[alignment] > 0.01
    expected = ProtoNet().loss(TINY, own.params, episode) + held[alignment]
    torch.testing.assert_close(learner.loss(TINY, moved, episode), expected)


def test_training_leaves_the_old_network_and_its_anchors_alone_and_new_anchors_join(splits: Splits, tmp_path: Path):
    learner = Ida()
    trained = train(splits, tmp_path, learner, QUICK.model_copy(update={"averaging": 0.5}))
    for name, tensor in start().params.items():
        assert torch.equal(trained.meta[f"teacher/{name}"], tensor)
        assert not torch.equal(trained.meta[name], tensor) or "bias" in name
    anchors = start().extras["class_means"]
    assert torch.equal(trained.meta["anchors"], anchors.float())
    joined = learner.extras(trained.network, trained.meta, splits.train)["class_means"]
    assert torch.equal(joined[: len(anchors)], anchors)
    assert torch.equal(joined[len(anchors) :], base_statistics(trained.network, splits.train)["class_means"])


def test_no_alignment_is_further_training_as_a_prototypical_network(splits: Splits, tmp_path: Path):
    (tmp_path / "other").mkdir()
    one = train(splits, tmp_path, Ida(alignment="none"))
    other = meta_train(
        ProtoNet(), TINY, splits.train, splits.validation, QUICK, seed=0, checkpoint=tmp_path / "d", start=start()
    )
    assert all(torch.equal(one.network.params[name], other.network.params[name]) for name in other.network.params)
    aligned = train(splits, tmp_path / "other", Ida(weight=10))
    assert any(not torch.equal(aligned.network.params[n], other.network.params[n]) for n in other.network.params)


def test_a_training_without_a_start_or_with_weight_decay_or_without_class_means_is_refused(
    splits: Splits, tmp_path: Path
):
    with pytest.raises(ConfigError, match=r"ida goes on from a trained network, but base.start names none"):
        meta_train(Ida(), TINY, splits.train, splits.validation, QUICK, seed=0, checkpoint=tmp_path / "c")
    with pytest.raises(ConfigError, match=r"weight_decay = 0.01 would shrink them"):
        train(splits, tmp_path, Ida(), QUICK.model_copy(update={"weight_decay": 0.01}))
    with pytest.raises(ConfigError, match=r"base.start: ida needs 'class_means'"):
        Ida().check_training(start=replace(start(), extras={}), weight_decay=0)


def test_halves_share_no_class_and_are_all_of_them():
    pool = noise_pool(7, 2)
    halves = [chosen_classes(pool, choice) for choice in ("first_half", "second_half")]  # type: ignore[arg-type]
    assert [len(half) for half in halves] == [3, 4]
    assert halves[0].class_names + halves[1].class_names == pool.class_names
    assert torch.equal(torch.cat([half.images for half in halves]), pool.images)
    assert chosen_classes(pool, "all") is pool


def test_all_classes_go_without_saying_so_that_older_checkpoints_continue():
    assert "classes" not in TrainSpec().model_dump(mode="json")
    assert TrainSpec(classes="first_half").model_dump(mode="json")["classes"] == "first_half"
    assert "steps" not in TrainSpec().model_dump(exclude={"steps"})
