"""Runs in lower precision: the record says so, and refuses to mix."""

from pathlib import Path

import pytest
import torch

from fscl.errors import OtherRun
from fscl.experiment.config import make_config
from fscl.experiment.executors import find_executor
from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from fscl.nets.trained import TrainedNetwork
from tests.experiment.tiny import tiny


def test_the_record_names_device_and_autocast():
    here = tiny().resolved()
    assert (here["device"], here["autocast"], here["settings"]["tsc"]["autocast"]) == ("cpu", False, False)
    there = tiny(device="cuda", autocast=True).resolved()
    assert (there["device"], there["autocast"]) == ("cuda", True)
    assert there["settings"]["tsc"]["autocast"]
    assert make_config(there).resolved() == there
    assert find_executor("local").workers_for(tiny(device="mps"), None) == 1


def test_a_run_is_not_continued_under_autocast(tmp_path: Path):
    config = {"run__n_sequences": 1, "run__methods": ["tsc"], "run__reference": "tsc"}
    before = run_experiment(tiny(**config), tmp_path / "run", workers=1)
    with pytest.raises(OtherRun, match=r"config\.autocast = False, but now it is True"):
        run_experiment(tiny(**config, autocast=True), before.folder, workers=1)


@pytest.mark.slow
def test_a_whole_run_with_autocast_gives_finite_results_near_those_without(tmp_path: Path):
    config = {"run__n_sequences": 1, "run__methods": ["tsc", "replay"], "stream__n_tasks": 2}
    plain, lowered = (
        run_experiment(tiny(**config, autocast=on), tmp_path / str(on), workers=1).about() for on in (False, True)
    )
    assert not plain["config"]["autocast"]
    assert lowered["config"]["autocast"]
    weights = [TrainedNetwork.load(RunRecord(tmp_path / str(on)).network_path)[0].params for on in (False, True)]
    for name, tensor in weights[0].items():
        assert torch.isfinite(weights[1][name]).all()
        torch.testing.assert_close(weights[1][name], tensor, rtol=0.05, atol=5e-3)
