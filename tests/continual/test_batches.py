"""Which of the replayed shots a step sees, where it does not see all."""

from collections import Counter
from itertools import chain

import pytest
import torch

from fscl.continual.batches import BatchSource, ReplaySet, spread
from fscl.continual.consolidation import Consolidation
from fscl.continual.registry import make_learner
from fscl.data.pool import ClassPool, Examples
from fscl.data.stream import StreamSpec, sample_stream
from fscl.nets.efficientnet_lite import EfficientNetLite
from fscl.nets.precomputed import precomputed_features
from fscl.nets.pretrained import PretrainedNetwork, pretrained_base
from fscl.nets.trained import NetworkSpec, TrainedNetwork, init_network
from fscl.rng import generator
from fscl.testing import noise_pool


def own_network() -> TrainedNetwork:
    return init_network(NetworkSpec(width=8, image_size=16), generator(0, "b"))


def replay_of(method: str, n_tasks: int, pool: ClassPool, **settings: int) -> ReplaySet:
    """What the last of some tasks of three classes, three shots each, is learned from."""
    network = own_network()
    spec = StreamSpec(n_tasks=n_tasks, n_way=3, n_shot=3, n_query=5)
    stream = sample_stream(pool, spec, generator(0, "stream"))
    learner = make_learner(method, network, seed=0, settings={"steps": 6, "embedding_steps": 3, **settings})
    assert isinstance(learner, Consolidation)
    for number in range(n_tasks - 1):
        learner.learn_task(stream.task(pool, number).support)
    replay = learner._replay(stream.task(pool, n_tasks - 1).support)
    learner.learn_task(stream.task(pool, n_tasks - 1).support)
    assert learner.predict(pool.images[:4]).shape == (4, 3 * n_tasks)
    return replay


def batches_of(replay: ReplaySet, n: int = 20) -> list[list[int]]:
    """The classes of the images of some batches."""
    drawn = [replay.batch() for _ in range(n)]
    assert all(batch is not None and len(batch) == len(set(batch.tolist())) for batch in drawn)
    return [replay.y[batch].tolist() for batch in drawn if batch is not None]


def test_images_are_compared_in_whole_classes_with_the_newest_in_every_step(small_pool: ClassPool):
    batches = batches_of(replay_of("tsc", 3, small_pool, batch_size=15))
    for batch in batches:
        assert sorted(Counter(batch).values()) == [3] * 5
        assert {6, 7, 8} <= set(batch)
    assert set(chain(*batches)) == set(range(9))


def test_such_a_batch_ends_between_classes_where_it_has_room_for_the_task(small_pool: ClassPool):
    (batch,) = batches_of(replay_of("tsc", 2, small_pool, batch_size=14), 1)
    assert len(batch) == 12  # 14 would end within a class


@pytest.mark.parametrize("batch_size", [5, 9, 14])
def test_a_head_sees_every_class_as_often_as_any_other(batch_size: int, small_pool: ClassPool):
    batches = batches_of(replay_of("replay", 3, small_pool, batch_size=batch_size), 300)
    for batch in batches:
        counts = [batch.count(label) for label in range(9)]
        assert len(batch) == batch_size
        assert max(counts) - min(counts) <= 1
    shares = [count / (300 * batch_size) for _, count in sorted(Counter(chain(*batches)).items())]
    assert shares == pytest.approx([1 / 9] * 9, rel=0.2)


def test_batches_teach_a_head_what_all_shots_would():
    """Of whole classes, the newest in every step, they taught it 7 of these 30."""
    random = torch.Generator().manual_seed(0)
    n_classes, n_shot = 30, 5
    means = torch.randn(n_classes, 16, generator=random).double()
    right = []
    for batch_size in ("all", 20):
        learner = make_learner(
            "head", precomputed_features(16), seed=0, settings={"batch_size": batch_size, "learning_rate": 0.05}
        )
        for first in range(0, n_classes, 5):
            labels = torch.arange(first, first + 5).repeat_interleave(n_shot)
            shots = means[labels] + 0.3 * torch.randn(len(labels), 16, generator=random)
            learner.learn_task(Examples(shots, labels))
        right.append(int((learner.predict(means).argmax(1) == torch.arange(n_classes)).sum()))
    assert right == [n_classes, n_classes]


def test_a_task_larger_than_a_batch_shows_some_of_every_class_and_others_each_time(small_pool: ClassPool):
    network = init_network(NetworkSpec(width=8, image_size=16), generator(0, "b"))
    stream = sample_stream(small_pool, StreamSpec(n_tasks=1, n_way=3, n_shot=6, n_query=5), generator(0, "stream"))
    support = stream.task(small_pool, 0).support
    for method, counts in {"fsw": [2, 3, 3], "ewc": [2, 3, 3], "mas": [2, 3, 3], "tsc": [2, 2, 4]}.items():
        settings = {"steps": 2, "embedding_steps": 1, "batch_size": 8, "stop_loss": 0}
        learner = make_learner(method, network, seed=0, settings=settings)
        assert isinstance(learner, Consolidation)
        replay = learner._replay(support)
        batches = [replay.batch() for _ in range(20)]
        assert all(batch is not None and len(batch) == len(set(batch.tolist())) == 8 for batch in batches)
        drawn = torch.cat([batch for batch in batches if batch is not None])
        assert all(sorted(support.labels[batch].bincount().tolist()) == counts for batch in batches)
        assert set(drawn.tolist()) == set(range(18))
        learner.learn_task(support)
        assert learner.predict(small_pool.images[:4]).shape == (4, 3)


