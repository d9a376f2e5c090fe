"""OML: the meta-gradient, what is learned and what is asked for, and what a base hands over."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.continual.methods.online import Online
from fscl.continual.registry import make_learner
from fscl.data.episode import Episode, sample_episode
from fscl.data.pool import ClassPool, Examples, Splits
from fscl.errors import ConfigError
from fscl.meta.base import BaseLearner
from fscl.meta.oml import Oml
from fscl.meta.protonet import ProtoNet
from fscl.meta.train import episode_accuracy
from fscl.nets.online import online_pass, online_scores
from fscl.nets.params import Params
from fscl.nets.trained import NetworkSpec
from fscl.rng import generator
from tests.meta.small import QUICK, TINY, train


def doubles(learner: BaseLearner, spec: NetworkSpec = TINY) -> Params:
    """Fresh meta-parameters, with rows that are not all zero."""
    meta = learner.init(spec, n_way=5, n_classes=20, generator=generator(0, "init"))
    random = generator(0, "rows")
    meta |= {n: torch.randn(t.shape, generator=random) for n, t in meta.items() if n.startswith("classes/")}
    return {name: tensor.double().requires_grad_() for name, tensor in meta.items()}


def an_episode(pool: ClassPool) -> Episode:
    return sample_episode(pool, n_way=5, n_shot=3, n_query=2, generator=generator(0, "episode"))


def along_and_measured(learner: BaseLearner, episode: Episode, spec: NetworkSpec = TINY) -> tuple[float, float]:
    """The slope of the loss in a random direction: by the learner's gradient, and by two losses close by."""
    meta, random, size = doubles(learner, spec), generator(0, "direction"), 1e-6
    grads = learner.gradients(spec, meta, episode)[1]
    direction = {n: torch.randn(t.shape, generator=random, dtype=t.dtype) for n, t in meta.items()}
    along = sum(float((grad * direction[name]).sum()) for grad, name in zip(grads, meta, strict=True))

    def loss(sign: int) -> float:
        moved = {n: (t + sign * size * direction[n]).detach().requires_grad_() for n, t in meta.items()}
        return learner.loss(spec, moved, episode).item()

    return along, (loss(1) - loss(-1)) / (2 * size)


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize(
    "settings", [{}, {"learn_rate": True}, {"unit": True, "learn_rate": True}, {"fresh": "random"}], ids=str
)
def test_the_meta_gradient_agrees_with_finite_differences(settings: dict[str, Any], norm: str, small_pool: ClassPool):
    learner = Oml(trajectory=3, rate=0.3, **settings)
    spec = TINY.model_copy(update={"norm": norm})
    along, measured = along_and_measured(learner, an_episode(small_pool), spec)
    assert along == pytest.approx(measured, rel=1e-5)


def two_by_two(backbone: Tensor, *, first_order: bool) -> Tensor:
    """The meta-loss of a linear "backbone" of two features, from rows of zero."""
    known = torch.tensor([[1.0, 0.2], [0.4, 1.0], [0.9, -0.3]], dtype=torch.float64) @ backbone
    asked = torch.tensor([[0.8, 0.1], [0.1, 0.7]], dtype=torch.float64) @ backbone
    errors = online_pass(known, torch.tensor([0, 1, 0]), 0.7, torch.zeros(3, 2, dtype=torch.float64))
    if first_order:
        known, errors = known.detach(), errors.detach()
    scores = online_scores(asked, known, errors, 0.7, torch.zeros(2, 2, dtype=torch.float64))
    return cross_entropy(scores, torch.tensor([0, 1]))


