"""Two-step consolidation on a tail: when it moves, what it keeps, and what it forgets."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from fscl.continual.learner import LearnerState
from fscl.continual.tail import learner as learner_module
from fscl.continual.tail.learner import SPEED, TailConsolidation
from fscl.data.pool import Examples
from fscl.errors import Divergence
from fscl.nets.params import Params
from fscl.nets.precomputed import precomputed_features
from fscl.nets.pretrained import pretrained_base
from fscl.rng import generator
from fscl.storage import load_tensors, save_tensors
from fscl.testing import small_base
from tests.continual.tail.cases import PATTERNS, accuracy, learner, lesson, lite0, photographs, weights_equal

QUERY = lesson(0, 10, n=14, start=6)
PROBE = PATTERNS.images[:40]
RIDGE = [{"kind": "ridge", "strength": 0.5}]


def taught(*lessons: Examples, **settings: Any) -> TailConsolidation:
    made = learner(**settings)
    for each in lessons:
        made.learn_task(each)
    return made


def shuffled(examples: Examples, seed: int = 0) -> Examples:
    order = torch.randperm(len(examples), generator=generator(seed, "shuffled"))
    return Examples(examples.images, examples.labels[order])


# whether it moves


def test_where_moving_helps_it_moves_and_answers_better_than_the_frozen_base():
    moved, frozen = taught(lesson(0), lesson(5)), taught(lesson(0), lesson(5), steps=0)
    assert moved.moves_embedding
    assert moved.diagnostics()["slow_rate"] > 0
    assert moved.diagnostics()["gain"] > 0
    assert (frozen.moves_embedding, frozen.diagnostics()["embedding_steps"]) == (False, 0)
    assert accuracy(moved, QUERY) > accuracy(frozen, QUERY) + 0.05
    assert not torch.equal(moved.features(PROBE), moved.network.embed(PROBE))


def test_where_left_out_shots_show_no_gain_nothing_moves_and_features_are_the_base_s_to_the_bit():
    model = taught(shuffled(lesson(0)))
    assert model.diagnostics()["embedding_steps"] > 0  # the tails did learn; what they learned is of no use
    assert (model.moves_embedding, model.diagnostics()["slow_rate"], model.diagnostics()["gain"]) == (False, 0, 0)
    assert torch.equal(model.features(PROBE), model.network.embed(PROBE))
    assert all(weights_equal(each, model.body.base) for each in model.slow)


def test_a_frozen_base_that_does_not_move_answers_to_the_bit_as_the_base():
    base = lite0()
    model = learner(base, steps=1, views=1, seconds_per_lesson=1e3)
    model.learn_task(Examples(photographs(12), torch.arange(2).repeat(6)))  # noise: nothing can be learned
    assert (model.diagnostics()["embedding_steps"], model.moves_embedding) == (1, False)
    assert torch.equal(model.features(photographs(3)), base.embed(photographs(3)))


def test_weights_that_no_longer_pay_go_back_to_the_base_s():
    model = taught(lesson(0), lesson(5))
    assert model.moves_embedding
    planted = [{name: tensor + 2 * torch.randn_like(tensor) for name, tensor in each.items()} for each in model.slow]
    model.slow = planted  # of no use any more
    again = learner(seconds_per_lesson=0)
    again.restore(model.state())
    again.learn_task(lesson(10, 2))
    assert not again.moves_embedding
    assert all(weights_equal(each, model.body.base) for each in again.slow)
    assert torch.equal(again.features(PROBE), model.network.embed(PROBE))


def test_what_answers_is_the_mean_of_two_tails():
    model = taught(lesson(0), lesson(5))
    first, second = model.slow
    assert not weights_equal(first, second)
    weights = dict(model.network.params)
    weights |= {name: (tensor + second[name]) / 2 for name, tensor in first.items()}
    expected = model.network.with_weights(weights, model.network.statistics).embed(PROBE)
    torch.testing.assert_close(model.features(PROBE), expected)
    assert set(first) < set(weights)  # the first blocks stand still


# what a tail may see


def test_planting_anything_in_the_crops_that_a_tail_leaves_out_changes_nothing_of_that_tail(
    monkeypatch: pytest.MonkeyPatch,
):
    found: list[Params] = []

    def recorded(*args: Any, **kwargs: Any) -> Params:
        found.append(real(*args, **kwargs))
        return found[-1]

    real = learner_module.moved
    monkeypatch.setattr(learner_module, "moved", recorded)
    for planted in (False, True):
        model = taught(lesson(0))
        if planted:
            crops = model.codes["crops"].clone()
            crops[model.folds == 0] = 3.0
            model.codes = {**model.codes, "crops": crops}
        found.clear()
        model.learn_task(lesson(5))
        if not planted:
            clean = list(found)
    assert weights_equal(found[0], clean[0])
    assert not weights_equal(found[1], clean[1])


def test_what_is_not_finite_in_the_crops_fails_and_leaves_the_learner_as_it_was():
    model = taught(lesson(0))
    before, answers = model.state(), model.predict(PROBE)
    model.codes = {**model.codes, "crops": torch.full_like(model.codes["crops"], torch.nan)}
    with pytest.raises(Divergence, match=r"tsc_tail diverged in task 2: the loss is nan at step 1, with learning_rate"):
        model.learn_task(lesson(5))
    after = model.state()
    assert before.details == after.details
    assert weights_equal(before.tensors, after.tensors)
    assert torch.equal(model.predict(PROBE), answers)


# keeping


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("cached", [True, False])
def test_a_learner_that_was_saved_and_restored_learns_the_next_lesson_identically(
    norm: Any, cached: bool, tmp_path: Path
):
    model = learner(small_base(norm), regulariser={"kind": "tagging", "strength": 0.01})
    for each in (lesson(0), lesson(5, 1, n=1), lesson(6, 2, n=3)):  # lessons of unlike sizes
        model.learn_task(each)
    assert model.moves_embedding
    state = model.state()
    save_tensors(tmp_path / "learner.safetensors", "learner", state.tensors, state.details)
    again = model.fresh()
    again.restore(
        LearnerState(
            *load_tensors(tmp_path / "learner.safetensors", "learner"),
            state.examples,
            {name: rows.clone() for name, rows in (state.cached or {}).items()} if cached else None,
        )
    )
    assert weights_equal(dict(again.codes), dict(model.codes))
    assert torch.equal(again.predict(PROBE), model.predict(PROBE))
    for each in (model, again):
        each.learn_task(lesson(8, 4))
    assert model.moves_embedding
    assert torch.equal(again.predict(PROBE), model.predict(PROBE))
    one, other = model.state(), again.state()
    assert one.details == other.details
    assert weights_equal(one.tensors, other.tensors)


def test_activations_that_were_lost_are_computed_again_to_the_bit_on_photographs():
    model = learner(lite0(), steps=0, views=2)
    images = photographs(24)
    for start, stop in ((0, 5), (5, 6), (6, 24)):
        model.learn_task(Examples(images[start:stop], torch.arange(start, stop) % 3))
    again = model.fresh()
    again.restore(replace(model.state(), cached=None))
    assert weights_equal(dict(again.codes), dict(model.codes))


def test_what_was_computed_of_pictures_is_not_computed_again_when_they_are_taught_again(
    monkeypatch: pytest.MonkeyPatch,
):
    model, anew, computed = taught(lesson(0)), taught(lesson(0, 7)), []
    again = learner()
    again.reuse(model.state())
    real = type(again.body).codes
    monkeypatch.setattr(
        type(again.body),
        "codes",
        lambda body, images, *a, **k: computed.append(len(images)) or real(body, images, *a, **k),
    )
    again.learn_task(lesson(0, 7))
    assert computed == [12]  # two classes are new
    assert torch.equal(again.predict(PROBE), anew.predict(PROBE))
    again.learn_task(lesson(0, 1, n=2))  # and nothing of the earlier state is held on to
    assert computed == [12, 2]


# time


def test_steps_follow_the_time_of_a_lesson_by_a_count_of_multiply_adds():
    def steps(seconds: float) -> float:
        settings = {"steps": 1000, "seconds_per_lesson": seconds, "slow_rates": (0.5, 1.0), "classes_per_step": 4}
        model = learner(**settings, shots_per_step=3)
        codes = model.body.codes(lesson(0).images, model.settings, seed=0)
        return model._steps(codes, 30, 30)

    cost = 4 * 4 * 8 * 8 * 9 + 2 * 2 * 8 * 8 * 9  # of the last two blocks, for one picture
    judging = 2 * 3 * 30 * cost  # by two tails, each where it stands and at two rates
    embedding, step = 30 * cost, 2 * 3 * 12 * cost  # a step goes forth and back
    for n in (4, 5, 60):
        enough = (judging + embedding + n * step) / SPEED
        assert (steps(enough * 1.0001), steps(enough * 0.9999)) == (n, n - 1 if n > 4 else 0)
    assert steps(0) == 0
    assert steps(1e9) == 1000


def test_more_time_gives_more_steps_the_same_ones_each_time_and_none_without_time():
    found = []
    for seconds in (0.0, 5e-4, 1e-3, 1e6):
        one, other = (taught(lesson(0), steps=30, seconds_per_lesson=seconds) for _ in range(2))
        assert one.diagnostics() == other.diagnostics()
        assert torch.equal(one.predict(PROBE), other.predict(PROBE))
        found.append(one.diagnostics()["embedding_steps"])
    assert found[0] == 0
    assert all(fewer < more for fewer, more in pairwise(found))
    assert found[-1] == 30


def test_a_lesson_without_time_keeps_what_earlier_ones_moved():
    model = taught(lesson(0), lesson(5), seconds_per_lesson=1e6)
    again = learner(seconds_per_lesson=0)
    again.restore(model.state())
    again.learn_task(lesson(10, 2))
    assert again.moves_embedding
    assert again.diagnostics()["slow_rate"] == 0
    assert all(weights_equal(now, before) for now, before in zip(again.slow, model.slow, strict=True))
    assert accuracy(again, lesson(10, 2, n=14, start=6)) > 3 / 12  # three times chance


@pytest.mark.parametrize(("n_new", "seconds"), [(5, 3), (25, 15), (50, 30), (1000, 60)])
def test_the_time_of_a_lesson_grows_with_its_pictures_up_to_a_minute(n_new: int, seconds: float):
    assert learner().settings.seconds_for(n_new) == pytest.approx(seconds)
    assert learner(seconds_per_lesson=7).settings.seconds_for(n_new) == 7


# forgetting


def test_a_class_that_is_forgotten_leaves_the_answers_of_the_others_as_they_were():
    model = taught(lesson(0), lesson(5), heads=RIDGE)
    assert model.moves_embedding
    before, left_out = model.predict(PROBE), model.held_out_scores(*[torch.zeros(0)] * 3)
    assert model.without_class(3)
    kept = [label for label in range(10) if label != 3]
    assert torch.equal(model.predict(PROBE), before[:, kept])
    stored, held = model.memory.stored, model.held
    assert stored is not None
    assert left_out is not None
    assert len(stored) == len(model.folds) == len(model.codes["crops"]) == 54
    assert torch.equal(stored.labels[held["positions"]], held["labels"])
    stay = left_out.labels != 3
    assert torch.equal(held["scores"], left_out.scores[stay][:, kept])
    again = model.fresh()
    again.restore(model.state())
    for each in (model, again):
        each.learn_task(Examples(lesson(10, 1).images, torch.full((6,), 9)))
    assert torch.equal(again.predict(PROBE), model.predict(PROBE))


def test_a_head_that_mixes_classes_cannot_forget_one_and_says_so():
    model = taught(lesson(0), steps=0, heads=[{"kind": "plda"}])
    answers = model.predict(PROBE)
    assert not model.without_class(3)
    assert torch.equal(model.predict(PROBE), answers)


# what cannot move


@pytest.mark.parametrize("kind", ["rows", "pictures"])
def test_a_base_without_stages_learns_heads_only(kind: str):
    if kind == "rows":
        network = precomputed_features(16)
        of = [Examples(each.images.flatten(1)[:, ::16].float() / 255, each.labels) for each in (lesson(0), lesson(5))]
    else:
        torch.manual_seed(0)
        network = pretrained_base(_NoChain(), image_size=16, channels=1)
        of = [lesson(0), lesson(5)]
    assert network.n_stages < 2
    model = learner(network)
    for each in of:
        model.learn_task(each)
    assert (model.diagnostics()["embedding_steps"], model.moves_embedding) == (0, False)
    assert set(model.codes) == {"base"}
    assert accuracy(model, of[0]) > 0.5
    again = model.fresh()
    again.restore(replace(model.state(), cached=None))
    assert torch.equal(again.predict(of[1].images), model.predict(of[1].images))
    left_out = model.held_out_scores(*[torch.zeros(0)] * 3)
    assert left_out is not None
    assert len(left_out.labels) == 60


class _NoChain(nn.Module):
    """Two ways for one input: no chain of stages."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Conv2d(1, 16, 4, 4), nn.Conv2d(1, 16, 4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.one(x).relu().mean((2, 3)), self.other(x).relu().amax((2, 3))], 1)


