"""Cells on a Ray cluster: the same bits, whatever nodes there are and whoever is killed."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fscl.errors import MisuseError, RunError
from fscl.experiment.config import make_config
from fscl.experiment.executors import Placement, find_executor
from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from tests.children import FSCL, run_child, started_child
from tests.conftest import ROOT
from tests.experiment.clusters import cluster
from tests.experiment.test_executors import files_of
from tests.experiment.tiny import TINY, tiny, toml

OLD_TORCH = """
import importlib.metadata as metadata
version = metadata.version
metadata.version = lambda name: "1.0" if name == "torch" else version(name)
"""

SLOW = """
import sys

if "default_worker.py" in " ".join(sys.orig_argv):
    import time

    import fscl.experiment.executors.executor as executor

    compute = executor.compute

    def slow(*given):
        time.sleep(0.4)
        return compute(*given)

    executor.compute = slow
"""

TOY = '''
"""Made-up images; which ones, and whether they are here at all, is decided by the environment of the machine."""

import os

import torch

from fscl import ClassPool, DataSet, Splits, generator
from fscl.data.pool import split_classes
from fscl.errors import DataError


class Toy(DataSet):
    name = "toy"
    summary = "Squares of one grey level."

    def load(self, options, progress=None, tell=None) -> Splits:
        kind = os.environ.get("TOY_KIND", "0")
        if kind == "none":
            raise DataError("no toys are here. Put some there.")
        levels = torch.linspace(20, 235, 40).view(40, 1, 1, 1, 1)
        noise = 10 * torch.randn(40, 20, 1, 32, 32, generator=generator(int(kind), "toy"))
        images = (levels + noise).clamp(0, 255).to(torch.uint8).flatten(0, 1)
        pool = ClassPool("toy", images, tuple(f"grey-{i}" for i in range(40)), (20,) * 40)
        return split_classes(pool, train=range(0, 40, 2), validation=range(1, 40, 4), test=range(3, 40, 4))

    def find(self):
        return "made on the spot"


TOY = Toy()
'''


@pytest.fixture
def toys(tmp_path: Path) -> Iterator[Path]:
    """A folder with a module of data that is not a part of the package, where this process finds it."""
    folder = tmp_path / "toys"
    folder.mkdir()
    (folder / "ray_toy.py").write_text(TOY)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


def test_nodes_of_another_kind_are_refused_by_name_unless_they_can_be_helped(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    content = json.loads(json.dumps(TINY)) | {"data": {"name": "ray_toy:TOY"}}
    content["run"] |= {"n_sequences": 1, "methods": ["replay", "prototypes"]}
    config = make_config(content)
    here = run_experiment(config, tmp_path / "here", executor="in-process")
    path = os.pathsep.join([str(toys), str(ROOT)])
    with cluster() as nodes:
        nodes.add("old", PYTHONPATH=os.pathsep.join([planted(tmp_path / "old", OLD_TORCH), path]))
        nodes.add("flat", PYTHONPATH=path, ATEN_CPU_CAPABILITY="default")
        nodes.add("other", PYTHONPATH=path, TOY_KIND="1")
        nodes.add("bare", PYTHONPATH=path, TOY_KIND="none")

        with pytest.raises(RunError, match="no node of the Ray cluster can compute cells of this run: ") as caught:
            run_experiment(config, tmp_path / "run", executor=find_executor("ray", Placement(nodes.address)))
        said = " ".join(str(caught.value).split())
        assert "old: torch is 1.0 there and " in said
        assert "flat: the processor level is torch DEFAULT, " in said
        assert "--cpu-level sets one for all" in said
        assert "other: its data 'ray_toy:TOY' is other data: content hash " in said
        assert "bare: it has no data 'ray_toy:TOY' (no toys are here. Put some there); --send-data sends it" in said
        assert said.endswith("Finished cells are kept, and the same command continues.")
        told = " ".join(capsys.readouterr().err.split())
        assert "asks for no token: who can reach its ports can run anything" in told
        assert "Node old computes no cells: torch is 1.0 there" in told

        executor = find_executor("ray", Placement(nodes.address, send_data=True))
        record = run_experiment(config, tmp_path / "run", executor=executor)
        assert files_of(record) == files_of(here)
        assert [entry["cost"]["node"] for entry in record.cells().values()] == ["bare", "bare"]

        one = {**TINY, "run": {"methods": ["prototypes"], "reference": "prototypes", "n_sequences": 2}}
        arguments = ["run", toml(tmp_path / "one.toml", one), "--cpu-level", "sse4", "--out", tmp_path / "level"]
        run_child([*FSCL, *arguments, "--executor", "ray"], env={"RAY_ADDRESS": nodes.address})
        level = RunRecord(tmp_path / "level")
        assert level.about()["versions"]["cpu"].startswith("torch DEFAULT, oneDNN SSE41, ")
        assert where(level) <= {"flat", "other", "bare"}


def test_nodes_and_drivers_are_killed_and_the_run_ends_with_the_same_bits(tmp_path: Path):
    """A node by SIGKILL, the driver by SIGTERM, then another by SIGKILL; local processes do the rest."""
    changes = {"n_sequences": 20, "methods": ["head", "cbcl", "prototypes"], "reference": "head"}
    config = toml(tmp_path / "tiny.toml", {**TINY, "run": changes})
    whole = run_experiment(tiny(**{f"run__{key}": value for key, value in changes.items()}), tmp_path / "whole")
    cut = RunRecord(tmp_path / "cut")
    slow = os.pathsep.join([planted(tmp_path / "slow", SLOW), str(ROOT)])
    with cluster() as nodes:
        nodes.add("left", PYTHONPATH=slow)
        nodes.add("right", PYTHONPATH=slow)
        command = [*FSCL, "run", config, "--out", cut.folder]
        on_ray = [*command, "--executor", "ray", "--address", nodes.address]
        with started_child(on_ray) as driver:
            driver.wait_until(lambda: {"left", "right"} <= where(cut))
            nodes.kill("left")
            gone = "Node left is gone; its cells are computed elsewhere."
            driver.wait_until(lambda: gone in " ".join(driver.written()[1].split()))
            n_done = len(cut.cells())
            driver.wait_until(lambda: len(cut.cells()) > n_done)
            driver.send(signal.SIGTERM)
            told = driver.finish(expect=1)
        assert told.stderr.strip().splitlines()[-1].startswith("fscl: stopped; ")
        assert told.stdout == ""
        assert "Traceback" not in told.stderr

        n_done = len(cut.cells())
        with started_child(on_ray) as driver:
            driver.wait_until(lambda: len(cut.cells()) > n_done)
            driver.send(signal.SIGKILL)
            driver.finish(expect=-signal.SIGKILL)
        assert n_done < len(cut.cells()) < 60
        assert not cut.results_path.exists()

    run_child(command)
    assert cut.results_path.read_bytes() == whole.results_path.read_bytes()
    assert cut.cells().keys() == whole.cells().keys()
    assert len(whole.cells()) == 60
    kept = files_of(cut)
    assert {name: kept[name] for name in files_of(whole)} == files_of(whole)


def planted(folder: Path, code: str) -> str:
    """A folder whose code runs at the start of every Python that has it on its path."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    return str(folder)


def where(record: RunRecord) -> set[str]:
    """The nodes that cells of a run were computed on so far."""
    return (
        {entry["cost"].get("node", "here") for entry in record.cells().values()}
        if record.about_path.exists()
        else set()
    )


@pytest.mark.parametrize(
    ("address", "error", "sentence"),
    [
        (None, MisuseError, "there is no address: set RAY_ADDRESS, or give --address HOST:PORT"),
        ("ray://127.0.0.1:10001", MisuseError, "is not of the form HOST:PORT"),
        ("auto", MisuseError, "is not of the form HOST:PORT"),
        ("127.0.0.1:9", RunError, r"no Ray cluster answers at 127\.0\.0\.1:9\. Start it"),
    ],
)
def test_an_address_where_no_cluster_is_ends_in_one_sentence_and_nothing_is_written(
    address: str | None, error: type[Exception], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(error, match=sentence):
        run_experiment(tiny(), tmp_path / "run", executor=find_executor("ray", Placement(address)))
    assert not (tmp_path / "run").exists()


def test_without_the_package_one_sentence_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MisuseError, match=r"needs the package ray: python -m pip install 'fscl\[ray\]'"):
        run_experiment(tiny(), tmp_path / "run", executor="ray")
