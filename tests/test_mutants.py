"""The list of edits that the tests must notice (`make mutants`) fits the source."""

import pytest

from tests.conftest import ROOT
from tools.mutants import read_mutants

MUTANTS = read_mutants(ROOT / "tests" / "mutants")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_an_edit_applies_once_and_its_tests_are_there(mutant):
    assert (ROOT / mutant.file).read_text("utf-8").count(mutant.old) == 1
    assert mutant.old != mutant.new
    assert mutant.tests
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / path).read_text("utf-8")


def test_no_two_edits_have_one_name():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
