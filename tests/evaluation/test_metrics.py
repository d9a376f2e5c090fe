"""Metrics against arithmetic on paper."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from fscl.evaluation.metrics import (
    accuracy_curve,
    average_accuracy,
    backward_transfer,
    backward_transfer_curve,
    class_accuracies,
    final_accuracy,
    forgetting,
    forward_transfer,
    mean_interval,
    old_and_new,
    paired_difference,
    performance_drop,
    side_gap,
)
from fscl.evaluation.protocol import restricted_accuracy, top_k_accuracy

NAN = np.nan
R = np.array([[0.9, NAN, NAN], [0.6, 0.8, NAN], [0.7, 0.5, 1.0]])


def test_the_accuracy_curve_averages_over_the_tasks_learned_so_far():
    assert accuracy_curve(R) == pytest.approx([0.9, 0.7, 2.2 / 3])
    assert final_accuracy(R) == pytest.approx(2.2 / 3)
    assert average_accuracy(R) == pytest.approx((0.9 + 0.7 + 2.2 / 3) / 3)


def test_backward_transfer_is_negative_when_accuracy_falls():
    assert backward_transfer(np.array([[0.9, NAN], [0.6, 0.8]])) == pytest.approx(-0.3)
    assert backward_transfer(R) == pytest.approx(((0.7 - 0.9) + (0.5 - 0.8)) / 2)


def test_backward_transfer_along_the_stream_ends_where_the_whole_does():
    assert backward_transfer_curve(R) == pytest.approx([NAN, -0.3, -0.25], nan_ok=True)


def test_forward_transfer_is_what_a_task_is_answered_above_chance_before_it_is_learned():
    assert forward_transfer([None, 0.7, None, 0.5], [0.5, 0.5, 0.25, 0.25]) == pytest.approx((0.2 + 0.25) / 2)
    assert (
        forward_transfer([None, 0.5, None, 0.25], [0.5, 0.5, 0.25, 0.25]) == 0
    )  # guessing, with ever more to guess from
    assert math.isnan(forward_transfer([None, None], [0.5, 0.5]))


def test_old_and_new_must_both_be_good_for_their_harmonic_mean():
    found = old_and_new(R)
    assert found.old == pytest.approx((0.6 + (0.7 + 0.5) / 2) / 2)
    assert found.new == pytest.approx((0.8 + 1.0) / 2)
    assert found.harmonic == pytest.approx((2 * 0.6 * 0.8 / 1.4 + 2 * 0.6 * 1.0 / 1.6) / 2)
    assert old_and_new(np.array([[1.0, NAN], [0.0, 0.0]])).harmonic == 0
    assert math.isnan(old_and_new(np.array([[1.0]])).harmonic)


def test_class_accuracies_are_the_diagonal_of_the_confusion_matrix_as_shares():
    assert class_accuracies(np.array([[3.0, 1.0], [4.0, 0.0]])) == pytest.approx([0.75, 0.0])


def test_forgetting_counts_from_the_best_a_task_ever_had_before_the_end():
    rising = np.array([[0.5, NAN, NAN], [0.9, 0.8, NAN], [0.7, 0.5, 1.0]])
    assert forgetting(rising) == pytest.approx(((0.9 - 0.7) + (0.8 - 0.5)) / 2)


def test_forgetting_is_negative_for_a_task_that_is_best_at_the_end():
    improving = np.array([[0.5, NAN, NAN], [0.6, 0.8, NAN], [0.9, 0.7, 1.0]])
    assert forgetting(improving) == pytest.approx(((0.6 - 0.9) + (0.8 - 0.7)) / 2)  # not (0 + 0.1) / 2


def test_forgetting_and_transfer_of_a_single_task_are_not_numbers():
    assert math.isnan(backward_transfer(np.array([[0.9]])))
    assert math.isnan(forgetting(np.array([[0.9]])))


def test_the_interval_is_students():
    values = [0.91, 0.88, 0.95]
    low, high = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    interval = mean_interval(values)
    assert (interval.mean - interval.half_width, interval.mean + interval.half_width) == pytest.approx((low, high))
    assert math.isnan(mean_interval([0.5]).half_width)


def test_a_paired_difference_is_exact_when_sequences_differ_but_the_gap_does_not():
    interval = paired_difference([0.9, 0.5, 0.7], [0.8, 0.4, 0.6])
    assert interval.mean == pytest.approx(0.1)
    assert interval.half_width == pytest.approx(0, abs=1e-12)


def test_a_difference_is_claimed_from_three_values_or_more_whose_interval_leaves_out_zero():
    assert mean_interval([0.1, 0.11, 0.12]).excludes_zero
    assert mean_interval([-0.1, -0.11, -0.12]).excludes_zero
    assert not mean_interval([0.1, 0.1]).excludes_zero  # two are easily equal by chance
    assert not mean_interval([0.1, -0.1, 0.2]).excludes_zero


def test_a_paired_difference_of_unequal_lengths_is_refused():
    with pytest.raises(ValueError, match="zip"):
        paired_difference([0.9], [0.8, 0.4])


def test_top_five_of_fewer_than_five_classes_counts_every_class():
    scores = torch.tensor([[0.1, 0.9, 0.0], [0.8, 0.1, 0.1]])
    labels = torch.tensor([2, 0])
    assert top_k_accuracy(scores, labels, 1) == 0.5
    assert top_k_accuracy(scores, labels, 5) == 1.0


def test_restricted_accuracy_lets_only_the_tasks_own_classes_answer():
    scores = torch.tensor([[0.9, 0.2, 0.1, 0.0], [0.9, 0.1, 0.2, 0.0]])
    labels = torch.tensor([1, 2])
    assert top_k_accuracy(scores, labels, 1) == 0.0
    assert restricted_accuracy(scores, labels) == 1.0


def test_a_base_session_counts_by_its_classes():
    R = np.array([[0.9, np.nan, np.nan], [0.8, 0.4, np.nan], [0.7, 0.3, 0.6]])
    sizes = (6, 2, 2)
    assert accuracy_curve(R, sizes) == pytest.approx([0.9, (6 * 0.8 + 2 * 0.4) / 8, (6 * 0.7 + 2 * 0.3 + 2 * 0.6) / 10])
    assert final_accuracy(R, sizes) == pytest.approx(0.6)
    assert performance_drop(R, sizes) == pytest.approx(0.3)
    assert old_and_new(R, sizes).old == pytest.approx((0.8 + (6 * 0.7 + 2 * 0.3) / 8) / 2)


def test_tasks_of_equal_size_have_the_plain_mean_to_the_last_bit():
    R = np.array([[0.1, np.nan, np.nan], [0.2, 0.7, np.nan], [0.3, 0.6, 0.8]])
    assert accuracy_curve(R, (5, 5, 5)).tolist() == accuracy_curve(R).tolist()


def test_the_gap_to_the_own_side_weighs_both_sides_the_same():
    nan = float("nan")
    whole = np.array([[0.6, nan], [0.5, 0.4]])
    own = np.array([[0.6, nan], [0.6, 0.9]])
    assert side_gap(whole, own) == pytest.approx((-0.1 - 0.5) / 2)
