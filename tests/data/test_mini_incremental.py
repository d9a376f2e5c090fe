"""Streams that begin with known classes, asked with images that no base is trained on."""

import pytest
import torch

from fscl.data.pool import ClassPool, Splits
from fscl.data.sets.mini_incremental import INCREMENTAL, KNOWN, known_and_new, known_first_stream
from fscl.data.stream import StreamSpec
from fscl.errors import DataError
from tests.conftest import real_path

N_KNOWN = 4
SPEC = StreamSpec(n_tasks=3, n_way=2, n_shot=3, n_query=2, base_way=N_KNOWN, base_shot=5)


def pool(name: str, n_classes: int, first: int) -> ClassPool:
    """20 images a class, each of one value of its own."""
    values = torch.arange(n_classes * 20) % 256
    images = values[:, None, None, None].to(torch.uint8).expand(-1, 1, 16, 16).clone()
    images[:, 0, 0, 0] = torch.arange(n_classes).repeat_interleave(20).to(torch.uint8) + first
    return ClassPool(name, images, tuple(f"class{first + index}" for index in range(n_classes)), (20,) * n_classes)


@pytest.fixture
def splits() -> Splits:
    return known_and_new(Splits(pool("a", N_KNOWN, 0), pool("b", 3, 50), pool("c", 6, 100)))


def drawn(splits: Splits, seed: int = 0, **changes: int):
    spec = SPEC.model_copy(update=changes)
    return known_first_stream(splits.test, spec, torch.Generator().manual_seed(seed), n_known=N_KNOWN)


def test_held_out_images_of_known_classes_are_asked_and_never_trained_on(splits: Splits):
    assert splits.train.counts == (18,) * N_KNOWN
    assert splits.known == set(splits.train.class_names)
    trained = {image.numpy().tobytes() for image in splits.train.images}
    task = drawn(splits).task(splits.test, 0)
    assert not {image.numpy().tobytes() for image in task.query.images} & trained
    assert {image.numpy().tobytes() for image in task.support.images} <= trained
    assert task.support.labels.tolist() == [label for label in range(N_KNOWN) for _ in range(5)]


def test_known_classes_come_first_in_their_order_and_new_ones_are_drawn(splits: Splits):
    stream = drawn(splits)
    assert stream.tasks[0].classes == splits.train.class_names
    assert [task.labels for task in stream.tasks[1:]] == [(4, 5), (6, 7)]
    new = [name for task in stream.tasks[1:] for name in task.classes]
    assert len(set(new)) == 4
    assert not set(new) & splits.known
    orders = {tuple(task.classes for task in drawn(splits, seed).tasks) for seed in range(6)}
    assert len(orders) > 1
    assert drawn(splits) == stream


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"base_way": 3}, "begins with all 4 known classes"),
        ({"n_tasks": 1}, "Set base_way = 4 and n_tasks = 2 or more"),
        ({"n_query": 3}, "has 2 images held out and 18 others, but stream.n_query is 3"),
        ({"base_shot": 19}, "stream.base_shot 19. Lower them"),
    ],
)
def test_a_stream_that_cannot_be_drawn_is_refused(splits: Splits, changes: dict[str, int], sentence: str):
    with pytest.raises(DataError, match=sentence):
        drawn(splits, **changes)


def test_the_validation_side_has_no_new_classes(splits: Splits):
    with pytest.raises(DataError, match="none of them new"):
        INCREMENTAL.draw_stream(splits.validation, SPEC, torch.Generator())


@pytest.mark.slow
def test_the_real_set_has_64_known_classes_and_20_others():
    splits = INCREMENTAL.load(INCREMENTAL.Options(path=real_path("mini/miniimagenet_64x64.tar")))
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (64, 16, 84)
    assert set(splits.train.counts) == {270}
    assert splits.test.class_names[:64] == KNOWN
