"""Class pools, streams of tasks, episodes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fscl.data.episode import sample_episode
from fscl.data.pool import ClassPool, Splits, split_classes, with_rotations
from fscl.data.stream import Stream, StreamSpec, listed_stream, sample_stream
from fscl.errors import DataError, StorageError
from fscl.rng import generator
from fscl.testing import noise_pool


def draw(pool: ClassPool, seed: int = 0, **spec: object) -> Stream:
    return sample_stream(pool, StreamSpec.model_validate(spec), generator(seed, "stream"))


def test_a_pool_gives_the_images_of_each_class(small_pool: ClassPool):
    assert len(small_pool) == 20
    assert small_pool.of_class(3).shape == (12, 1, 16, 16)
    assert torch.equal(small_pool.subset([3, 1]).of_class(1), small_pool.of_class(1))


def test_splits_that_share_a_class_are_refused(small_pool: ClassPool):
    one = small_pool.subset([0, 1])
    with pytest.raises(DataError, match="share 1 classes, such as 'class-1'"):
        Splits(one, small_pool.subset([1, 2]), small_pool.subset([3]))
    splits = split_classes(small_pool, train=range(10), validation=range(10, 15), test=range(15, 20))
    assert [len(splits.pool(name)) for name in ("train", "validation", "test")] == [10, 5, 5]


def test_a_pool_refuses_images_that_are_not_bytes():
    with pytest.raises(DataError, match="takes uint8"):
        ClassPool("bad", torch.zeros(2, 1, 4, 4), ("a",), (2,))


def test_a_pool_refuses_two_classes_of_one_name():
    with pytest.raises(DataError, match="same name: a"):
        ClassPool("bad", torch.zeros(2, 1, 4, 4, dtype=torch.uint8), ("a", "a"), (1, 1))


def test_rotations_are_new_classes_and_four_turns_are_none(small_pool: ClassPool):
    rotated = with_rotations(small_pool)
    assert len(rotated) == 80
    quarter = rotated.of_class(rotated.position["class-0@90"])
    assert torch.equal(torch.rot90(quarter, 3, dims=(2, 3)), small_pool.of_class(0))


def test_asking_for_too_many_classes_says_what_would_fit(small_pool: ClassPool):
    with pytest.raises(DataError, match=r"needs 50 classes .* has 20\. Lower n_tasks to 4\."):
        draw(small_pool, n_tasks=10, n_way=5, n_shot=1, n_query=1)
    with pytest.raises(DataError, match=r"Lower n_way to 20 or less"):
        draw(small_pool, n_tasks=1, n_way=21, n_shot=1, n_query=1)


def test_asking_for_too_many_images_says_what_would_fit(small_pool: ClassPool):
    with pytest.raises(DataError, match=r"classes of 20 images each.* at most 12 images each would fit"):
        draw(small_pool, n_tasks=2, n_way=5, n_shot=5, n_query=15)
    with pytest.raises(DataError, match="at most 12"):
        sample_episode(small_pool, n_way=5, n_shot=10, n_query=10, generator=generator(0))


@settings(max_examples=30, deadline=None)
@given(
    n_tasks=st.integers(1, 4),
    n_way=st.integers(1, 4),
    n_shot=st.integers(1, 3),
    n_query=st.integers(1, 3),
    setting=st.sampled_from(["new_class", "new_instance", "mixed"]),
    interval=st.integers(1, 3),
    overwrite=st.booleans(),
    seed=st.integers(0, 5),
)
def test_no_query_image_is_ever_a_shot_and_no_shot_comes_twice(
    n_tasks: int, n_way: int, n_shot: int, n_query: int, setting: str, interval: int, overwrite: bool, seed: int
):
    mixed = {"class_change_interval": interval, "overwrite": overwrite} if setting == "mixed" else {}
    pool = noise_pool(20, 16, size=4)
    stream = draw(pool, seed, n_tasks=n_tasks, n_way=n_way, n_shot=n_shot, n_query=n_query, setting=setting, **mixed)
    shots = [
        (c, i) for task in stream.tasks for c, chosen in zip(task.classes, task.support, strict=True) for i in chosen
    ]
    queries = {
        (c, i) for task in stream.tasks for c, chosen in zip(task.classes, task.query, strict=True) for i in chosen
    }
    assert len(set(shots)) == len(shots) == n_tasks * n_way * n_shot
    assert not queries & set(shots)
    labels = {label for task in stream.tasks for label in task.labels}
    assert labels == set(range(stream.spec.n_labels))


def test_new_class_never_repeats_a_class_and_numbers_labels_in_order_of_arrival(small_pool: ClassPool):
    stream = draw(small_pool, n_tasks=4, n_way=5, n_shot=2, n_query=3)
    names = [name for task in stream.tasks for name in task.classes]
    assert len(set(names)) == 20
    assert [label for task in stream.tasks for label in task.labels] == list(range(20))


def test_new_instance_keeps_the_classes_and_the_queries_and_brings_new_shots(small_pool: ClassPool):
    stream = draw(small_pool, n_tasks=3, n_way=5, n_shot=2, n_query=3, setting="new_instance")
    assert len({task.classes for task in stream.tasks}) == 1
    assert len({task.query for task in stream.tasks}) == 1
    assert len({task.support for task in stream.tasks}) == 3


def test_mixed_changes_classes_every_interval_and_overwrite_uses_labels_again(small_pool: ClassPool):
    spec = {"n_tasks": 4, "n_way": 2, "n_shot": 1, "n_query": 2, "setting": "mixed", "class_change_interval": 2}
    kept, reused = draw(small_pool, **spec), draw(small_pool, **spec, overwrite=True)
    assert [task.labels for task in kept.tasks] == [(0, 1), (0, 1), (2, 3), (2, 3)]
    assert [task.labels for task in reused.tasks] == [(0, 1)] * 4
    assert reused.tasks[0].classes == reused.tasks[1].classes != reused.tasks[2].classes


def test_settings_of_the_mixed_setting_are_refused_elsewhere():
    with pytest.raises(ValueError, match="need setting = 'mixed'"):
        StreamSpec(overwrite=True)


def test_a_task_holds_the_images_it_names(small_pool: ClassPool):
    stream = draw(small_pool, n_tasks=2, n_way=3, n_shot=2, n_query=4)
    task = stream.task(small_pool, 1)
    name, chosen = stream.tasks[1].classes[2], stream.tasks[1].query[2]
    assert task.support.labels.tolist() == [3, 3, 4, 4, 5, 5]
    assert torch.equal(task.query.images[8:], small_pool.of_class(small_pool.position[name])[list(chosen)])


def test_a_stream_file_has_the_same_content_hash_after_loading(small_pool: ClassPool, tmp_path: Path):
    stream = draw(small_pool, n_tasks=3, n_way=5, n_shot=2, n_query=3)
    stream.save(tmp_path / "s.json")
    assert Stream.load(tmp_path / "s.json").content_hash == stream.content_hash
    assert draw(small_pool, n_tasks=3, n_way=5, n_shot=2, n_query=3).content_hash == stream.content_hash
    assert draw(small_pool, 1, n_tasks=3, n_way=5, n_shot=2, n_query=3).content_hash != stream.content_hash


def test_an_altered_stream_file_is_refused(small_pool: ClassPool, tmp_path: Path):
    draw(small_pool, n_tasks=2, n_way=5, n_shot=2, n_query=3).save(tmp_path / "s.json")
    text = (tmp_path / "s.json").read_text()
    (tmp_path / "s.json").write_text(text.replace('"n_shot": 2', '"n_shot": 3'))
    with pytest.raises(StorageError, match="altered"):
        Stream.load(tmp_path / "s.json")


def test_a_stream_is_refused_on_a_pool_with_other_pixels(small_pool: ClassPool):
    stream = draw(small_pool, n_tasks=2, n_way=5, n_shot=2, n_query=3)
    with pytest.raises(DataError, match="other content"):
        stream.task(noise_pool(seed=1), 0)


def test_an_episode_has_equal_classes_and_no_image_twice(small_pool: ClassPool):
    episode = sample_episode(small_pool, n_way=5, n_shot=3, n_query=4, generator=generator(0, "e"))
    assert episode.support.labels.tolist() == [c for c in range(5) for _ in range(3)]
    assert episode.query.labels.tolist() == [c for c in range(5) for _ in range(4)]
    everything = torch.cat([episode.support.images, episode.query.images]).flatten(1)
    assert len(torch.unique(everything, dim=0)) == 35


def test_a_base_session_comes_first_with_its_own_classes_and_shots(small_pool: ClassPool):
    spec = StreamSpec(n_tasks=3, n_way=2, n_shot=1, n_query=4, base_way=4, base_shot=6)
    stream = sample_stream(small_pool, spec, generator(0, "stream"))
    assert [len(task.classes) for task in stream.tasks] == [4, 2, 2]
    assert [len(task.support[0]) for task in stream.tasks] == [6, 1, 1]
    assert spec.task_sizes == (4, 2, 2)
    assert spec.classes_after == (4, 6, 8)
    assert spec.n_labels == 8
    assert [task.labels for task in stream.tasks] == [(0, 1, 2, 3), (4, 5), (6, 7)]


def test_a_stream_without_a_base_session_keeps_its_content_hash(small_pool: ClassPool):
    assert StreamSpec().model_dump()["base_way"] == 0
    assert StreamSpec.model_validate(StreamSpec(base_way=4, base_shot=6).model_dump()).base_way == 4


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"base_way": 4}, "a base session needs both base_way and base_shot, but they are 4 and 0"),
        ({"base_way": 4, "base_shot": 2, "setting": "new_instance"}, "base_way needs setting = 'new_class'"),
    ],
)
def test_half_a_base_session_is_refused(keys: dict[str, Any], reason: str):
    with pytest.raises(ValidationError, match=reason):
        StreamSpec(**keys)


def test_a_base_session_that_the_pool_cannot_serve_says_what_fits(small_pool: ClassPool):
    n = len(small_pool)
    spec = StreamSpec(n_tasks=4, n_way=2, n_shot=1, n_query=4, base_way=n - 3, base_shot=6)
    with pytest.raises(
        DataError, match=rf"needs {n + 3} classes \({n - 3} and then 3 times 2 new ones\).*n_tasks to 2"
    ):
        sample_stream(small_pool, spec, generator(0, "stream"))


def test_a_listed_stream_takes_classes_and_images_in_their_order(small_pool: ClassPool):
    images = torch.cat([small_pool.of_class(i)[: 6 if i < 3 else 4] for i in range(7)])
    pool = ClassPool("listed", images, small_pool.class_names[:7], (6, 6, 6, 4, 4, 4, 4))
    spec = StreamSpec(n_tasks=3, n_way=2, n_shot=1, n_query=3, base_way=3, base_shot=3)
    stream = listed_stream(pool, spec)
    assert [task.classes for task in stream.tasks] == [
        pool.class_names[:3],
        pool.class_names[3:5],
        pool.class_names[5:7],
    ]
    assert stream.tasks[0].support == ((0, 1, 2),) * 3
    assert stream.tasks[0].query == ((3, 4, 5),) * 3
    assert stream.tasks[2].support == ((0,),) * 2
    assert stream.tasks[2].query == ((1, 2, 3),) * 2
    with pytest.raises(
        DataError, match=r"task 1 takes 2 shots and 3 queries a class, but class .* has 6 images.*base_shot"
    ):
        listed_stream(pool, StreamSpec(n_tasks=3, n_way=2, n_shot=1, n_query=3, base_way=3, base_shot=2))
