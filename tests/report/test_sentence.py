"""What a run is said to show: no more than its intervals allow."""

from pathlib import Path

import pytest

from fscl.experiment.plan import Cell
from fscl.experiment.record import RunRecord
from fscl.report.results import read_results
from fscl.report.sentence import summary_sentence
from tests.report.runs import FAIR, GOOD, POOR, Rows, append, make_run, page_of


def sentence_of(record: RunRecord) -> str:
    return summary_sentence(read_results(record))


def test_the_best_methods_are_named_and_the_difference_to_the_reference_is_tested(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"joint": FAIR, "replay": POOR, "tsc": GOOD})
    assert sentence_of(record) == (
        "Preliminary (fewer than 10 sequences): 3 methods on 3 sequences (2 tasks, 2-way 5-shot); highest mean final "
        "accuracy: tsc (90.0 ± 24.8 %), then joint (80.0 ± 24.8 %). The difference of tsc to the reference joint is "
        "significant (+10.0 ± 0.0 points, paired 95 % interval; corrected for 2 comparisons); the table has the rest."
    )
    assert f'<p class="lead">{sentence_of(record)}</p>' in page_of(record)


def test_where_the_interval_includes_zero_the_difference_is_not_significant(tmp_path: Path) -> None:
    told = sentence_of(make_run(tmp_path, {"replay": POOR, "joint": FAIR}))
    assert "joint (80.0 ± 24.8 %), then replay (78.3 ± 19.0 %)" in told
    assert "The difference of replay to the reference joint is not significant (-1.7 ± 7.2 points" in told
    assert "is significant" not in told


def test_a_method_worse_than_the_reference_is_not_called_better(tmp_path: Path) -> None:
    told = sentence_of(make_run(tmp_path, {"tsc": FAIR, "joint": GOOD}))
    assert "highest mean final accuracy: joint (90.0 ± 24.8 %), then tsc" in told
    assert "The difference of tsc to the reference joint is significant (-10.0 ± 0.0 points" in told


@pytest.mark.parametrize("n", [1, 2])
def test_fewer_than_three_sequences_claim_nothing(n: int, tmp_path: Path) -> None:
    told = sentence_of(make_run(tmp_path, {"tsc": GOOD[:1] * n, "joint": FAIR[:1] * n}, run={"n_sequences": n}))
    assert "The difference to the reference joint is not tested: fewer than 3 sequences." in told
    assert "significant" not in told
    assert told.startswith("Preliminary")
    assert ("tsc (80.0 %)" in told) == (n == 1)  # one sequence has no interval


@pytest.mark.parametrize("n", [9, 10])
def test_from_ten_sequences_on_a_run_is_not_preliminary(n: int, tmp_path: Path) -> None:
    told = sentence_of(make_run(tmp_path, {"tsc": GOOD[:1] * n, "joint": FAIR[:1] * n}, run={"n_sequences": n}))
    assert told.startswith(
        "Preliminary (fewer than 10 sequences): 2 methods" if n < 10 else "2 methods on 10 sequences"
    )


def test_an_unfinished_run_is_compared_on_the_sequences_that_all_methods_have(tmp_path: Path) -> None:
    told = sentence_of(make_run(tmp_path, {"tsc": GOOD, "joint": FAIR[:2], "replay": []}))
    assert told.startswith("Unfinished (5 of 9 cells), preliminary (fewer than 10 sequences): 2 methods on 2 sequences")
    assert "tsc (85.0 ± 63.5 %)" in told  # of 80 and 90; the third, of 100, only tsc has
    assert "not tested" in told


def test_methods_without_a_sequence_in_common_are_not_compared(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": GOOD[:1], "joint": []})
    append(record, Cell("joint", 1), FAIR[1], 4)
    told = sentence_of(record)
    assert told.startswith("Unfinished (2 of 6 cells)")
    assert "no sequence has been finished by every method" in told
    assert "%" not in told


def test_a_run_without_a_finished_cell_compares_nothing(tmp_path: Path) -> None:
    assert sentence_of(make_run(tmp_path, {"tsc": [], "joint": []})).startswith("No cell has finished yet")


def test_a_single_method_is_compared_with_nothing(tmp_path: Path) -> None:
    told = sentence_of(make_run(tmp_path, {"tsc": GOOD}))
    assert told.endswith(
        "1 method on 3 sequences (2 tasks, 2-way 5-shot); highest mean final accuracy: tsc (90.0 ± 24.8 %)."
    )


def test_without_the_reference_no_difference_is_tested(tmp_path: Path) -> None:
    told = sentence_of(make_run(tmp_path, {"tsc": GOOD, "replay": POOR}))
    assert told.endswith("The reference joint has no finished sequence, so no difference to it can be tested.")


def test_however_many_methods_there_are_the_sentence_names_two_and_the_reference(tmp_path: Path) -> None:
    worse: list[Rows] = [[[0.9], [last, last]] for last in (0.6, 0.7, 0.8)]
    many = {"joint": FAIR, "tsc": GOOD, "fsw": FAIR, "replay": worse, "ewc": worse, "si": worse, "mas": worse}
    told = sentence_of(make_run(tmp_path, many))
    assert "7 methods" in told
    assert not any(method in told for method in ("fsw", "ewc", "si (", "mas"))
