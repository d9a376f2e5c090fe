"""A stream, and a finished run that was observed."""

import pytest

from fscl.data.pool import ClassPool
from fscl.data.stream import Stream, StreamSpec, sample_stream
from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from fscl.report.results import Results, read_results
from fscl.rng import generator
from tests.experiment.tiny import tiny

OBSERVE = {"drift": {"after": [1, 3]}, "penalties": {"after": 3}, "fisher": {"steps": [0, 2, 6], "episodes": 1}}


@pytest.fixture(scope="session")
def stream(small_pool: ClassPool) -> Stream:
    return sample_stream(small_pool, StreamSpec(n_tasks=2, n_way=3, n_shot=2, n_query=4), generator(0, "stream"))


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    """Of tsc, replay and prototypes, on two sequences."""
    config = tiny(observe=OBSERVE, run__n_sequences=2)
    return run_experiment(config, tmp_path_factory.mktemp("observed"), executor="in-process")


@pytest.fixture(scope="session")
def results(run: RunRecord) -> Results:
    return read_results(run)