def test_differentiating_the_dual_form_is_differentiating_through_the_pass():
    backbone = torch.tensor([[0.5, -0.2], [0.3, 0.9]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda b: two_by_two(b, first_order=False), (backbone,))
    exact, rough = (torch.autograd.grad(two_by_two(backbone, first_order=f), backbone)[0] for f in (False, True))
    assert not torch.allclose(exact, rough, rtol=1e-2)


def test_first_order_is_the_gradient_where_the_head_ended(small_pool: ClassPool):
    learner = Oml(trajectory=3, rate=0.3, first_order=True)
    meta, episode = doubles(learner), an_episode(small_pool)
    grads = dict(zip(meta, learner.gradients(TINY, meta, episode)[1], strict=True))

    network, head = learner.network(TINY, meta), learner.head(meta, episode, 0.0)
    learned, asked = learner.positions(episode)
    features = network.features(network.to_input(episode.support.images[learned])).detach()
    labels = episode.classes[episode.support.labels[learned]]
    weight, bias = head["weight"], head["bias"]
    for feature, label in zip(features, labels, strict=True):  # steps that the gradient does not see
        error = ((weight @ feature + bias).softmax(0)).detach()
        error[label] -= 1
        weight, bias = weight - 0.3 * torch.outer(error, feature), bias - 0.3 * error
    query = network.features(network.to_input(episode.query.images[asked]))
    loss = cross_entropy(query @ weight.T + bias, episode.classes[episode.query.labels[asked]])
    expected = torch.autograd.grad(loss, list(meta.values()), materialize_grads=True)
    for name, other in zip(meta, expected, strict=True):
        torch.testing.assert_close(grads[name], other)


def test_stored_rows_of_the_trajectory_have_no_gradient_and_those_to_remember_have(small_pool: ClassPool):
    learner = Oml(trajectory=3, rate=0.3)
    meta, episode = doubles(learner), an_episode(small_pool)
    grads = dict(zip(meta, learner.gradients(TINY, meta, episode)[1], strict=True))
    assert (grads["classes/weight"][episode.classes[:3]] == 0).all()
    assert (grads["classes/bias"][episode.classes[:3]] == 0).all()
    assert (grads["classes/weight"][episode.classes[3:]].abs().sum(1) > 0).all()


def test_the_first_classes_are_learned_and_of_each_other_one_image_is_asked_for(small_pool: ClassPool):
    episode = an_episode(small_pool)
    learned, asked = Oml(trajectory=3).positions(episode)
    assert learned.tolist() == list(range(9))
    assert asked.tolist() == [0, 1, 2, 3, 4, 5, 6, 8]  # two of each of three classes, one of each of two
    labels = Oml(trajectory=3).scores_after_pass(TINY, doubles(Oml()), episode, 0.0)[1]
    assert labels.tolist() == episode.classes[[0, 0, 1, 1, 2, 2, 3, 4]].tolist()


def test_fresh_rows_are_drawn_for_the_classes_and_the_time(small_pool: ClassPool):
    learner = Oml(trajectory=3, fresh="random")
    meta, episode = doubles(learner), an_episode(small_pool)
    early, again, late = (learner.head(meta, episode, done)["weight"] for done in (0.25, 0.25, 0.5))
    assert torch.equal(early, again)
    drawn, others = episode.classes[:3], episode.classes[3:]
    assert not torch.equal(early[drawn], late[drawn])
    assert torch.equal(early[others], meta["classes/weight"][others])


def test_scores_at_test_are_those_of_the_online_method(small_pool: ClassPool):
    learner = Oml(rate=0.1)
    network = learner.network(TINY, doubles(learner))
    base = replace(network, extras=learner.extras(network, doubles(learner), small_pool))
    student = make_learner("online", base)
    images = torch.cat([small_pool.of_class(label)[:3] for label in range(4)])
    for label in range(0, 4, 2):  # two classes a task, in the order of an episode
        own = slice(3 * label, 3 * label + 6)
        student.learn_task(Examples(images[own], torch.arange(label, label + 2).repeat_interleave(3)))
    support, query = base.embed(images), base.embed(small_pool.images[:40])
    scores = learner.feature_scores(support, torch.arange(4).repeat_interleave(3), query, 4)
    torch.testing.assert_close(student.scores(query), scores, rtol=1e-6, atol=1e-6)  # a base keeps its rate as a float


@pytest.mark.parametrize("unit", [False, True])
def test_a_base_hands_its_learned_rate_to_the_online_method(unit: bool, splits: Splits, tmp_path: Path):
    learner = Oml(trajectory=2, rate=0.05, learn_rate=True, unit=unit)
    trained = train(splits, tmp_path / "c", learner, QUICK.model_copy(update={"n_way": 4, "learning_rate": 0.05}))
    assert set(trained.network.params) == set(ProtoNet().init(TINY, n_way=3, n_classes=4, generator=generator(0)))
    extras = learner.extras(trained.network, trained.meta, splits.train)
    student = make_learner("online", replace(trained.network, extras=extras))
    assert isinstance(student, Online)
    assert student.unit == unit
    assert student.rate == pytest.approx(float(trained.meta["log_rate"].exp()))
    assert student.rate != pytest.approx(0.05, rel=1e-3)


def test_a_base_is_judged_at_the_rate_that_it_has_learned(small_pool: ClassPool):
    meta = doubles(Oml(learn_rate=True)) | {"log_rate": torch.tensor(2.0).log()}
    network = Oml().network(TINY, meta)
    shape = {"n_episodes": 4, "n_way": 5, "n_shot": 3, "n_query": 5, "seed": 0}
    judged, by_hand = (
        episode_accuracy(learner, network, meta if learner.learn_rate else {}, small_pool, **shape)
        for learner in (Oml(learn_rate=True, rate=1e-6), Oml(rate=2.0))
    )
    assert judged == by_hand
    assert judged != episode_accuracy(Oml(rate=1e-6), network, {}, small_pool, **shape)


def test_training_beats_the_untrained_network_at_learning_online(splits: Splits, tmp_path: Path):
    learner = Oml(trajectory=4, rate=0.05)
    spec = QUICK.model_copy(
        update={"steps": 60, "n_way": 8, "n_shot": 3, "validate_every": 20, "learning_rate": 5e-3, "validation_way": 5}
    )
    network = TINY.model_copy(update={"norm": "batch", "width": 16})
    untrained = spec.model_copy(update={"steps": 1, "learning_rate": 1e-9})
    before, after = (train(splits, tmp_path / str(p.steps), learner, p, network) for p in (untrained, spec))

    def online_accuracy(base: Any) -> float:
        shape = {"n_episodes": 30, "n_way": 5, "n_shot": 3, "n_query": 8, "seed": 1}
        return sum(episode_accuracy(learner, base.network, base.meta, splits.test, **shape)) / 30

    assert online_accuracy(after) > online_accuracy(before) + 0.05


def test_an_episode_shorter_than_the_trajectory_is_refused():
    with pytest.raises(ConfigError, match=r"5 classes \(n_way\), but the trajectory alone has 6"):
        doubles(Oml(trajectory=6))
