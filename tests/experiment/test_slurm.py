"""Cells as jobs of SLURM, with submitit's processes of this machine in its place."""

import os
import sys
from pathlib import Path

import pytest

from fscl.errors import MisuseError, RunError
from fscl.experiment.executors import Placement, find_executor
from fscl.experiment.executors.on_slurm import CellJob, SlurmArray
from fscl.experiment.plan import Cell
from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from tests.experiment.test_executors import files_of
from tests.experiment.tiny import tiny

pytest.importorskip("submitit")

DIES_ONCE = """
import os, sys
from pathlib import Path
from signal import SIGKILL

if "submitit" in " ".join(sys.orig_argv):
    import fscl.experiment.executors.executor as executor

    compute, notes = executor.compute, Path({notes!r})

    def dies(order, cell, on_task, begun):
        note = notes / f"{{cell.method}}.{{os.getpid()}}"
        if cell.method == {method!r} and len(list(notes.glob("*"))) < {times}:
            note.touch()
            os.kill(os.getpid(), SIGKILL)
        return compute(order, cell, on_task, begun)

    executor.compute = dies
"""


def plant_deaths(folder: Path, method: str, times: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have the job of a method die so many times at its start."""
    notes = folder / "deaths"
    notes.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(DIES_ONCE.format(notes=str(notes), method=method, times=times))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    return notes


def test_jobs_leave_the_same_bits_though_one_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = tiny(run__n_sequences=1)
    here = run_experiment(config, tmp_path / "here", executor="in-process")
    deaths = plant_deaths(tmp_path / "planted", "replay", 1, monkeypatch)
    executor = SlurmArray(tmp_path / "shared", cluster="local")
    record = run_experiment(config, tmp_path / "jobs", executor=executor)
    assert len(list(deaths.iterdir())) == 1
    assert files_of(record) == files_of(here)
    assert {entry["cost"]["node"] for entry in record.cells().values()} == {os.uname().nodename}


def test_a_job_that_always_dies_is_reported_with_its_log_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plant_deaths(tmp_path / "planted", "replay", 9, monkeypatch)
    methods = {"run__methods": ["replay", "prototypes"], "run__n_sequences": 1, "run__resources": {"retries": 0}}
    record = RunRecord(tmp_path / "run")
    with pytest.raises(RunError, match="replay on sequence 0 ended its job 1 times") as caught:
        run_experiment(tiny(**methods), record.folder, executor=SlurmArray(tmp_path / "shared", cluster="local"))
    assert set(record.cells()) == {Cell("prototypes", 0)}
    log = str(caught.value).split("; ")[-1].removesuffix(" has what it wrote.")
    assert Path(log).exists()


def test_a_job_that_slurm_stops_is_the_same_job_again():
    job = CellJob("folder", Cell("tsc", 0))
    assert job.checkpoint().function == job


def test_without_sbatch_one_sentence_says_where_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MisuseError, match="sends jobs with sbatch, which is not here"):
        run_experiment(tiny(), tmp_path / "run", executor="slurm")
    assert not (tmp_path / "run").exists()


def test_without_the_package_one_sentence_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(MisuseError, match=r"needs the package submitit: python -m pip install 'fscl\[slurm\]'"):
        run_experiment(tiny(), tmp_path / "run", executor="slurm")


def test_what_is_for_ray_is_refused():
    with pytest.raises(MisuseError, match="--send-data is for --executor ray"):
        find_executor("slurm", Placement(send_data=True))
