"""What every continual method promises, checked on each of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fscl.continual.consolidation import Consolidation
from fscl.continual.learner import ContinualLearner, LearnerState
from fscl.continual.methods import METHODS, make_learner
from fscl.continual.settings import Dials
from fscl.data.pool import Examples
from fscl.data.stream import StreamSpec, Task, sample_stream
from fscl.errors import DataError, StorageError
from fscl.evaluation.probe import ProbeSpec, make_probe
from fscl.nets.network import Network
from fscl.nets.trained import NetworkSpec, init_network
from fscl.rng import generator
from fscl.storage import load_tensors, save_tensors
from tests.conftest import noise_pool

POOL = noise_pool()
STREAM = sample_stream(POOL, StreamSpec(n_tasks=3, n_way=3, n_shot=3, n_query=5), generator(0, "stream"))
TASKS = [STREAM.task(POOL, number) for number in range(3)]


def base(norm: str, backbone: str = "conv4") -> Network:
    spec = NetworkSpec.model_validate({"backbone": backbone, "norm": norm, "width": 8, "image_size": 16})
    network = init_network(spec, generator(0, "base"))
    return replace(network, statistics=network.freeze_statistics(network.to_input(POOL.images[:60])))


SMALL_GENERATOR = {"width": 16, "steps": 2, "critic_steps": 1, "images_per_class": 1}  # as many as shots


def fresh(method: str, network: Network, **settings: float) -> ContinualLearner:
    has_settings = METHODS[method].settings is not None
    given = {"steps": 15, "learning_rate": 5e-3, "generator": SMALL_GENERATOR, **settings}
    return make_learner(method, network, seed=0, settings=given if has_settings else None)


def taught(method: str, network: Network, tasks: list[Task]) -> ContinualLearner:
    learner = fresh(method, network)
    for task in tasks:
        learner.learn_task(task.support)
    return learner


def predicting_twice_gives_one_answer(method: str, network: Network) -> None:
    learner = taught(method, network, TASKS)
    assert torch.equal(learner.predict(POOL.images[:20]), learner.predict(POOL.images[:20]))


def predictions_ignore_the_order_and_the_batch_of_the_test_images(method: str, network: Network) -> None:
    learner = taught(method, network, TASKS)
    query = TASKS[0].query.images
    together, alone = learner.predict(query), torch.cat([learner.predict(image[None]) for image in query])
    torch.testing.assert_close(alone, together, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(learner.predict(query.flip(0)), together.flip(0), rtol=1e-5, atol=1e-5)
    assert torch.equal(alone.argmax(1), together.argmax(1))


def the_base_network_is_untouched(method: str, network: Network) -> None:
    before = {name: tensor.clone() for name, tensor in network.params.items()}
    statistics = {name: tensor.clone() for name, tensor in (network.statistics or {}).items()}
    taught(method, network, TASKS).predict(POOL.images[:5])
    assert all(torch.equal(network.params[name], before[name]) for name in before)
    assert all(torch.equal((network.statistics or {})[name], statistics[name]) for name in statistics)
    assert not any(tensor.requires_grad for tensor in network.params.values())


def inputs_are_neither_changed_nor_kept(method: str, network: Network) -> None:
    mine = Examples(TASKS[0].support.images.clone(), TASKS[0].support.labels.clone())
    learner, other = fresh(method, network), fresh(method, network)
    learner.learn_task(mine)
    other.learn_task(TASKS[0].support)
    assert torch.equal(mine.images, TASKS[0].support.images)
    assert torch.equal(mine.labels, TASKS[0].support.labels)
    mine.images.zero_()  # if the learner kept them, its next task would suffer
    mine.labels.zero_()
    for each in (learner, other):
        each.learn_task(TASKS[1].support)
    assert torch.equal(learner.predict(POOL.images[:20]), other.predict(POOL.images[:20]))


def only_seen_classes_can_be_predicted(method: str, network: Network) -> None:
    learner = fresh(method, network)
    for number, task in enumerate(TASKS, start=1):
        learner.learn_task(task.support)
        assert learner.n_classes == 3 * number
        assert learner.predict(POOL.images[:7]).shape == (7, 3 * number)


def each_class_can_be_predicted_once_it_is_learned(method: str, network: Network) -> None:
    learner = fresh(method, network, steps=60, learning_rate=2e-2)
    for label in range(3):
        image = POOL.of_class(label)[:1]
        learner.learn_task(Examples(image, torch.tensor([label])))
        assert learner.predict(image).argmax(1).item() == label


def one_class_and_one_shot_work(method: str, network: Network) -> None:
    learner = fresh(method, network)
    learner.learn_task(Examples(POOL.images[:1], torch.tensor([0])))
    assert learner.predict(POOL.images[:2]).argmax(1).tolist() == [0, 0]


def a_known_class_may_come_again(method: str, network: Network) -> None:
    learner = taught(method, network, TASKS[:1])
    learner.learn_task(Examples(POOL.images[:4], torch.tensor([3, 1, 3, 0])))
    assert learner.n_classes == 4


def probing_reads_the_learner_and_changes_nothing(method: str, network: Network) -> None:
    spec = ProbeSpec(n_episodes=2, n_way=2, n_shot=2, n_query=3, n_classes=4)
    learner, probe = taught(method, network, TASKS[:2]), make_probe(POOL, spec, seed=0)
    before = learner.state()
    start = learner.starting_point()
    probe.accuracies(start)
    student = Consolidation(start, Dials(steps=2, embedding_steps=2, slow_rate=1, learning_rate=0.1), seed=0)
    student.learn_task(TASKS[0].support)
    student.predict(POOL.images[:2])
    after = learner.state()
    assert before.details == after.details
    assert before.tensors.keys() == after.tensors.keys()
    assert all(torch.equal(before.tensors[name], after.tensors[name]) for name in before.tensors)
    assert start.spec == network.spec


def same_seed_same_bits(method: str, network: Network) -> None:
    one = taught(method, network, TASKS)
    torch.rand(7)  # whatever ran in between
    assert torch.equal(one.predict(POOL.images[:20]), taught(method, network, TASKS).predict(POOL.images[:20]))


def a_saved_learner_learns_the_next_task_identically(method: str, network: Network) -> None:
    learner = taught(method, network, TASKS[:2])
    state = learner.state()
    again = fresh(method, network)
    again.restore(state)
    assert torch.equal(again.predict(POOL.images[:20]), learner.predict(POOL.images[:20]))
    for each in (learner, again):
        each.learn_task(TASKS[2].support)
    assert torch.equal(again.predict(POOL.images[:20]), learner.predict(POOL.images[:20]))


def a_state_is_a_copy(method: str, network: Network) -> None:
    learner = taught(method, network, TASKS[:1])
    state = learner.state()
    before = {name: tensor.clone() for name, tensor in state.tensors.items()}
    learner.learn_task(TASKS[1].support)
    assert all(torch.equal(state.tensors[name], before[name]) for name in before)


def nothing_learned_is_a_clear_error(method: str, network: Network) -> None:
    with pytest.raises(DataError, match="nothing was learned yet"):
        fresh(method, network).predict(POOL.images[:1])


def tasks_that_cannot_be_learned_are_refused(method: str, network: Network) -> None:
    learner = fresh(method, network)
    for images, labels, reason in (
        (POOL.images[:0], torch.zeros(0, dtype=torch.int64), "at least one example"),
        (POOL.images[:2], torch.tensor([0]), "one label an image"),
        (POOL.images[:1], torch.tensor([0], dtype=torch.int32), "labels are int64"),
        (POOL.images[:1], torch.tensor([1]), "the next new one is 0"),
        (POOL.images[:1], torch.tensor([-1]), "numbered from 0"),
    ):
        with pytest.raises(DataError, match=reason):
            learner.learn_task(Examples(images, labels))
    assert learner.n_classes == 0


def a_foreign_state_is_refused(method: str, network: Network) -> None:
    with pytest.raises(StorageError, match="missing or too many"):
        fresh(method, network).restore(LearnerState({"nonsense": torch.zeros(1)}, {"n_tasks": 1}))


CONTRACT: list[Callable[[str, Network], None]] = [
    predicting_twice_gives_one_answer,
    predictions_ignore_the_order_and_the_batch_of_the_test_images,
    the_base_network_is_untouched,
    inputs_are_neither_changed_nor_kept,
    only_seen_classes_can_be_predicted,
    each_class_can_be_predicted_once_it_is_learned,
    one_class_and_one_shot_work,
    a_known_class_may_come_again,
    probing_reads_the_learner_and_changes_nothing,
    same_seed_same_bits,
    a_saved_learner_learns_the_next_task_identically,
    a_state_is_a_copy,
    nothing_learned_is_a_clear_error,
    tasks_that_cannot_be_learned_are_refused,
    a_foreign_state_is_refused,
]


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
@pytest.mark.parametrize("method", METHODS)
def test_contract(method: str, check: Callable[[str, Network], None], norm: str):
    check(method, base(norm))


@pytest.mark.parametrize("method", METHODS)
def test_memory_never_exceeds_its_bound(method: str):
    if METHODS[method].settings is None:
        assert all("images" not in name for name in taught(method, base("group"), TASKS).state().tensors)
        return
    generator = {**SMALL_GENERATOR, "images_per_class": 4}
    size = POOL.images[0].nbytes + 8  # an image and its label
    for bound, held in (  # after one, two and three tasks of three classes
        ({"memory_per_class": 1}, [3, 6, 9]),
        ({"memory_images": 5}, [5, 5, 5]),
        ({"memory_bytes": 4 * size + 1}, [4, 4, 4]),
    ):
        settings = {"steps": 2, "generator": generator, "memory_per_class": "all", **bound}
        learner = make_learner(method, base("group"), seed=0, settings=settings)
        for task, expected in zip(TASKS, held, strict=True):
            learner.learn_task(task.support)
            assert len(learner.state().tensors["memory/images"]) == expected


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("method", ["tsc", "head", "prototypes"])
@pytest.mark.parametrize(
    "check", [the_base_network_is_untouched, predicting_twice_gives_one_answer, same_seed_same_bits]
)
def test_contract_with_a_resnet(method: str, check: Callable[[str, Network], None], norm: str):
    check(method, base(norm, backbone="resnet18"))


@pytest.mark.parametrize("method", METHODS)
def test_a_learner_survives_a_file(method: str, tmp_path: Path):
    learner = taught(method, base("batch"), TASKS[:2])
    state = learner.state()
    save_tensors(tmp_path / "learner.safetensors", "learner", state.tensors, state.details)
    again = fresh(method, base("batch"))
    again.restore(LearnerState(*load_tensors(tmp_path / "learner.safetensors", "learner")))
    for each in (learner, again):
        each.learn_task(TASKS[2].support)
    assert torch.equal(again.predict(POOL.images[:20]), learner.predict(POOL.images[:20]))
