"""A finished run that the tests of this folder read."""

import pytest

from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from tests.experiment.tiny import tiny


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    """One whole run with two workers."""
    return run_experiment(tiny(), tmp_path_factory.mktemp("runs") / "whole", workers=2)