def test_images_to_compare_come_in_pairs_where_there_are_more_classes_than_room():
    order = torch.Generator().manual_seed(0)
    labels = torch.arange(20).repeat_interleave(4)
    drawn = labels[spread(labels, 12, order, together=2)]
    assert sorted(Counter(drawn.tolist()).values()) == [2] * 6


# ---- frozen stages ----


def movable_base() -> PretrainedNetwork:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return pretrained_base(EfficientNetLite(), image_size=32).movable(15)


def passed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each call of `to_input` gets from now on."""
    numbers: list[int] = []
    original = PretrainedNetwork.to_input

    def counted(self: PretrainedNetwork, images: torch.Tensor) -> torch.Tensor:
        numbers.append(len(images))
        return original(self, images)

    monkeypatch.setattr(PretrainedNetwork, "to_input", counted)
    return numbers


@pytest.mark.parametrize("method", ["replay", "tsc@untagged", "joint"])
def test_frozen_stages_run_once_for_each_image_of_a_task_however_many_steps_it_takes(
    method: str, monkeypatch: pytest.MonkeyPatch
):
    settings = {"steps": 5, "embedding_steps": 3, "batch_size": 4, "regulariser": "none"}
    learner = make_learner(method, movable_base(), seed=0, settings=settings)
    pool = noise_pool(channels=3)
    stream = sample_stream(pool, StreamSpec(n_tasks=3, n_way=2, n_shot=2, n_query=1), generator(0, "stream"))
    numbers = passed(monkeypatch)
    for number in range(3):
        learner.learn_task(stream.task(pool, number).support)
    assert numbers == [4, 8, 12]
    assert learner.diagnostics()["embedding_steps"] == 3


def test_pictures_are_not_varied_where_that_would_run_frozen_stages_in_every_step():
    asked = {"jitter": 1.0, "mirror": True, "views": 3}
    moves, whole = (make_learner("tsc", base, seed=0, settings=asked) for base in (movable_base(), own_network()))
    assert isinstance(moves, Consolidation)
    assert isinstance(whole, Consolidation)
    assert (moves.settings.jitter, moves.settings.mirror, moves.settings.views) == (0.0, False, 1)
    assert (whole.settings.jitter, whole.settings.mirror, whole.settings.views) == (1.0, True, 3)


def test_batches_that_do_not_vary_are_rows_of_the_inputs_and_those_that_do_are_made_anew(small_pool: ClassPool):
    replay = replay_of("replay", 2, small_pool, batch_size=5)
    network = own_network()
    for jitter, mirror in ((0.0, False), (1.0, False), (0.0, True)):
        state = replay.order.get_state()
        chosen = replay.batch()
        expected = network.features(network.to_input(replay.images[chosen]))
        replay.order.set_state(state)
        features_by, y = BatchSource(network, replay, jitter, mirror, False, False).next()
        features = features_by(network.params, None)
        assert torch.equal(y, replay.y[chosen])
        assert torch.allclose(features, expected, atol=1e-5) == (not jitter and not mirror)


def test_a_shot_alone_in_its_class_comes_in_a_second_variation_and_others_do_not():
    network, images = own_network(), noise_pool().of_class(0)[:3]
    labels = torch.tensor([0, 0, 1])
    replay = ReplaySet(
        network.to_input(images),
        images,
        labels,
        torch.unique(labels),
        3,
        whole_classes=True,
        order=generator(0, "order"),
    )
    features_by, y = BatchSource(network, replay, 1.0, False, True, False).next()
    assert y.tolist() == [0, 0, 1, 1]
    features = features_by(network.params, None)
    assert not torch.allclose(features[2], features[3])  # varied each on its own
    _, as_they_are = BatchSource(network, replay, 0.0, False, True, False).next()
    assert as_they_are.tolist() == [0, 0, 1]  # the same picture twice would teach nothing


@pytest.mark.parametrize(("lone_shots", "n_steps"), [("skip", 0), ("view", 3)])
def test_one_shot_a_class_teaches_by_a_view_that_is_left_out(lone_shots: str, n_steps: int):
    settings = {
        "steps": 5,
        "embedding_steps": 3,
        "stop_loss": 0.0,
        "objective": {"kind": "leave_one_out", "lone_shots": lone_shots},
    }
    learner = make_learner("tsc", own_network(), seed=0, settings=settings)
    pool = noise_pool()
    stream = sample_stream(pool, StreamSpec(n_tasks=1, n_way=2, n_shot=1, n_query=1), generator(0, "stream"))
    learner.learn_task(stream.task(pool, 0).support)
    assert learner.diagnostics()["embedding_steps"] == n_steps
