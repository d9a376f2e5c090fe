"""Meta-training shared by several processes: the same bits as one, and nothing left of the connection."""

import sys
from pathlib import Path

import pytest
import torch

from fscl.errors import RunError
from fscl.meta.team import Team
from tests.children import run_child

TINY_TRAINING = (
    "base.network.width=4",
    "base.network.norm=batch",
    "base.train.meta_batch=3",
    "base.train.steps=6",
    "base.train.validate_every=3",
    "base.train.validation_episodes=5",
    "base.train.n_way=5",
    "base.train.validation_way=5",
    "base.train.test_episodes=3",
    "base.train.jitter=1.0",
    "base.train.averaging=0.9",
)


@pytest.mark.slow
def test_two_processes_under_torchrun_end_with_the_bits_of_one(tmp_path: Path):
    command = ["-m", "fscl", "train", "glyphs-protonet", *TINY_TRAINING, "--out"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *command]
    outputs = []
    for arguments, name in ((command, "one"), (launcher, "two")):
        done = run_child([sys.executable, *arguments, tmp_path / name], env={"OMP_NUM_THREADS": "1"})
        outputs.append(done.stdout.replace(str(tmp_path / name), ""))
    assert outputs[0] == outputs[1]  # and the second process says nothing
    for name in ("meta-training.safetensors", "network.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


THREADS_LEFT = """
import os, torch
from fscl.meta.team import process_group
def n_threads(): return len(os.listdir("/proc/self/task"))
before = n_threads()
with process_group("gloo"):
    weight = torch.zeros(1, requires_grad=True)
    weight.sum().backward()
    torch.optim.AdamW([weight]).step()  # imports more of torch
    print(n_threads() > before)
print(n_threads() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc, which Linux has")
def test_no_thread_of_a_team_is_left_to_abort_the_process_at_its_end():
    alone = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
    assert run_child([sys.executable, "-c", THREADS_LEFT], env=alone).stdout.split() == ["True", "0"]


def test_processes_with_different_checkpoints_refuse_to_go_on(monkeypatch: pytest.MonkeyPatch):
    steps = iter([torch.tensor([3.0]), torch.tensor([0.0])])
    monkeypatch.setattr(Team, "map", lambda team, count, work: [next(steps) for _ in range(count)])
    with pytest.raises(RunError, match=r"from different steps: \[3, 0\]"):
        Team(0, 2).agree(3)
