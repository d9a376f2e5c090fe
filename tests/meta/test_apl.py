"""Meta-training of APL: its gradient, its writes, what it hands over, and that its continual method does the same."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fscl.continual.registry import make_learner
from fscl.data.episode import Episode, sample_episode
from fscl.data.pool import ClassPool, Splits
from fscl.errors import ConfigError
from fscl.meta.apl import Apl
from fscl.nets.params import Params
from fscl.rng import generator
from fscl.testing import noise_pool
from tests.meta.small import QUICK, TINY, train

LEARNERS = [Apl(hidden=32, batch=4), Apl(hidden=32, batch=4, decoder="labels", n_labels=8)]


def a_meta(learner: Apl) -> Params:
    """Weights away from where they start."""
    meta = learner.init(TINY, n_way=3, n_classes=20, generator=generator(0, "init"))
    random = generator(0, "away")
    return {name: tensor + 0.1 * torch.randn(tensor.shape, generator=random) for name, tensor in meta.items()}


def an_episode(pool: ClassPool, n_way: int = 3) -> Episode:
    return sample_episode(pool, n_way=n_way, n_shot=4, n_query=3, generator=generator(0, "episode"))


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: learner.decoder)
def test_the_gradient_of_the_decoder_agrees_with_finite_differences(learner: Apl):
    meta = {name: tensor.double().requires_grad_() for name, tensor in a_meta(learner).items()}
    episode, random, size = an_episode(noise_pool()), generator(0, "direction"), 1e-6
    grads = dict(zip(meta, learner.gradients(TINY, meta, episode)[1], strict=True))
    # keys are stored without gradients, so only weights that make no keys can be compared
    direction = {n: torch.randn(meta[n].shape, generator=random).double() for n in meta if n.startswith("decoder/")}
    along = sum(float((grads[name] * direction[name]).sum()) for name in direction)
    ahead, behind = (
        learner.loss(TINY, meta | {n: meta[n].detach() + step * d for n, d in direction.items()}, episode).item()
        for step in (size, -size)
    )
    assert along == pytest.approx((ahead - behind) / (2 * size), rel=1e-5)


def test_distances_train_the_encoder_only_where_that_is_asked_for():
    meta = Apl().init(TINY, n_way=3, n_classes=20, generator=generator(0, "init"))  # numbers of slots are -distances
    meta = {name: tensor.requires_grad_() for name, tensor in meta.items()}
    episode = an_episode(noise_pool())
    for asked in (True, False):
        grads = Apl(distance_gradient=asked).gradients(TINY, meta, episode)[1]
        of_encoder = [grad for name, grad in zip(meta, grads, strict=True) if not name.startswith("decoder/")]
        assert any(bool(grad.any()) for grad in of_encoder) is asked


def test_a_memory_fills_with_what_surprises_and_forgets_between_episodes(monkeypatch: pytest.MonkeyPatch):
    sizes: list[int] = []
    original = Apl.prediction_loss

    def watched(self: Apl, weights: Params, keys: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        sizes.append(len(keys))
        assert not keys.requires_grad
        return original(self, weights, keys, *rest)

    monkeypatch.setattr(Apl, "prediction_loss", watched)
    learner, episode = LEARNERS[0], an_episode(noise_pool())
    for threshold, written in ((0.0, None), (1e6, 0)):
        sizes.clear()
        LEARNERS[0].model_copy(update={"threshold": threshold}).loss(TINY, a_meta(learner), episode)
        assert len(sizes) == 4  # three batches of four shots, then the queries
        assert sizes[:2] == [0, 4]  # of nothing every class is a surprise
        if written is None:
            assert sizes == [0, 4, 8, 12]  # nothing is certain
        else:
            assert sizes[-1] < 12  # but for classes that no neighbour has


def test_the_loss_does_not_depend_on_the_numbers_of_the_classes():
    pool, learner = noise_pool(), LEARNERS[0]
    episode, meta = an_episode(pool), a_meta(LEARNERS[0])
    names = torch.tensor([2, 0, 1])
    renamed = replace(
        episode,
        support=replace(episode.support, labels=names[episode.support.labels]),
        query=replace(episode.query, labels=names[episode.query.labels]),
    )
    assert learner.loss(TINY, meta, renamed).item() == pytest.approx(learner.loss(TINY, meta, episode).item(), rel=1e-5)


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: learner.decoder)
def test_the_continual_method_answers_as_validation_did(learner: Apl, splits: Splits, tmp_path: Path):
    spec = QUICK.model_copy(update={"n_shot": 3})
    trained = train(splits, tmp_path / "c", learner, spec, TINY.model_copy(update={"norm": "batch"}))
    handed = learner.extras(trained.network, trained.meta, splits.train)
    assert all(name.startswith("decoder/") and not tensor.requires_grad for name, tensor in handed.items())
    episode = an_episode(splits.test, n_way=5)
    network = replace(trained.network, extras=handed)
    continual = make_learner("apl", network, settings={"write": "all", "decoder": "trained"})
    continual.learn_task(episode.support)
    expected = learner.query_scores(trained.network, trained.meta, episode)
    found = continual.predict(episode.query.images)
    torch.testing.assert_close(found.log_softmax(1), expected.log_softmax(1), rtol=1e-4, atol=1e-4)


def test_learning_helps_with_classes_never_seen(splits: Splits, tmp_path: Path):
    spec = QUICK.model_copy(
        update={
            "steps": 40,
            "n_way": 5,
            "n_shot": 3,
            "validate_every": 40,
            "validation_episodes": 30,
            "learning_rate": 3e-3,
        }
    )
    network = TINY.model_copy(update={"width": 16})
    before, after = (
        train(splits, tmp_path / name, LEARNERS[0], spec.model_copy(update=changed), network).best_accuracy
        for name, changed in (("u", {"steps": 1, "learning_rate": 1e-9}), ("t", {}))
    )
    assert after > before + 0.05


def test_more_ways_than_labels_are_refused():
    learner = Apl(decoder="labels", n_labels=2)
    sentence = r"3 ways has more classes than the decoder's n_labels = 2\. Raise base\.learner"
    with pytest.raises(ConfigError, match=sentence):
        learner.init(TINY, n_way=3, n_classes=20, generator=generator(0, "init"))
    meta = learner.init(TINY, n_way=2, n_classes=20, generator=generator(0, "init"))
    network, episode = learner.network(TINY, meta), an_episode(noise_pool())
    with pytest.raises(ConfigError, match=sentence):
        learner.query_scores(network, meta, episode)
