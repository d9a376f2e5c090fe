"""What every continual learner promises, as checks that anyone can run on a method of their own.

    from fscl.testing import check_learner

    def test_my_method_keeps_the_contract():
        check_learner(lambda network: MyMethod(network, MyMethod.Settings(), seed=0))

The classes are random blocky patterns with noise, which a small network tells apart even untrained. Give settings with which
a few steps are enough to learn an example by heart.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from fscl.continual.learner import ContinualLearner, LearnerState
from fscl.data.pool import ClassPool, Examples
from fscl.data.stream import StreamSpec, Task, sample_stream
from fscl.errors import DataError, FsclError, StorageError
from fscl.meta.statistics import statistics_of
from fscl.nets.network import Network
from fscl.nets.norm import NormName
from fscl.nets.trained import BackboneName, NetworkSpec, init_network
from fscl.rng import generator

MakeLearner = Callable[[Network], ContinualLearner]
Check = Callable[[MakeLearner, Network], None]


def noise_pool(
    n_classes: int = 20, n_images: int = 12, *, size: int = 16, channels: int = 1, seed: int = 0
) -> ClassPool:
    """Classes that a small network can tell apart: each a random blocky pattern, each image the pattern with noise.

    Examples:
        >>> noise_pool(3, 2).images.shape
        torch.Size([6, 1, 16, 16])

    Args:
        n_classes: how many patterns there are.
        n_images: images of each.
        size: pixels a side, a multiple of 4.
        channels: of each image.
        seed: of the patterns and the noise.
    """
    random = generator(seed, "noise-pool")
    patterns = torch.rand(n_classes, 1, channels, 4, 4, generator=random).repeat_interleave(size // 4, 3)
    patterns = patterns.repeat_interleave(size // 4, 4)
    noise = 0.35 * torch.randn(n_classes, n_images, channels, size, size, generator=random)
    images = ((patterns + noise).clamp(0, 1) * 255).to(torch.uint8).flatten(0, 1)
    return ClassPool("noise", images, tuple(f"class-{i}" for i in range(n_classes)), (n_images,) * n_classes)


POOL = noise_pool()
STREAM = sample_stream(POOL, StreamSpec(n_tasks=3, n_way=3, n_shot=3, n_query=5), generator(0, "stream"))
TASKS = [STREAM.task(POOL, number) for number in range(3)]


def small_base(norm: NormName = "group", backbone: BackboneName = "conv4") -> Network:
    """A small untrained network for the pictures of `noise_pool`, ready to predict, with statistics of other pictures."""
    network = init_network(NetworkSpec(backbone=backbone, norm=norm, width=8, image_size=16), generator(0, "base"))
    ready = replace(network, statistics=network.freeze_statistics(network.to_input(POOL.images[:60])))
    others = noise_pool(seed=1)
    labels = torch.arange(len(others)).repeat_interleave(torch.tensor(others.counts)) // 4  # four patterns a class
    return replace(ready, extras=statistics_of(ready.embed(others.images), labels))


def check_learner(make_learner: MakeLearner) -> None:
    """Check the whole contract, with GroupNorm and with BatchNorm; an AssertionError names the promise that is broken.

    Examples:
        >>> from fscl import make_learner
        >>> check_learner(lambda network: make_learner("prototypes", network))

    Args:
        make_learner: makes a learner that has learned nothing, on the network that it is given.
    """
    norms: tuple[NormName, ...] = ("group", "batch")
    for check in CONTRACT:
        for norm in norms:
            try:
                check(make_learner, small_base(norm))
            except (
                AssertionError,
                FsclError,
                RuntimeError,
                ArithmeticError,
                LookupError,
                TypeError,
                ValueError,
            ) as error:
                promise = check.__name__.replace("_", " ")
                raise AssertionError(f"not kept, with a base of {norm} norm: {promise}. {error}") from error


def taught(make: MakeLearner, network: Network, tasks: list[Task]) -> ContinualLearner:
    """A learner that has learned some tasks."""
    learner = make(network)
    for task in tasks:
        learner.learn_task(task.support)
    return learner


def predicting_twice_gives_one_answer(make: MakeLearner, network: Network) -> None:
    learner = taught(make, network, TASKS)
    assert torch.equal(learner.predict(POOL.images[:20]), learner.predict(POOL.images[:20]))


def predictions_are_the_scores_of_the_features(make: MakeLearner, network: Network) -> None:
    learner = taught(make, network, TASKS)
    features = learner.features(POOL.images[:20])
    assert features.shape[0] == 20
    assert torch.equal(learner.scores(features), learner.predict(POOL.images[:20]))


def predictions_ignore_the_order_and_the_batch_of_the_test_images(make: MakeLearner, network: Network) -> None:
    learner = taught(make, network, TASKS)
    query = TASKS[0].query.images
    together, alone = learner.predict(query), torch.cat([learner.predict(image[None]) for image in query])
    rounding = 1e-5 * max(1.0, float(together.abs().max()))  # a score may be a small rest of large ones
    torch.testing.assert_close(alone, together, rtol=1e-5, atol=rounding)
    torch.testing.assert_close(learner.predict(query.flip(0)), together.flip(0), rtol=1e-5, atol=rounding)
    assert torch.equal(alone.argmax(1), together.argmax(1))


def the_base_network_is_untouched(make: MakeLearner, network: Network) -> None:
    before = {name: tensor.clone() for name, tensor in network.params.items()}
    statistics = {name: tensor.clone() for name, tensor in (network.statistics or {}).items()}
    taught(make, network, TASKS).predict(POOL.images[:5])
    assert all(torch.equal(network.params[name], before[name]) for name in before)
    assert all(torch.equal((network.statistics or {})[name], statistics[name]) for name in statistics)
    assert not any(tensor.requires_grad for tensor in network.params.values())


def inputs_are_neither_changed_nor_kept(make: MakeLearner, network: Network) -> None:
    mine = Examples(TASKS[0].support.images.clone(), TASKS[0].support.labels.clone())
    learner, other = make(network), make(network)
    learner.learn_task(mine)
    other.learn_task(TASKS[0].support)
    assert torch.equal(mine.images, TASKS[0].support.images)
    assert torch.equal(mine.labels, TASKS[0].support.labels)
    mine.images.zero_()  # if the learner kept them, its next task would suffer
    mine.labels.zero_()
    for each in (learner, other):
        each.learn_task(TASKS[1].support)
    assert torch.equal(learner.predict(POOL.images[:20]), other.predict(POOL.images[:20]))


def only_seen_classes_can_be_predicted(make: MakeLearner, network: Network) -> None:
    learner = make(network)
    for number, task in enumerate(TASKS, start=1):
        learner.learn_task(task.support)
        assert learner.n_classes == 3 * number
        assert learner.predict(POOL.images[:7]).shape == (7, 3 * number)


def each_class_can_be_predicted_once_it_is_learned(make: MakeLearner, network: Network) -> None:
    learner = make(network)
    for label in range(3):
        image = POOL.of_class(label)[:1]
        learner.learn_task(Examples(image, torch.tensor([label])))
        assert learner.predict(image).argmax(1).item() == label


def one_class_and_one_shot_work(make: MakeLearner, network: Network) -> None:
    learner = make(network)
    learner.learn_task(Examples(POOL.images[:1], torch.tensor([0])))
    assert learner.predict(POOL.images[:2]).argmax(1).tolist() == [0, 0]


def a_known_class_may_come_again(make: MakeLearner, network: Network) -> None:
    learner = taught(make, network, TASKS[:1])
    learner.learn_task(Examples(POOL.images[:4], torch.tensor([3, 1, 3, 0])))
    assert learner.n_classes == 4


def answers_stay_finite(make: MakeLearner, network: Network) -> None:
    scores = taught(make, network, TASKS).predict(POOL.images[:20])
    assert not bool(torch.isnan(scores).any())
    assert bool(torch.isfinite(scores.amax(1)).all())


def the_starting_point_can_be_read_without_changing_the_learner(make: MakeLearner, network: Network) -> None:
    learner = taught(make, network, TASKS[:2])
    before, start = learner.state(), learner.starting_point()
    weights = {name: tensor.detach().clone().requires_grad_() for name, tensor in start.params.items()}
    features = start.features(start.to_input(POOL.images[:4]), weights)
    if weights:
        features.sum().backward()
    start.embed(POOL.images[:4], statistics=start.freeze_statistics(start.to_input(POOL.images[:4])))
    assert _same(before, learner.state())
    assert start.spec == network.spec


def same_seed_same_bits(make: MakeLearner, network: Network) -> None:
    one = taught(make, network, TASKS)
    torch.rand(7)  # whatever ran in between
    assert torch.equal(one.predict(POOL.images[:20]), taught(make, network, TASKS).predict(POOL.images[:20]))


def a_saved_learner_learns_the_next_task_identically(make: MakeLearner, network: Network) -> None:
    learner, again = taught(make, network, TASKS[:2]), make(network)
    again.restore(learner.state())
    assert torch.equal(again.predict(POOL.images[:20]), learner.predict(POOL.images[:20]))
    for each in (learner, again):
        each.learn_task(TASKS[2].support)
    assert torch.equal(again.predict(POOL.images[:20]), learner.predict(POOL.images[:20]))


def a_state_is_a_copy(make: MakeLearner, network: Network) -> None:
    learner = taught(make, network, TASKS[:1])
    state = learner.state()
    tensors = {name: tensor.clone() for name, tensor in state.tensors.items()}
    held = state.examples
    examples = None if held is None else Examples(held.images.clone(), held.labels.clone())
    learner.learn_task(TASKS[1].support)
    assert _same(LearnerState(tensors, dict(state.details), examples), state)


def the_examples_that_it_remembers_are_those_of_its_state_and_were_taught(make: MakeLearner, network: Network) -> None:
    learner, before = make(network), None
    for task in TASKS:
        learner.learn_task(task.support)
        remembered, examples = learner.remembered(), learner.state().examples
        if remembered is None or examples is None:
            assert remembered is None
            assert examples is None
            before = None
            continue
        assert _same_examples(remembered.examples, examples)
        images, labels = task.support.images, task.support.labels
        if before is not None:
            images, labels = torch.cat([before.images, images]), torch.cat([before.labels, labels])
        assert _same_examples(Examples(images[remembered.kept], labels[remembered.kept]), examples)
        before = examples


def a_fresh_learner_has_learned_nothing_and_learns_the_same(make: MakeLearner, network: Network) -> None:
    learner = taught(make, network, TASKS)
    again = learner.fresh()
    assert again.n_classes == 0
    for task in TASKS:
        again.learn_task(task.support)
    assert torch.equal(again.predict(POOL.images[:20]), learner.predict(POOL.images[:20]))


def a_class_that_is_taken_out_is_gone_and_the_others_are_as_they_were(make: MakeLearner, network: Network) -> None:
    """Or the learner says that it cannot, and is as before."""
    learner = taught(make, network, TASKS)
    before, state = learner.predict(POOL.images[:20]), learner.state()
    if not learner.without_class(4):
        assert _same(state, learner.state())
        return
    kept = [label for label in range(9) if label != 4]
    assert learner.n_classes == 8
    stays = before.argmax(1) != 4  # who was taken for the class that is gone may be taken for any other
    assert torch.equal(learner.predict(POOL.images[:20]).argmax(1)[stays], before[:, kept].argmax(1)[stays])
    learner.learn_task(Examples(POOL.images[:4], torch.tensor([8, 8, 0, 0])))
    assert learner.n_classes == 9


def nothing_learned_is_a_clear_error(make: MakeLearner, network: Network) -> None:
    with _raises(DataError, "nothing was learned yet"):
        make(network).predict(POOL.images[:1])


def tasks_that_cannot_be_learned_are_refused(make: MakeLearner, network: Network) -> None:
    learner = make(network)
    for images, labels, reason in (
        (POOL.images[:0], torch.zeros(0, dtype=torch.int64), "at least one example"),
        (POOL.images[:2], torch.tensor([0]), "one label an image"),
        (POOL.images[:1], torch.tensor([0], dtype=torch.int32), "labels are int64"),
        (POOL.images[:1], torch.tensor([1]), "the next new one is 0"),
        (POOL.images[:1], torch.tensor([-1]), "numbered from 0"),
    ):
        with _raises(DataError, reason):
            learner.learn_task(Examples(images, labels))
    assert learner.n_classes == 0


def a_foreign_state_is_refused(make: MakeLearner, network: Network) -> None:
    with _raises(StorageError, "missing or too many"):
        make(network).restore(LearnerState({"nonsense": torch.zeros(1)}, {"n_tasks": 1}))


CONTRACT: tuple[Check, ...] = (
    predicting_twice_gives_one_answer,
    predictions_are_the_scores_of_the_features,
    predictions_ignore_the_order_and_the_batch_of_the_test_images,
    the_base_network_is_untouched,
    inputs_are_neither_changed_nor_kept,
    only_seen_classes_can_be_predicted,
    each_class_can_be_predicted_once_it_is_learned,
    one_class_and_one_shot_work,
    a_known_class_may_come_again,
    answers_stay_finite,
    the_starting_point_can_be_read_without_changing_the_learner,
    same_seed_same_bits,
    a_saved_learner_learns_the_next_task_identically,
    a_state_is_a_copy,
    the_examples_that_it_remembers_are_those_of_its_state_and_were_taught,
    a_fresh_learner_has_learned_nothing_and_learns_the_same,
    a_class_that_is_taken_out_is_gone_and_the_others_are_as_they_were,
    nothing_learned_is_a_clear_error,
    tasks_that_cannot_be_learned_are_refused,
    a_foreign_state_is_refused,
)


def _same(one: LearnerState, other: LearnerState) -> bool:
    return (
        one.details == other.details
        and one.tensors.keys() == other.tensors.keys()
        and all(torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items())
        and _same_examples(one.examples, other.examples)
    )


def _same_examples(one: Examples | None, other: Examples | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.equal(one.images.cpu(), other.images.cpu()) and torch.equal(one.labels.cpu(), other.labels.cpu())


@contextmanager
def _raises(kind: type[FsclError], words: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        if words not in str(error):
            raise AssertionError(f"the error says {str(error)!r}, and should say {words!r}") from error
        return
    raise AssertionError(f"nothing was raised, but a {kind.__name__} with {words!r} is expected")
