"""What the embedding learns by, and the head that goes with it."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from fscl.continual.consolidation import Consolidation
from fscl.continual.methods import make_learner
from fscl.continual.objectives import head_of_means, leave_one_out
from fscl.data.pool import ClassPool, Examples
from fscl.data.stream import StreamSpec, sample_stream
from fscl.nets.fast import linear
from fscl.nets.network import NetworkSpec, init_network
from fscl.rng import generator


def test_leaving_one_out_is_what_it_says():
    features = torch.rand(7, 4, generator=generator(0, "features"), dtype=torch.float64)
    labels = torch.tensor([5, 2, 5, 2, 5, 9, 2])  # 9 has one shot: it is a mean to be told from, and is not asked
    losses = []
    for asked in [0, 1, 2, 3, 4, 6]:
        rest = torch.arange(7) != asked
        means = torch.stack([features[rest & (labels == label)].mean(0) for label in (2, 5, 9)])
        distances = (features[asked] - means).square().sum(1)
        target = torch.tensor((2, 5, 9).index(int(labels[asked])))
        losses.append(cross_entropy(-distances / 3.0, target))
    found = leave_one_out(features, labels, temperature=3.0)
    assert found is not None
    torch.testing.assert_close(found, torch.stack(losses).mean())


def test_with_one_shot_a_class_there_is_nothing_to_leave_out():
    assert leave_one_out(torch.rand(3, 2), torch.tensor([0, 1, 2]), 1.0) is None


def test_a_head_of_means_scores_by_distance_and_leaves_other_rows():
    features, labels = torch.rand(6, 4, generator=generator(0, "features")), torch.tensor([0, 0, 2, 2, 2, 0])
    old = {"weight": torch.ones(3, 4), "bias": torch.full((3,), 7.0)}
    head = head_of_means(old, features, labels, temperature=2.0)
    assert torch.equal(head["weight"][1], old["weight"][1])
    assert head["bias"][1] == 7.0
    means = torch.stack([features[labels == label].mean(0) for label in (0, 2)])
    distances = torch.cdist(features, means).square()
    scores = linear(head, features)[:, [0, 2]]
    torch.testing.assert_close(scores[:, 0] - scores[:, 1], (distances[:, 1] - distances[:, 0]) / 2.0)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_without_a_step_leave_one_out_answers_like_class_means(norm: str, small_pool: ClassPool):
    network = init_network(NetworkSpec.model_validate({"norm": norm, "width": 8, "image_size": 16}), generator(0, "b"))
    stream = sample_stream(small_pool, StreamSpec(n_tasks=2, n_way=3, n_shot=3, n_query=5), generator(0, "stream"))
    learner = make_learner("tsc", network, seed=0, dials={"embedding_steps": 0, "views": 1})
    assert isinstance(learner, Consolidation)
    tasks = [stream.task(small_pool, number) for number in range(2)]
    for task in tasks:
        learner.learn_task(task.support)
    both = Examples(*(torch.cat([getattr(task.support, part) for task in tasks]) for part in ("images", "labels")))
    statistics = network.freeze_statistics(network.to_input(both.images))
    features = network.embed(both.images, statistics=statistics)
    means = torch.stack([features[both.labels == label].mean(0) for label in range(6)])
    asked = tasks[0].query.images
    nearest = torch.cdist(network.embed(asked, statistics=statistics), means).argmin(1)
    assert torch.equal(learner.predict(asked).argmax(1), nearest)


def test_the_embedding_stands_still_once_its_loss_is_low(small_pool: ClassPool):
    network = init_network(NetworkSpec(width=8, image_size=16), generator(0, "b"))
    task = Examples(small_pool.images[[0, 1, 20, 21]], torch.tensor([0, 0, 1, 1]))
    taken = []
    for stop in (0.0, 0.5, 100.0):
        dials = {"steps": 60, "learning_rate": 1e-2, "stop_loss": stop}
        learner = make_learner("joint", network, seed=0, dials=dials)
        assert isinstance(learner, Consolidation)
        learner.learn_task(task)
        taken.append(learner.diagnostics()["embedding_steps"])
    assert taken[0] == 60
    assert 0 < taken[1] < 60
    assert taken[2] == 0
    assert all(torch.equal(learner.fast[name], network.params[name]) for name in network.params)


def test_a_batch_is_of_whole_classes_with_the_newest_in_every_step(small_pool: ClassPool):
    network = init_network(NetworkSpec(width=8, image_size=16), generator(0, "b"))
    stream = sample_stream(small_pool, StreamSpec(n_tasks=3, n_way=3, n_shot=3, n_query=5), generator(0, "stream"))
    learner = make_learner("fsw", network, seed=0, dials={"steps": 6, "embedding_steps": 3, "batch_size": 15})
    assert isinstance(learner, Consolidation)
    for number in range(2):
        learner.learn_task(stream.task(small_pool, number).support)
    replay = learner._replay(stream.task(small_pool, 2).support)
    seen = set()
    for _ in range(20):
        chosen = replay.batch()
        assert chosen is not None
        classes, counts = replay.y[chosen].unique(return_counts=True)
        assert counts.tolist() == [3] * 5
        assert {6, 7, 8} <= set(classes.tolist())
        seen |= set(classes.tolist())
    assert seen == set(range(9))
    learner.learn_task(stream.task(small_pool, 2).support)
    assert learner.predict(small_pool.images[:4]).shape == (4, 9)
