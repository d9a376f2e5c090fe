"""Verdicts on differences: checked against scipy's own tests, and against Holm's example by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from fscl.evaluation.metrics import Interval, mean_interval
from fscl.evaluation.verdicts import holm, p_of_difference, p_of_level, verdicts


def some_differences(mean: float, n: int = 12, seed: int = 0) -> list[float]:
    return list(np.random.default_rng(seed).normal(mean, 1.0, n))


def test_the_p_value_is_that_of_a_t_test() -> None:
    values = some_differences(0.4)
    assert p_of_difference(mean_interval(values)) == pytest.approx(stats.ttest_1samp(values, 0).pvalue)


@pytest.mark.parametrize("mean", [0.3, -0.3, 2.0])
def test_level_is_the_worse_of_two_one_sided_tests(mean: float) -> None:
    values = some_differences(mean)
    above = stats.ttest_1samp(values, -1, alternative="greater").pvalue
    below = stats.ttest_1samp(values, 1, alternative="less").pvalue
    assert p_of_level(mean_interval(values), 1) == pytest.approx(max(above, below))


def test_holm_multiplies_by_how_many_are_left_and_never_goes_down() -> None:
    # by hand: 0.01 × 4, 0.02 × 3, 0.025 × 2 = 0.05 < 0.06, 0.5 × 1
    assert holm([0.02, 0.5, 0.01, 0.025]) == pytest.approx([0.06, 0.5, 0.04, 0.06])
    assert holm([0.4, 0.6]) == pytest.approx([0.8, 0.8])
    assert holm([]) == []


def test_what_is_clear_alone_may_not_be_among_many() -> None:
    one = mean_interval(some_differences(0.75))
    nothing = [mean_interval(some_differences(0.0, seed=seed)) for seed in range(1, 20)]
    (alone,) = verdicts([one], margin=0.1)
    among = verdicts([one, *nothing], margin=0.1)[0]
    assert alone is not None
    assert among is not None
    assert alone.word == "higher"
    assert among.word == "undecided"
    assert among.p == alone.p


def test_level_needs_the_margin_and_not_only_a_lack_of_proof() -> None:
    wide, narrow = mean_interval([-3.0, 3.0, -2.0, 2.0]), mean_interval([-0.1, 0.1, -0.05, 0.05])
    told = [verdict.word for verdict in verdicts([wide, narrow], margin=0.5) if verdict is not None]
    assert told == ["undecided", "level"]


def test_directions() -> None:
    told = verdicts([mean_interval(some_differences(mean)) for mean in (5.0, -5.0)])
    assert [verdict.word for verdict in told if verdict is not None] == ["higher", "lower"]


def test_two_values_say_nothing_and_no_value_is_no_verdict() -> None:
    few, none = verdicts([mean_interval([5.0, 5.0]), None])
    assert none is None
    assert few is not None
    assert few.word == "too few"
    assert math.isnan(few.p)


def test_equal_differences_have_no_error() -> None:
    found = verdicts([Interval(2.0, 0.0, 5), Interval(0.0, 0.0, 5)])
    assert [verdict.word for verdict in found if verdict is not None] == ["higher", "level"]
