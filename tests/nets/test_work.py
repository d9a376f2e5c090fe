"""Work: what is counted from shapes is what torch's own counter finds in the operations that run."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fscl.continual.consolidation import Consolidation
from fscl.continual.learner import ContinualLearner
from fscl.continual.registry import find_method, make_learner
from fscl.data.pool import Examples
from fscl.nets.network import Network
from fscl.nets.trained import NetworkSpec, init_network, multiply_adds
from fscl.nets.work import counted_work, current_work
from fscl.rng import generator

SUPPORT = Examples(
    torch.randint(0, 256, (6, 1, 16, 16), dtype=torch.uint8, generator=generator(0, "images")),
    torch.arange(3).repeat_interleave(2),
)
QUICK = {"steps": 4, "embedding_steps": 2}


def base(backbone: str = "conv4") -> Network:
    spec = NetworkSpec.model_validate({"backbone": backbone, "width": 8, "image_size": 16})
    return init_network(spec, generator(0, "base"))


def learn(method: str, **settings: object) -> ContinualLearner:
    known = find_method(method).settings_in_force().model_dump()
    given = {key: value for key, value in {**QUICK, **settings}.items() if key in known}
    return make_learner(method, base(), seed=0, settings=given)


@pytest.mark.parametrize("method", ["fsw", "joint", "head", "ewc", "si", "mas", "stc", "tsc_gated", "neighbour"])
def test_learning_is_counted_as_torch_counts_it(method: str, monkeypatch: pytest.MonkeyPatch):
    """The first convolution's share of the backward pass is counted once by both: no image needs a gradient."""
    monkeypatch.setattr(NetworkSpec, "fits_patches", False)  # the way about it is not counted
    with counted_work() as work:
        learn(method).learn_task(SUPPORT)
    with FlopCounterMode(display=False) as counter:
        learn(method).learn_task(SUPPORT)
    assert work.multiply_adds is not None
    assert 2 * work.multiply_adds == counter.get_total_flops()


def test_distances_of_leave_one_out_are_small_beside_the_network(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(NetworkSpec, "fits_patches", False)
    with counted_work() as work:
        learn("tsc").learn_task(SUPPORT)
    with FlopCounterMode(display=False) as counter:
        learn("tsc").learn_task(SUPPORT)
    assert work.multiply_adds is not None
    assert 2 * work.multiply_adds == pytest.approx(counter.get_total_flops(), rel=0.01)


@pytest.mark.parametrize("method", ["joint", "tsc"])
def test_work_is_that_of_the_convolutions_however_they_are_computed(method: str, monkeypatch: pytest.MonkeyPatch):
    counts = []
    for fits in (True, False):
        monkeypatch.setattr(NetworkSpec, "fits_patches", fits)
        with counted_work() as work:
            learn(method).learn_task(SUPPORT)
        counts.append(work.multiply_adds)
    assert counts[0] == counts[1]


def test_one_convolution_by_hand():
    """Conv-4 of width 8 on 16 × 16: 3 × 3 filters at 16², 8², 4² and 2² places."""
    by_hand = 9 * (1 * 8 * 16**2 + 8 * 8 * (8**2 + 4**2 + 2**2))
    assert multiply_adds(base().spec, trained=False) == by_hand
    assert by_hand * 2 < multiply_adds(base().spec, trained=True) < by_hand * 3


def test_generated_images_make_the_total_unknown():
    generator_settings = {"width": 16, "steps": 1, "critic_steps": 1, "images_per_class": 1}
    with counted_work() as work:
        learn("gr", memory={"generator": generator_settings}).learn_task(SUPPORT)
    assert work.multiply_adds is None


def test_nothing_is_counted_outside_the_block():
    with counted_work() as work:
        pass
    base().embed(SUPPORT.images)
    assert work.multiply_adds == 0
    assert current_work() is None


def test_stored_bytes_are_those_of_weights_memory_and_importance():
    replay, held, slow_and_fast = learn("replay"), learn("ewc"), learn("fsw")
    for learner in (replay, held, slow_and_fast):
        learner.learn_task(SUPPORT)
    assert isinstance(replay, Consolidation)
    embedding = sum(tensor.nbytes for tensor in base().params.values())
    head = 4 * 3 * (base().n_features + 1)
    memory = 6 * (16 * 16 + 8)
    assert replay.stored_bytes() == {"weights": embedding + head, "memory": memory, "importance": 0}
    assert held.stored_bytes() == {"weights": embedding + head, "memory": memory, "importance": embedding}
    assert slow_and_fast.stored_bytes()["weights"] == 2 * (embedding + head)


def test_class_means_keep_sums_and_the_neighbour_keeps_shots():
    means, neighbour = learn("prototypes"), learn("neighbour")
    for learner in (means, neighbour):
        learner.learn_task(SUPPORT)
    embedding = sum(tensor.nbytes for tensor in base().params.values())
    assert means.stored_bytes() == {"weights": embedding + 3 * (4 * base().n_features + 8)}
    assert neighbour.stored_bytes() == {"weights": embedding, "memory": 6 * (4 * base().n_features + 8)}


def test_work_is_counted_where_the_last_map_of_batchnorm_is_a_single_pixel():
    spec = NetworkSpec.model_validate({"backbone": "resnet18", "width": 8, "image_size": 16, "norm": "batch"})
    other = spec.model_copy(update={"norm": "group"})
    assert multiply_adds(spec, trained=True) == multiply_adds(other, trained=True) > 0
