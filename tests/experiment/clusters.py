"""Ray clusters for tests: nodes on the loopback interface of this machine, each with an environment of its own."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

# Ray puts the machine's outer address for 127.0.0.1, unless it thinks that it is on a laptop that has no clusters
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
MEMORY = 80 * 2**20  # of a node's object store; the least that Ray takes is 75 MB


class Nodes:
    """A cluster at work."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._nodes: dict[str, Any] = {}

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self, name: str, *, cpus: int = 1, **environment: str) -> None:
        """Start a node with these variables in the environment of its processes."""
        self._nodes[name] = self._cluster.add_node(
            node_ip_address="127.0.0.1",
            num_cpus=cpus,
            node_name=name,
            object_store_memory=MEMORY,
            env_vars={"PYTHONPATH": str(ROOT), **environment},
        )

    def kill(self, name: str) -> None:
        """SIGKILL to all processes of a node, as a machine that loses its power."""
        node = self._nodes.pop(name)
        raylet = node.all_processes["raylet"][0].process.pid
        for pid in [raylet, *_children(raylet)]:
            os.kill(pid, signal.SIGKILL)
        node.kill_all_processes(check_alive=False, allow_graceful=False)


def _children(parent: int) -> list[int]:
    stats = [(path, path.read_text()) for path in Path("/proc").glob("[0-9]*/stat") if path.exists()]
    return [int(path.parent.name) for path, stat in stats if int(stat.rpartition(")")[2].split()[1]) == parent]


@contextmanager
def cluster() -> Iterator[Nodes]:
    """A cluster whose head computes nothing; its processes are gone when the block ends."""
    if find_spec("ray") is None:
        pytest.skip("ray is not installed")
    folder = Path(tempfile.mkdtemp(prefix="fscl-ray-", dir="/tmp"))  # a path of a socket has at most 107 characters
    (folder / "ray").mkdir()
    before = {name: os.environ.get(name) for name in (*LOOPBACK, "RAY_TMPDIR", "RAY_ADDRESS")}
    os.environ.update(LOOPBACK, RAY_TMPDIR=str(folder))
    os.environ.pop("RAY_ADDRESS", None)
    from ray.cluster_utils import Cluster

    head = {"node_ip_address": "127.0.0.1", "num_cpus": 0, "include_dashboard": False, "node_name": "head"}
    made = Cluster(initialize_head=True, head_node_args={**head, "object_store_memory": MEMORY})
    try:
        yield Nodes(made)
    finally:
        made.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})