# bounded memory


def test_classes_whose_shots_were_evicted_stay_predictable():
    model = taught(lesson(0), lesson(5), memory={"kind": "bounded", "images": 7}, steps=0)
    stored = model.memory.stored
    assert stored is not None
    assert stored.labels.tolist() == list(range(7))
    assert model.n_classes == 10
    again = model.fresh()
    again.restore(model.state())
    model.learn_task(lesson(0, 1, n=2, start=6))  # three classes have no shot, not even in the lesson
    again.learn_task(lesson(0, 1, n=2, start=6))
    answers = model.predict(QUERY.images)
    assert answers.shape[1] == 10
    assert torch.equal(answers, again.predict(QUERY.images))
    gone = QUERY.labels >= 7
    assert float((answers.argmax(1) == QUERY.labels)[gone].double().mean()) > 0.5


def test_left_out_scores_have_a_column_for_every_class_or_there_are_none():
    model = taught(lesson(0), lesson(5), memory={"kind": "bounded", "images": 8}, steps=0)
    model.learn_task(lesson(0, 8, n=2, start=6))  # of the last two classes there is no shot
    left_out = model.held_out_scores(*[torch.zeros(0)] * 3)
    assert left_out is None
    assert model.held["scores"].shape[1] == 10
    assert model.without_class(9)
    assert model.predict(PROBE).shape[1] == 9


# settings


@pytest.mark.parametrize("kind", ["ewc", "si", "mas"])
def test_importance_that_is_never_measured_here_cannot_be_set(kind: str):
    with pytest.raises(ValidationError, match=r"none.*constant.*tagging"):
        learner(regulariser={"kind": kind, "strength": 1.0})


def test_tags_hold_the_tails_of_a_learner_nearer_to_where_they_were():
    def distance(**settings: Any) -> float:
        model = taught(lesson(0), lesson(5), slow_rates=(1.0,), **settings)
        assert model.diagnostics()["slow_rate"] == 1
        pairs = [(each[name], tensor) for each in model.slow for name, tensor in model.body.base.items()]
        return float(sum((weights - base).square().sum() for weights, base in pairs))

    held = distance(regulariser={"kind": "tagging", "strength": 10.0})
    assert 0 < held < 0.9 * distance()
