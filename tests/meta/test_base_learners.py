"""Base learners: their gradients, what they learn, and what they hand over."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fscl.continual.registry import make_learner
from fscl.data.augment import jittered
from fscl.data.episode import Episode, jittered_episode, sample_episode
from fscl.data.pool import ClassPool, Examples, Splits
from fscl.meta.base import BaseLearner
from fscl.meta.maml import Maml
from fscl.meta.mamlpp import MamlPlusPlus, step_shares
from fscl.meta.protonet import ProtoNet, prototype_scores
from fscl.meta.shipped import load_base
from fscl.meta.supervised import Supervised
from fscl.meta.train import episode_accuracy
from fscl.nets.curvature import part
from fscl.nets.network import Network
from fscl.nets.params import Params
from fscl.nets.trained import NetworkSpec, init_params
from fscl.rng import generator
from fscl.testing import noise_pool
from tests.meta.small import QUICK, TINY, train


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
        head = part(weights)[1]
        scores = network.features(network.to_input(images)) @ head["weight"].T + head["bias"]
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


@pytest.mark.slow
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
    assert list(learner.test_variants(TINY)) == [""]  # GroupNorm looks at one image at a time
    variants = learner.test_variants(spec)
    assert list(variants) == ["", "transductive BatchNorm"]
    assert variants[""] == learner
    together = variants["transductive BatchNorm"]
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
    student = make_learner("tsc", network, seed=0, settings={"steps": 3, "embedding_steps": 1})
    images = torch.cat([splits.test.of_class(index)[:2] for index in range(3)])
    student.learn_task(Examples(images, torch.arange(3).repeat_interleave(2)))
    assert student.predict(images).shape[0] == 6


def test_both_ways_is_the_mean_of_the_loss_and_that_with_support_and_query_exchanged(small_pool: ClassPool):
    meta, episode = doubles(ProtoNet(), TINY), an_episode(small_pool)
    exchanged = replace(episode, support=episode.query, query=episode.support)
    forth, back = (ProtoNet().loss(TINY, meta, each) for each in (episode, exchanged))
    torch.testing.assert_close(ProtoNet(both_ways=True).loss(TINY, meta, episode), (forth + back) / 2)


@pytest.mark.parametrize("scale", [1.0, 7.0])
def test_the_cosine_classifier_scores_all_training_classes_by_scaled_angles(scale: float, small_pool: ClassPool):
    learner = Supervised(classifier="cosine", scale=scale)
    meta, episode = doubles(learner, TINY), an_episode(small_pool)
    network = learner.network(TINY, meta)
    images = torch.cat([episode.support.images, episode.query.images])
    labels = episode.classes[torch.cat([episode.support.labels, episode.query.labels])]
    features = network.features(network.to_input(images))
    cosines = torch.cosine_similarity(features[:, None], meta["classes/weight"][None], dim=2)
    assert cosines.shape == (15, 20)
    torch.testing.assert_close(
        learner.loss(TINY, meta, episode), torch.nn.functional.cross_entropy(scale * cosines, labels)
    )


def test_supervised_features_are_compared_by_their_direction_alone():
    """(3, 0) points as class 0 does and is nearer to class 1; by plain distance class 1 would have it."""
    support, query = torch.tensor([[9.0, 0.0], [2.0, 1.5]]), torch.tensor([[3.0, 0.0]])
    scores = Supervised().feature_scores(support, torch.tensor([0, 1]), query, 2)
    torch.testing.assert_close(scores, torch.tensor([[0.0, -((1 - 0.8) ** 2 + 0.6**2)]]))


@pytest.mark.parametrize("learner", [Maml(zero_head=True), MamlPlusPlus(zero_head=True)], ids=lambda each: each.method)
def test_a_zero_head_starts_at_zero_and_a_backbone_at_random(learner: BaseLearner):
    meta = a_meta(learner, "group")
    assert [name for name, tensor in meta.items() if name.startswith("head/") and tensor.any()] == []
    assert a_meta(learner.model_copy(update={"zero_head": False}), "group")["head/weight"].any()
    assert meta["convs.0.weight"].any()


def test_maml_plus_plus_anneals_with_the_part_of_the_training_that_is_done(small_pool: ClassPool):
    learner = MamlPlusPlus(inner_steps=2, inner_rate=0.3, first_order_until=0.5, multi_step_until=0.25)
    meta, episode = doubles(learner, TINY), an_episode(small_pool)

    def gradients(done: float, **changes: object) -> tuple[Tensor, ...]:
        return learner.model_copy(update=changes).gradients(TINY, meta, episode, done)[1]

    def are_equal(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> bool:
        return all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(one, other, strict=True))

    last_step_alone = {"multi_step_loss": False}
    assert not are_equal(gradients(0.24), gradients(0.24, **last_step_alone))
    assert are_equal(gradients(0.25), gradients(0.25, **last_step_alone))
    assert not are_equal(gradients(0.49), gradients(0.49, first_order_until=0.0))
    assert are_equal(gradients(0.5), gradients(0.5, first_order_until=0.0))
