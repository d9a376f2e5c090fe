"""ANML: a gate that is open or shut, what moves along a trajectory, and the two ways to learn one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fscl.continual.registry import make_learner
from fscl.data.pool import ClassPool, Examples, Splits
from fscl.errors import ConfigError
from fscl.meta.anml import Anml
from fscl.meta.oml import Oml
from fscl.meta.shipped import load_base
from fscl.nets.gated import BODY
from fscl.nets.params import Params
from fscl.nets.trained import NetworkSpec
from tests.meta.small import QUICK, TINY, train
from tests.meta.test_oml import along_and_measured, an_episode, doubles

GATED = NetworkSpec(backbone="gated4", width=8, image_size=16)
UNGATED = NetworkSpec(width=8, image_size=16)


def with_gate(meta: Params, opening: float) -> Params:
    """The gate at one value for every picture and feature: the sigmoid of `opening`."""
    shut = {"opening.weight": torch.zeros_like(meta["opening.weight"])}
    shut["opening.bias"] = torch.full_like(meta["opening.bias"], opening)
    return {name: shut.get(name, tensor).detach().requires_grad_() for name, tensor in meta.items()}


def test_with_an_open_gate_it_is_oml(small_pool: ClassPool):
    anml, oml = Anml(trajectory=3, rate=0.3, first_order=False), Oml(trajectory=3, rate=0.3)
    meta, episode = with_gate(doubles(anml, GATED), 50.0), an_episode(small_pool)
    plain = {
        name.removeprefix(BODY): tensor for name, tensor in meta.items() if not name.startswith(("gate.", "opening."))
    }
    losses, grads = zip(
        *(learner.gradients(s, m, episode) for learner, s, m in ((anml, GATED, meta), (oml, UNGATED, plain))),
        strict=True,
    )
    torch.testing.assert_close(*losses, rtol=1e-9, atol=0)
    by_name = dict(zip(meta, grads[0], strict=True))
    for name, grad in zip(plain, grads[1], strict=True):
        torch.testing.assert_close(by_name[name if name.startswith("classes/") else BODY + name], grad)


def test_with_a_shut_gate_features_are_zero_and_all_classes_alike(small_pool: ClassPool):
    anml = Anml(trajectory=3)
    meta = with_gate(doubles(anml, GATED), -1e4)
    features = anml.network(GATED, meta).embed(small_pool.images[:12])
    assert (features == 0).all()
    scores = anml.feature_scores(features, torch.arange(4).repeat_interleave(3), features, 4)
    torch.testing.assert_close(scores, scores[:1].expand_as(scores))  # no picture is told from another
    oneshot = Anml(rate=1e-6).feature_scores(features[:4], torch.arange(4), features, 4)
    torch.testing.assert_close(oneshot.softmax(1), torch.full_like(oneshot, 0.25), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    "settings",
    [{"inner": "head", "learn_rate": True}, {"inner": "body"}, {"inner": "body", "learn_rate": True, "unit": True}],
    ids=str,
)
def test_the_meta_gradient_agrees_with_finite_differences(settings: dict[str, Any], small_pool: ClassPool):
    learner = Anml(trajectory=2, rate=0.05, first_order=False, **settings)
    along, measured = along_and_measured(learner, an_episode(small_pool), GATED)
    assert along == pytest.approx(measured, rel=1e-5)


@pytest.mark.parametrize("first_order", [False, True])
def test_a_body_that_stands_still_is_the_head_alone(first_order: bool, small_pool: ClassPool):
    head, body = (
        Anml(trajectory=2, rate=0.2, first_order=first_order, inner=inner, body_rate=0.0) for inner in ("head", "body")
    )
    meta, episode = doubles(head, GATED), an_episode(small_pool)
    (loss, grads), (other, others) = (learner.gradients(GATED, meta, episode) for learner in (head, body))
    torch.testing.assert_close(loss, other)
    for one, two in zip(grads, others, strict=True):
        torch.testing.assert_close(one, two)


def test_along_a_trajectory_body_and_head_move_and_the_gate_does_not(small_pool: ClassPool):
    learner = Anml(trajectory=2, rate=0.05, inner="body")
    meta, episode = doubles(learner, GATED), an_episode(small_pool)
    network, head = learner.network(GATED, meta), learner.head(meta, episode, 0.0)
    labels = episode.classes[episode.support.labels[:3]]
    weights, moved = learner.adapted(network, head, episode.support.images[:3], labels, 0.05)
    for name, tensor in weights.items():
        assert torch.equal(tensor, meta[name]) != name.startswith(BODY), name
    assert not any(torch.equal(tensor, head[name]) for name, tensor in moved.items())


def test_the_body_takes_the_steps_of_gradient_descent(small_pool: ClassPool):
    learner = Anml(trajectory=2, rate=0.05, body_rate=0.02, inner="body")
    meta, episode = doubles(learner, GATED), an_episode(small_pool)
    network, head = learner.network(GATED, meta), learner.head(meta, episode, 0.0)
    labels = episode.classes[episode.support.labels[:4]]
    found, rows = learner.adapted(network, head, episode.support.images[:4], labels, 0.05)

    weights = {name: tensor.detach().clone().requires_grad_() for name, tensor in network.params.items()}
    own = {name: tensor.detach().clone().requires_grad_() for name, tensor in head.items()}
    body = [tensor for name, tensor in weights.items() if name.startswith(BODY)]
    optimiser = torch.optim.SGD([{"params": body, "lr": 0.02}, {"params": own.values(), "lr": 0.05}])
    for image, label in zip(episode.support.images[:4], labels, strict=True):
        optimiser.zero_grad()
        feature = network.features(network.to_input(image[None]), weights)
        torch.nn.functional.cross_entropy(feature @ own["weight"].T + own["bias"], label[None]).backward()
        optimiser.step()
    for name, tensor in weights.items():
        torch.testing.assert_close(found[name], tensor)
    torch.testing.assert_close(rows["weight"], own["weight"])


@pytest.mark.parametrize("inner", ["head", "body"])
def test_its_base_learns_a_stream_with_any_method(inner: str, splits: Splits, tmp_path: Path):
    learner = Anml.model_validate({"inner": inner, "trajectory": 2})
    trained = train(splits, tmp_path / "c", learner, QUICK.model_copy(update={"steps": 2, "n_way": 4}), GATED)
    extras = learner.extras(trained.network, trained.meta, splits.train)
    replace(trained.network, extras=extras).save(tmp_path / "n.safetensors")
    images = torch.cat([splits.test.of_class(index)[:2] for index in range(3)])
    for method in ("online", "prototypes", "tsc"):
        settings = {"steps": 3, "embedding_steps": 1} if method == "tsc" else {}
        student = make_learner(method, load_base(tmp_path / "n.safetensors"), seed=0, settings=settings)
        student.learn_task(Examples(images, torch.arange(3).repeat_interleave(2)))
        assert student.predict(images).shape == (6, 3)


def test_a_network_that_cannot_serve_is_refused():
    with pytest.raises(ConfigError, match="conv4 has none"):
        doubles(Anml(), TINY)
    with pytest.raises(ConfigError, match="one picture at a time"):
        doubles(Anml(inner="body"), GATED.model_copy(update={"norm": "batch"}))
