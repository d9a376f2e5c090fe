"""The replay memory: its bounds."""

import pytest
import torch

from fscl.continual.memory import ReplayMemory
from fscl.data.pool import Examples


def test_a_bounded_memory_keeps_the_first_images_of_each_class():
    memory = ReplayMemory(per_class=2)
    images = torch.arange(6, dtype=torch.uint8)[:, None, None, None]
    memory.add(Examples(images, torch.tensor([0, 0, 0, 1, 1, 1])))
    memory.add(Examples(images + 10, torch.tensor([0, 0, 2, 2, 2, 2])))
    assert memory.stored is not None
    assert memory.stored.images.flatten().tolist() == [0, 1, 3, 4, 12, 13]
    assert memory.n_bytes == 6 + 6 * 8


@pytest.mark.parametrize("bound", ["n_images", "n_bytes"])
@pytest.mark.parametrize("room", [0, 1, 5, 7, 100])
def test_a_bound_on_all_images_is_shared_evenly_and_never_exceeded(bound: str, room: int):
    each = 4 + 8  # bytes of a 2×2 image and its label
    memory = ReplayMemory(**{bound: room if bound == "n_images" else room * each + each // 2})
    for task in range(4):
        labels = torch.tensor([2 * task, 2 * task, 2 * task, 2 * task + 1])
        memory.add(Examples(torch.full((4, 1, 2, 2), task, dtype=torch.uint8), labels))
        assert len(memory) == min(room, 4 * (task + 1))  # never more, and never less than there is room for
        assert memory.n_bytes <= room * each
        if memory.stored is not None:
            counts = torch.bincount(memory.stored.labels, minlength=2 * task + 2)
            asked = torch.tensor([3, 1] * (task + 1))
            assert bool(((counts.max() - counts <= 1) | (counts == asked)).all())  # whoever has fewer has no more
    assert (memory.stored is None) == (room == 0)
