"""Left-out shots decide: who is left out, how far weights follow, and what is counted once."""

import pytest
import torch

from fscl.continual.tail import choosing
from fscl.continual.tail.choosing import N_TAILS, Choice, choose, folds_for, negative_log_likelihood
from fscl.continual.tail.learner import TailConsolidation
from fscl.data.pool import Examples
from tests.continual.tail.cases import learner, lesson

NONE = torch.zeros(0, dtype=torch.int64)


def test_each_tail_leaves_every_third_shot_of_a_class_out():
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 0])
    assert folds_for(labels, torch.arange(8), NONE).tolist() == [0, 1, -1, 0, 0, 1, -1, 1]


def test_shots_keep_their_fold_and_new_ones_go_on_counting():
    labels = torch.tensor([0, 0, 1, 0, 0, 1])
    known = torch.tensor([1, 0, -1])  # as they may be once others were evicted
    assert folds_for(labels, torch.arange(6), known).tolist() == [1, 0, -1, -1, 0, 1]


def test_duplicates_share_the_fold_of_the_first_of_them_and_count_as_one():
    labels = torch.tensor([0, 0, 0, 0, 0, 1])
    groups = torch.tensor([0, 0, 1, 0, 2, 1])  # the last shows what the third does, under another label
    assert folds_for(labels, groups, NONE).tolist() == [0, 0, 1, 0, -1, 1]
    known = torch.tensor([-1])
    assert folds_for(labels, groups, known).tolist() == [-1, -1, 1, -1, -1, 1]


def test_a_picture_that_is_taught_again_is_left_out_by_the_same_tail():
    model = learner(steps=0)
    model.learn_task(lesson(0))
    before = model.folds.clone()
    model.learn_task(lesson(0, 3))
    assert torch.equal(model.folds[:30], before)
    assert torch.equal(model.folds[30:], before[:18])


def chosen(of: TailConsolidation, *, times: int = 1, labels: torch.Tensor | None = None) -> Choice:
    """The choice among what a learner's tails have learned, every shot stored so many times."""
    stored = of.memory.stored
    assert stored is not None
    n = len(stored)
    labels = stored.labels if labels is None else labels
    return choose(
        of.body,
        [of.body.base] * N_TAILS,
        of.slow,
        {name: torch.cat([rows] * times) for name, rows in of.codes.items()},
        torch.cat([labels] * times),
        torch.cat([of.folds] * times),
        torch.arange(n).repeat(times),
        of.settings,
        n_classes=of.n_classes,
        moved=False,
        extras={},
    )


@pytest.fixture(scope="module")
def moved() -> TailConsolidation:
    model = learner()
    model.learn_task(lesson(0))
    model.learn_task(lesson(5))
    assert model.moves_embedding
    return model


def test_every_left_out_shot_is_judged_once_by_the_tail_that_never_saw_it(moved: TailConsolidation):
    choice, labels = chosen(moved), moved.memory.examples.labels
    assert sorted(choice.positions.tolist()) == torch.where(moved.folds >= 0)[0].tolist()
    for number in range(N_TAILS):
        own = torch.where(moved.folds[choice.positions] == number)[0]
        slow, base = moved.slow[number], moved.body.base
        weights = {name: torch.lerp(tensor, slow[name], choice.slow_rate) for name, tensor in base.items()}
        features, left_out = moved.body.features(moved.codes["whole"], weights), moved.folds == number
        head = moved.settings.heads[choice.head]
        fitted = head.fit(features[~left_out], labels[~left_out], moved.n_classes)
        expected = head.scores(fitted, features[choice.positions[own]])
        torch.testing.assert_close(choice.scores[own], expected, rtol=1e-3, atol=1e-3)


def test_stored_twice_shots_count_once_and_are_worth_no_more(moved: TailConsolidation):
    once, twice = chosen(moved), chosen(moved, times=2)
    assert twice.positions.tolist() == once.positions.tolist()
    assert once.shift != 0
    assert twice.shift == 0  # every shot has a duplicate: what more shots are worth cannot be told
    right = [(each.scores.argmax(1) == torch.arange(10).repeat_interleave(6)[each.positions]) for each in (once, twice)]
    assert float(right[1].double().mean()) == pytest.approx(float(right[0].double().mean()), abs=0.1)


def test_what_more_shots_are_worth_is_told_by_ridge_regression_on_the_frozen_features(moved: TailConsolidation):
    choice, base, labels = chosen(moved), moved.codes["base"], torch.arange(10).repeat_interleave(6)
    ridge = moved.settings.heads[0]

    def right(left_out: torch.Tensor, asked: int) -> bool:
        fitted = ridge.fit(base[~left_out], labels[~left_out], 10)
        return int(ridge.scores(fitted, base[asked : asked + 1]).argmax()) == int(labels[asked])

    positions = choice.positions.tolist()
    one = [right(torch.arange(60) % 6 == asked % 6, asked) for asked in positions]  # of every class
    third = [right(moved.folds == moved.folds[asked], asked) for asked in positions]
    assert choice.shift == pytest.approx((sum(one) - sum(third)) / len(positions))


def test_nothing_moves_by_fewer_left_out_shots_than_ten(monkeypatch: pytest.MonkeyPatch):
    first = lesson(4, 3, n=4)  # of each four, three are left out by one of the tails: nine
    model = learner(confidence=0)
    model.learn_task(Examples(first.images, first.labels - 4))
    assert len(model.held["labels"]) == 12  # each left out alone instead
    assert model.diagnostics()["embedding_steps"] > 0
    assert not model.moves_embedding
    monkeypatch.setattr(choosing, "MIN_JUDGED", 9)
    model = model.fresh()
    model.learn_task(Examples(first.images, first.labels - 4))
    assert model.moves_embedding


def test_a_gain_within_its_error_moves_nothing(moved: TailConsolidation):
    assert chosen(moved).gain > 0
    sure = learner(confidence=1e6)
    sure.restore(moved.state())
    assert (chosen(sure).moved, chosen(sure).slow_rate, chosen(sure).gain) == (False, 0, 0)


def test_labels_are_judged_at_the_temperature_that_suits_them_best():
    scores = torch.tensor([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0], [2.0, 0.0]])
    labels = torch.tensor([0, 1, 0, 1])  # three of four right: the best is log-odds of log 3
    expected = -(0.75 * torch.log(torch.tensor(0.75)) + 0.25 * torch.log(torch.tensor(0.25)))
    found = negative_log_likelihood(scores, labels)
    assert float(found.mean()) == pytest.approx(float(expected), abs=0.01)
    assert torch.equal(negative_log_likelihood(1000 * scores, labels), found)
