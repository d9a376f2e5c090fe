"""A data set from outside the package goes through a whole run, in worker processes, with no other file touched."""

import os
import subprocess
from pathlib import Path

import pytest

from fscl.errors import ConfigError
from fscl.experiment.base import refuse_leak
from fscl.experiment.config import make_config
from fscl.experiment.record import RunRecord
from fscl.nets.sources import load_network
from fscl.testing import noise_pool
from tests.children import FSCL, run_child
from tests.conftest import ROOT
from tests.data.toy import write_toy
from tests.experiment.tiny import TINY, toml
from tests.plugging import installed


def fscl(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(folder), str(ROOT)])
    ended = run_child([*FSCL, *arguments], env={**os.environ, "PYTHONPATH": paths}, expect=code)
    assert "Traceback" not in ended.stderr
    return ended


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside")
    write_toy(folder)
    return folder


@pytest.fixture(scope="module")
def run(outside: Path) -> RunRecord:
    config = toml(outside / "toy.toml", {**TINY, "data": {"name": "toy_data:TOY", "n_classes": 36}})
    overrides = ["run.n_sequences=2", 'run.methods=["prototypes", "replay"]']
    fscl(outside, "run", str(config), *overrides, "--out", str(outside / "run"), "--workers", "2")
    return RunRecord(outside / "run")


def test_a_set_from_outside_trains_the_base_and_gives_the_streams_with_two_workers(run: RunRecord):
    about = run.about()
    assert about["config"]["data"] == {"name": "toy_data:TOY", "image_size": 16, "n_classes": 36}
    assert about["data"]["pool"] == "toy (test)"
    assert "protonet on toy_data:TOY" in about["base"]["summary"]
    assert len(run.cells()) == 4
    assert run.results_path.exists()
    assert (run.folder / "report.html").exists()


def test_a_base_of_it_is_refused_for_the_classes_that_it_was_trained_on_though_the_set_is_not_here(run: RunRecord):
    _, origin = load_network(run.network_path)
    assert origin["data"]["vocabulary"] == "toy"
    pool = noise_pool(3)
    origin["train_classes"] = [pool.class_names[1]]
    refuse_leak(make_config({}), origin, pool)  # glyphs, whose names are others'
    origin["data"]["vocabulary"] = "glyphs"
    with pytest.raises(ConfigError, match="the base was trained on 1 of the classes of 'noise'"):
        refuse_leak(make_config({}), origin, pool)


def test_an_installed_set_is_listed_and_loaded_and_a_broken_one_beside_it_is_named(outside: Path, tmp_path: Path):
    write_toy(tmp_path)
    installed(tmp_path, "fscl.datasets", {"toy": "toy_data:TOY", "broken": "toy_data:NOTHING"})
    lines = fscl(tmp_path, "data", "list").stdout.splitlines()
    row = next(number for number, line in enumerate(lines) if line.split()[0] == "toy")
    assert lines[row].split(maxsplit=1)[1] == "Squares of one grey level."
    assert lines[row + 1].strip() == "made on the spot"
    row = next(number for number, line in enumerate(lines) if line.split()[0] == "broken")
    assert lines[row + 1].strip() == (
        "the entry point 'broken' of the group 'fscl.datasets' is broken: there is no data set 'toy_data:NOTHING': toy_data "
        "has no 'NOTHING'."
    )
    assert "test          10 classes,    200 images of 1×16×16" in fscl(tmp_path, "data", "info", "toy").stdout
    assert "'toy' needs no fetching: it is made on the spot" in fscl(tmp_path, "data", "fetch", "toy", code=2).stderr
    assert "the entry point 'broken'" in fscl(tmp_path, "data", "info", "broken", code=2).stderr


@pytest.mark.slow
def test_a_run_by_entry_point_has_the_results_of_one_by_reference(run: RunRecord, tmp_path: Path):
    write_toy(tmp_path)
    installed(tmp_path, "fscl.datasets", {"toy": "toy_data:TOY"})
    config = toml(tmp_path / "toy.toml", {**TINY, "data": {"name": "toy", "n_classes": 36}})
    overrides = ["run.n_sequences=2", 'run.methods=["prototypes", "replay"]']
    fscl(tmp_path, "run", str(config), *overrides, "--out", str(tmp_path / "run"), "--workers", "2")
    assert RunRecord(tmp_path / "run").results_path.read_bytes() == run.results_path.read_bytes()
