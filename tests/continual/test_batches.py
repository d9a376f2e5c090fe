"""Which of the replayed shots a step sees, where it does not see all."""

from collections import Counter
from itertools import chain

import pytest
import torch

from fscl.continual.batches import ReplaySet, spread
from fscl.continual.consolidation import Consolidation
from fscl.continual.registry import make_learner
from fscl.data.pool import ClassPool, Examples
from fscl.data.stream import StreamSpec, sample_stream
from fscl.nets.precomputed import precomputed_features
from fscl.nets.trained import NetworkSpec, init_network
from fscl.rng import generator


def replay_of(method: str, n_tasks: int, pool: ClassPool, **settings: int) -> ReplaySet:
    """What the last of some tasks of three classes, three shots each, is learned from."""
    network = init_network(NetworkSpec(width=8, image_size=16), generator(0, "b"))
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
