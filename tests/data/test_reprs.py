"""What a prompt shows of data: one short line each, and no pixel."""

import pytest
import torch

from fscl.data.episode import sample_episode
from fscl.data.pool import ClassPool, Splits, split_classes
from fscl.data.stream import Stream, StreamSpec, sample_stream
from fscl.testing import noise_pool

POOL = noise_pool(20, 12)
SPLITS = split_classes(POOL, train=range(10), validation=range(10, 15), test=range(15, 20))


def stream(n_tasks: int = 3) -> Stream:
    spec = StreamSpec(n_tasks=n_tasks, n_way=5, n_shot=2, n_query=3)
    return sample_stream(POOL, spec, torch.Generator().manual_seed(0))


def shown() -> dict[str, object]:
    drawn = stream()
    task = drawn.task(POOL, 0)
    episode = sample_episode(POOL, n_way=5, n_shot=2, n_query=3, generator=torch.Generator().manual_seed(0))
    long = ClassPool("x" * 500, POOL.images, POOL.class_names, POOL.counts)
    empty = Splits(POOL.subset([]), POOL.subset([]), long)
    return {
        "pool": POOL,
        "long": long,
        "splits": SPLITS,
        "empty": empty,
        "examples": task.support,
        "task": task,
        "episode": episode,
        "stream": drawn,
        "plan": drawn.tasks[0],
    }


@pytest.mark.parametrize("name", shown())
@pytest.mark.parametrize("text", [repr, str])
def test_a_prompt_shows_one_short_line(name: str, text: type):
    line = text(shown()[name])
    assert len(line) < 200
    assert "\n" not in line
    assert "tensor" not in line


def test_the_line_says_what_there_is():
    assert repr(POOL) == "<ClassPool 'noise': 20 classes, 240 images of 1×16×16>"
    assert repr(SPLITS) == "<Splits of 'noise (test)': train 10, validation 5, test 5 classes of 1×16×16>"
    assert repr(stream().task(POOL, 0).support) == "<Examples: 10 images of 1×16×16, 5 classes>"
    assert repr(stream()) == ("Stream(pool_name='noise', setting='new_class', n_tasks=3, n_way=5, n_shot=2, n_query=3)")
    assert repr(stream().tasks[0]) == "TaskPlan(n_classes=5, n_support=10, n_query=15)"
