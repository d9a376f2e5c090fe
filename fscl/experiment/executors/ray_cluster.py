"""Joining a Ray cluster that somebody has started: its address, its nodes, and what is wrong with it, in one sentence.

Nothing is started or configured here.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TextIO

from fscl.errors import MisuseError, RunError
from fscl.experiment.resources import Resources

LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
SECONDS_TO_ANSWER = 5.0  # that the address of a cluster gets
HOW_TO_JOIN = (
    "`ray start --head` on one machine prints the address that others join, and this machine must be one of them"
)


def import_ray() -> Any:
    """The package, told to leave the nodes as they are."""
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")  # nodes have fscl already, or are refused
    import ray

    return ray


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, or what passes for one."""

    id: str
    name: str
    cpus: float
    gpus: float

    def slots(self, resources: Resources, device: str) -> int:
        """How many cells it can compute at a time."""
        gpus = resources.gpus_on(device)
        return int(min(self.cpus / resources.num_cpus, self.gpus / gpus if gpus else self.cpus / resources.num_cpus))


def find_address(given: str | None) -> str:
    """The address of the cluster to join: what was given, or `RAY_ADDRESS`; and something answers there."""
    if find_spec("ray") is None:
        raise MisuseError(
            "--executor ray needs the package ray: python -m pip install 'fscl[ray]', here and on every node."
        )
    address = given or os.environ.get("RAY_ADDRESS") or ""
    if not address:
        raise MisuseError(
            f"--executor ray joins a cluster, but there is no address: set RAY_ADDRESS, or give --address HOST:PORT. "
            f"{HOW_TO_JOIN}."
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise MisuseError(
            f"the address {address!r} of the Ray cluster is not of the form HOST:PORT, such as 10.0.0.5:6379. {HOW_TO_JOIN}."
        )
    if host in LOOPBACK and not is_there(f"{_outer_address()}:{port}"):
        # Ray puts the outer address of the machine for this one, where a cluster that is bound to loopback does not listen
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    if not is_there(address):
        raise RunError(
            f"no Ray cluster answers at {address}. Start it, or give the right address with --address; {HOW_TO_JOIN}."
        )
    return address


def _outer_address() -> str:
    """The address that others reach this machine by. Nothing is sent."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def is_there(address: str) -> bool:
    """Whether something accepts connections there."""
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS_TO_ANSWER):
        return True
    return False


def join(address: str, environment: Mapping[str, str]) -> None:
    """Connect this process with the cluster as a driver.

    Args:
        environment: variables that the processes which compute cells shall have.
    """
    ray = import_ray()
    with _signals_as_they_were():
        try:
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level="ERROR",
                runtime_env={"env_vars": dict(environment)} if environment else None,
            )
        except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
            first = " ".join(str(error).split())[:300]
            raise RunError(
                f"cannot join the Ray cluster at {address}: {first.rstrip('.')}. {HOW_TO_JOIN}; a cluster that asks for a "
                "token needs RAY_AUTH_MODE=token here, too."
            ) from error


def nodes_alive() -> list[Node]:
    """The nodes that the cluster has now."""
    ray = import_ray()
    return [
        Node(
            id=node["NodeID"],
            name=node["NodeName"],
            cpus=node["Resources"].get("CPU", 0.0),
            gpus=node["Resources"].get("GPU", 0.0),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def asks_for_a_token() -> bool:
    """Whether the cluster that was joined lets in only those who have its token."""
    from ray._private.authentication.authentication_utils import is_token_auth_enabled  # the only place that tells

    return bool(is_token_auth_enabled())


@contextmanager
def _signals_as_they_were() -> Iterator[None]:
    """Ray sets a handler of its own for SIGTERM, which would end the driver without a word."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _WithoutRemarksOfRay:
    """stdout, but for what a thread of Ray writes to it unasked when a node dies: pages of its log."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        is_remark = threading.current_thread().name.startswith("ray_")
        return len(text) if is_remark else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def without_remarks() -> Iterator[None]:
    """Results alone go to stdout."""
    before = sys.stdout
    sys.stdout = _WithoutRemarksOfRay(before)
    try:
        yield
    finally:
        sys.stdout = before
