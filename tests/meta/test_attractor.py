"""Meta-training of AAN: its gradient, what stands still, what it hands over, and that its continual method does the same."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fscl.continual.registry import make_learner
from fscl.data.episode import Episode, sample_episode
from fscl.data.pool import ClassPool, Examples, Splits
from fscl.errors import ConfigError
from fscl.meta.attractor import AttentionAttractor, masked_keys, masked_scores
from fscl.meta.statistics import base_statistics
from fscl.meta.supervised import Supervised
from fscl.meta.train import TrainedBase, TrainSpec, meta_train
from fscl.nets.params import Params
from fscl.nets.trained import TrainedNetwork, init_network
from fscl.rng import generator
from fscl.testing import noise_pool
from tests.meta.small import QUICK, TINY, train

SPEC = TINY.model_copy(update={"norm": "batch", "width": 8})
LEARNER = AttentionAttractor(n_new=2, hidden=4, gamma=0.5, temperature=3.0)


def a_start(pool: ClassPool) -> TrainedNetwork:
    network = init_network(SPEC, generator(0, "base"))
    network = replace(network, statistics=network.freeze_statistics(network.to_input(pool.images[:60])))
    return replace(network, extras=base_statistics(network, pool))


def started(learner: AttentionAttractor, pool: ClassPool) -> Params:
    meta = learner.init(SPEC, n_way=5, n_classes=len(pool), generator=generator(0, "init"))
    random = generator(0, "away from the start")
    return {
        name: tensor + 0.3 * torch.randn(tensor.shape, generator=random) if name.startswith("attractor/") else tensor
        for name, tensor in learner.started_from(meta, a_start(pool)).items()
    }


def an_episode(pool: ClassPool) -> Episode:
    return sample_episode(pool, n_way=5, n_shot=2, n_query=3, generator=generator(0, "episode"))


def training(splits: Splits, tmp_path: Path, learner: AttentionAttractor = LEARNER, **spec: object) -> TrainedBase:
    plan = TrainSpec.model_validate(QUICK.model_dump() | {"n_way": 5, "n_query": 2, "averaging": 0.9} | spec)
    start = a_start(splits.train)
    return meta_train(
        learner, SPEC, splits.train, splits.validation, plan, seed=0, checkpoint=tmp_path / "c", start=start
    )


@pytest.mark.parametrize("attractor", ["attention", "static"])
def test_the_meta_gradient_agrees_with_finite_differences(attractor: str):
    pool, size = noise_pool(10), 1e-4
    learner = LEARNER.model_copy(update={"damping": 0.0, "attractor": attractor})
    meta = {name: tensor.double().requires_grad_() for name, tensor in started(learner, pool).items()}
    episode, random = an_episode(pool), generator(0, "direction")
    grads = dict(zip(meta, learner.gradients(SPEC, meta, episode)[1], strict=True))
    trained = [name for name in meta if name.startswith("attractor/")]
    assert all(bool((grad == 0).all()) for name, grad in grads.items() if name not in trained)
    direction = {name: torch.randn(meta[name].shape, generator=random).double() for name in trained}
    along = sum(float((grads[name] * direction[name]).sum()) for name in trained)
    ahead, behind = (
        learner.loss(SPEC, meta | {n: meta[n].detach() + step * d for n, d in direction.items()}, episode).item()
        for step in (size, -size)
    )
    assert along == pytest.approx((ahead - behind) / (2 * size), rel=1e-5)
    used = trained if attractor == "attention" else ["attractor/static", "attractor/log_gamma"]
    assert all(bool(grads[name].abs().sum() > 0) for name in used)


def test_classes_that_play_new_ones_are_masked_but_keep_their_place():
    rows, features = torch.randn(4, 4).double(), torch.randn(3, 3)
    playing = torch.tensor([2, 0])
    scores, keys = masked_scores(rows, features, playing), masked_keys(rows, playing)
    assert scores[:, playing].unique().tolist() == [-100.0]
    torch.testing.assert_close(scores[:, [1, 3]], features.double() @ rows[[1, 3], :-1].T + rows[[1, 3], -1])
    assert not keys[playing].any()
    assert torch.equal(keys[[1, 3]], rows[[1, 3], :-1])


def test_the_loss_asks_for_queries_of_new_classes_and_one_of_each_base_class():
    pool = noise_pool(10)
    episode, meta = an_episode(pool), started(LEARNER, pool)
    query = episode.query.images.clone()
    unused = [label * 3 + number for label in (2, 3, 4) for number in (1, 2)]
    query[unused] = 0
    changed = replace(episode, query=Examples(query, episode.query.labels))
    assert LEARNER.loss(SPEC, meta, changed).item() == LEARNER.loss(SPEC, meta, episode).item()
    for used in (0, 5, 6, 9, 12):
        query = episode.query.images.clone()
        query[used] = 0
        changed = replace(episode, query=Examples(query, episode.query.labels))
        assert LEARNER.loss(SPEC, meta, changed).item() != LEARNER.loss(SPEC, meta, episode).item()


def test_training_moves_the_attractors_and_nothing_else(splits: Splits, tmp_path: Path):
    trained, start = training(splits, tmp_path), a_start(splits.train)
    assert all(torch.equal(trained.network.params[name], tensor) for name, tensor in start.params.items())
    assert trained.network.statistics is not None
    assert all(torch.equal(trained.network.statistics[name], t) for name, t in (start.statistics or {}).items())
    extras = LEARNER.extras(trained.network, trained.meta, splits.train)
    attention = {"hidden/weight", "hidden/bias", "out/weight", "out/bias", "static", "log_gamma", "tau"}
    assert set(extras) == {f"attractor/{name}" for name in {*attention, "temperature", "centre"}}
    fresh = LEARNER.started_from(
        LEARNER.init(SPEC, n_way=5, n_classes=10, generator=generator(0, "meta", "init")), start
    )
    moved = [name for name, tensor in fresh.items() if not torch.equal(tensor, trained.meta[name])]
    assert moved
    assert all(name.startswith("attractor/") for name in moved)


def test_the_continual_method_answers_as_validation_did(splits: Splits, tmp_path: Path):
    trained = training(splits, tmp_path)
    start = a_start(splits.train)
    extras = start.extras | LEARNER.extras(trained.network, trained.meta, splits.train)
    episode = sample_episode(splits.test, n_way=5, n_shot=2, n_query=3, generator=generator(0, "episode"))
    expected = LEARNER.query_scores(trained.network, trained.meta, episode)
    learner = make_learner("aan", replace(trained.network, extras=extras))
    support = episode.support
    for low in (0, 2, 4):  # n_new at a time
        own = (support.labels >= low) & (support.labels < low + 2)
        learner.learn_task(Examples(support.images[own], support.labels[own]))
    torch.testing.assert_close(learner.predict(episode.query.images).double(), expected, rtol=1e-3, atol=1e-3)


def test_rows_of_a_linear_classifier_are_brought_and_handed_on(splits: Splits, tmp_path: Path):
    supervised = Supervised(classifier="linear")
    trained = train(splits, tmp_path / "s", supervised, network=SPEC)
    brought = supervised.extras(trained.network, trained.meta, splits.train)
    assert (
        supervised.model_copy(update={"classifier": "cosine"}).extras(trained.network, trained.meta, splits.train) == {}
    )
    network = replace(trained.network, extras=brought)
    learner = LEARNER.model_copy(update={"rows": "brings"})
    meta = learner.init(SPEC, n_way=5, n_classes=10, generator=generator(0, "init"))
    meta = learner.started_from(meta, network)
    torch.testing.assert_close(meta["rows/weight"], brought["rows/weight"])
    handed = learner.extras(network, meta, splits.train)
    torch.testing.assert_close(handed["rows/bias"], brought["rows/bias"])


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"weight_decay": 0.1}, r"needs base\.train\.weight_decay = 0"),
        ({"n_way": 2}, r"base\.train\.n_way = 2, of which base\.learner\.n_new = 2 play new classes"),
    ],
)
def test_what_would_spoil_it_is_refused(splits: Splits, tmp_path: Path, spec: dict[str, object], sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        training(splits, tmp_path, **spec)


def test_it_needs_a_network_to_start_from_with_a_row_for_each_class(splits: Splits, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"needs base\.start to name one"):
        train(splits, tmp_path / "c", LEARNER, QUICK.model_copy(update={"n_way": 5}))
    meta = LEARNER.init(SPEC, n_way=5, n_classes=40, generator=generator(0, "init"))
    with pytest.raises(ConfigError, match="rows of 10 classes, and there are 40 training classes"):
        LEARNER.started_from(meta, a_start(splits.train))
