"""The plan of a run."""

from fscl.continual.registry import make_learner
from fscl.experiment.plan import Cell, plan_cells
from fscl.testing import small_base
from tests.experiment.tiny import tiny


def test_sequences_are_computed_one_after_another_so_that_an_unfinished_run_compares_all_methods():
    cells = plan_cells(tiny(run__methods=["tsc", "replay"], run__n_sequences=2))
    assert cells == [Cell("tsc", 0), Cell("replay", 0), Cell("tsc", 1), Cell("replay", 1)]


def test_the_expected_work_grows_with_the_replayed_tasks_and_not_without_replay():
    config = tiny(run__methods=["replay", "sequential", "head", "prototypes"])
    learners = [make_learner(name, small_base(), settings=config.settings_of(name)) for name in config.run.methods]
    first, last = ([learner.work(config.stream, number) for learner in learners] for number in (0, 2))
    assert last[0] == 3 * first[0]
    assert last[1] - first[1] == 2 * 2 * 3  # the queries of two more tasks
    assert first[0] > first[2] == first[3]
