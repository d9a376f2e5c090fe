"""A base is trained on a Ray cluster, and goes on elsewhere when its node dies."""

import os
import sys
from pathlib import Path

import pytest

from fscl.experiment.study.driver import StudyRecord, run_study
from tests.children import started_child
from tests.conftest import ROOT
from tests.experiment.clusters import cluster
from tests.experiment.test_ray import planted
from tests.experiment.test_study import STUDY, study

HANGS_AFTER_A_CHECKPOINT = """
import sys

if "default_worker.py" in " ".join(sys.orig_argv):
    import time

    import fscl.experiment.training as training

    whole = training.train

    def hangs(order, cell, on_part, begun):
        def tell(tick):
            on_part(tick)
            if tick.begun is not None:
                time.sleep(1000)

        return whole(order, cell, tell, begun)

    training.train = hangs
"""


CHILD = """
import sys
from pathlib import Path
from fscl.experiment.executors import Placement, find_executor
from fscl.experiment.study.driver import run_study
from fscl.experiment.study.spec import load_study
executor = find_executor("ray", Placement(sys.argv[3]))
run_study(load_study(sys.argv[1]), Path(sys.argv[2]), executor=executor, save_every=0.0)
"""


@pytest.mark.slow
def test_a_base_whose_node_dies_is_trained_on_elsewhere_from_the_drivers_checkpoint(tmp_path: Path):
    asked = study(tmp_path, STUDY.replace('each.base.use = ["short", "glyphs-protonet-conv4"]', 'base.use = "short"'))
    alone = run_study(asked, tmp_path / "alone", executor="in-process")
    record = StudyRecord(tmp_path / "study")
    checkpoint = record.base_folder("short") / "meta-training.safetensors"
    with cluster() as nodes:
        path = os.pathsep.join([planted(tmp_path / "hangs", HANGS_AFTER_A_CHECKPOINT), str(ROOT)])
        nodes.add("first", PYTHONPATH=path)
        command = [sys.executable, "-c", CHILD, tmp_path / "study.toml", record.folder, nodes.address]
        with started_child(command) as child:
            child.wait_until(checkpoint.exists)
            assert not record.network_path("short").exists()
            nodes.add("second")
            nodes.kill("first")
            child.finish()
    assert record.network_path("short").read_bytes() == alone.network_path("short").read_bytes()
    assert record.run("tiny").results_path.read_bytes() == alone.run("tiny").results_path.read_bytes()
