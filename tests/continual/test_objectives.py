"""What the embedding learns by, and the head that goes with it."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import cross_entropy

from fscl.continual.consolidation import Consolidation
from fscl.continual.held_out import stretch
from fscl.continual.memory import GAP, GeneratedImages, ReplayMemory
from fscl.continual.objectives import head_of_means, leave_one_out
from fscl.continual.registry import make_learner
from fscl.data.augment import N_VIEWS, view
from fscl.data.pool import ClassPool, Examples
from fscl.data.stream import StreamSpec, sample_stream
from fscl.nets.params import linear
from fscl.nets.trained import NetworkSpec, init_network
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
    learner = make_learner("tsc", network, seed=0, settings={"embedding_steps": 0, "views": 1})
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
        settings = {"steps": 60, "learning_rate": 1e-2, "stop_loss": stop}
        learner = make_learner("joint", network, seed=0, settings=settings)
        assert isinstance(learner, Consolidation)
        learner.learn_task(task)
        taken.append(learner.diagnostics()["embedding_steps"])
    assert taken[0] == 60
    assert 0 < taken[1] < 60
    assert taken[2] == 0
    assert all(torch.equal(learner.fast[name], network.params[name]) for name in network.params)


def test_a_class_that_is_no_longer_remembered_keeps_the_means_it_had(small_pool: ClassPool):
    network = init_network(NetworkSpec(width=8, image_size=16), generator(0, "b"))
    stream = sample_stream(small_pool, StreamSpec(n_tasks=2, n_way=3, n_shot=3, n_query=5), generator(0, "stream"))
    learner = make_learner("tsc", network, seed=0, settings={"memory": "none"})
    assert isinstance(learner, Consolidation)
    learner.learn_task(stream.task(small_pool, 0).support)
    first = learner.fast_head
    learner.learn_task(stream.task(small_pool, 1).support)
    assert torch.equal(learner.fast_head["weight"][:3], first["weight"])
    assert torch.equal(learner.fast_head["bias"][:3], first["bias"])


def test_without_replay_the_means_of_a_class_go_on_to_be_those_of_all_its_shots(small_pool: ClassPool):
    network = init_network(NetworkSpec(width=8, image_size=16), generator(0, "b"))
    spec = StreamSpec(n_tasks=3, n_way=3, n_shot=2, n_query=5, setting="new_instance")
    stream = sample_stream(small_pool, spec, generator(0, "stream"))
    settings = {"memory": "none", "embedding_steps": 0}
    learner, kept = (make_learner("tsc", network, seed=0, settings=more) for more in (settings, {"embedding_steps": 0}))
    assert isinstance(learner, Consolidation)
    assert isinstance(kept, Consolidation)
    for number in range(3):
        learner.learn_task(stream.task(small_pool, number).support)
        kept.learn_task(stream.task(small_pool, number).support)
    assert len(learner.memory) == 0
    torch.testing.assert_close(learner.fast_head, kept.fast_head)  # which looks at all six shots again
    bounded = make_learner("tsc", network, seed=0, settings={**settings, "memory": {"kind": "bounded", "per_class": 1}})
    assert isinstance(bounded, Consolidation)
    for number in (0, 1, 2, 0, 1, 2):  # the shot that is kept is looked at again and again, and counts once
        bounded.learn_task(stream.task(small_pool, number).support)
    torch.testing.assert_close(bounded.fast_head, kept.fast_head)  # twice the same shots have the same means
    again = make_learner("tsc", network, seed=0, settings=settings)
    again.restore(learner.state())
    for each in (again, learner):
        each.learn_task(stream.task(small_pool, 0).support)
    assert torch.equal(again.predict(small_pool.images[:9]), learner.predict(small_pool.images[:9]))


def test_one_shot_a_class_is_held_by_the_tags_of_earlier_tasks(small_pool: ClassPool):
    network = init_network(NetworkSpec(width=8, image_size=16), generator(0, "b"))
    learner = make_learner("tsc", network, seed=0, settings={"stop_loss": 0.0, "embedding_steps": 3})
    assert isinstance(learner, Consolidation)
    learner.learn_task(Examples(small_pool.images[[0, 1, 20, 21]], torch.tensor([0, 0, 1, 1])))
    tags = learner.regulariser.tensors()["tags"]
    learner.learn_task(Examples(small_pool.images[[40, 60]], torch.tensor([2, 3])))
    assert learner.diagnostics()["pull_ratio"] > 0  # the replayed shots moved the embedding, and it was held
    assert all(torch.equal(tags[name], learner.regulariser.tensors()["tags"][name]) for name in tags)


def test_a_head_that_starts_from_means_answers_like_them_before_it_learns(small_pool: ClassPool):
    network = init_network(NetworkSpec(width=8, image_size=16), generator(0, "b"))
    settings = {"steps": 1, "embedding_steps": 0, "objective": {"head_start": "means"}, "learning_rate": 1e-12}
    learner = make_learner("fsw", network, seed=0, settings=settings)
    learner.learn_task(Examples(small_pool.images[[0, 1, 20, 21]], torch.tensor([0, 0, 1, 1])))
    means = torch.stack([network.embed(small_pool.images[[a, a + 1]]).mean(0) for a in (0, 20)])
    asked = small_pool.images[2:9]
    nearest = torch.cdist(network.embed(asked), means).argmin(1)
    assert torch.equal(learner.predict(asked).argmax(1), nearest)


def test_views_are_fixed_small_changes_of_which_the_first_is_the_image(small_pool: ClassPool):
    images = small_pool.images[:3]
    before = images.clone()
    seen = [view(images, number) for number in range(N_VIEWS)]
    assert torch.equal(seen[0], images)
    assert torch.equal(seen[1][:, :, :, :-1], images[:, :, :, 1:])  # one pixel to the left
    assert torch.equal(seen[3][:, :, :-1], images[:, :, 1:])
    assert all(one.dtype == torch.uint8 and one.shape == images.shape for one in seen)
    assert len({one.numpy().tobytes() for one in seen}) == N_VIEWS
    assert torch.equal(images, before)


def test_an_answer_is_the_mean_of_the_views(small_pool: ClassPool):
    network = init_network(NetworkSpec(width=8, image_size=16), generator(0, "b"))
    learner = make_learner("tsc", network, seed=0, settings={"embedding_steps": 0, "views": 3})
    assert isinstance(learner, Consolidation)
    learner.learn_task(Examples(small_pool.images[[0, 1, 20, 21]], torch.tensor([0, 0, 1, 1])))
    asked = small_pool.images[2:5]
    features = torch.stack([network.embed(view(asked, number)) for number in range(3)]).mean(0)
    torch.testing.assert_close(learner.predict(asked), linear(learner.fast_head, features))


@pytest.mark.parametrize("method", ["gr", "tsc_gr"])
def test_generated_images_take_the_place_of_the_shots(method: str, small_pool: ClassPool):
    network = init_network(NetworkSpec(width=8, image_size=16), generator(0, "b"))
    made = {"width": 16, "steps": 2, "critic_steps": 1, "images_per_class": 4}
    learner = make_learner(method, network, seed=0, settings={"steps": 3, "memory": {"generator": made}})
    assert isinstance(learner, Consolidation)
    labels = torch.tensor([0, 0, 1, 1])
    for first, n_classes in ((0, 2), (40, 4), (2, 4)):  # two classes, two others, the first two again
        shots = Examples(
            small_pool.images[[first, first + 1, first + 20, first + 21]], labels + (2 if first == 40 else 0)
        )
        learner.learn_task(shots)
        stored = learner.memory.stored
        assert stored is not None
        assert torch.bincount(stored.labels).tolist() == [4] * n_classes  # and none of the shots themselves
        assert not any(torch.equal(image, shot) for image in stored.images for shot in small_pool.images)


def test_a_sheet_shows_shots_beside_what_was_generated():
    shots = Examples(torch.full((5, 1, 8, 8), 200, dtype=torch.uint8), torch.tensor([0, 0, 0, 1, 1]))
    made = Examples(torch.zeros(8, 1, 8, 8, dtype=torch.uint8), torch.tensor([0] * 4 + [1] * 4))
    kind, memory = GeneratedImages(), ReplayMemory()
    memory.add(made)
    sheet = np.asarray(Image.open(io.BytesIO(kind.pictures(shots, memory)["generated.png"])))
    assert sheet.shape == (2 * (8 + GAP), 3 * (8 + GAP) + 4 * GAP + 4 * (8 + GAP))
    assert (sheet[:8, :8] == 200).all()
    assert (sheet[:8, 3 * (8 + GAP) + 4 * GAP :][:, :8] == 0).all()


def test_how_far_class_means_are_stretched_is_told_by_their_squared_distances():
    labels = torch.tensor([3, 3, 5, 5])
    before = torch.tensor([[0.0, 0.0], [2.0, 0.0], [4.0, 0.0], [6.0, 0.0]])  # means at 1 and 5
    assert stretch(before, 3 * before, labels) == pytest.approx(9)
    assert stretch(before, before, labels) == 1
    assert stretch(before, torch.zeros_like(before), labels) == 1  # nothing to tell by
    assert stretch(before[:2], 3 * before[:2], labels[:2]) == 1  # one class
