"""Where the cells of a run are computed; the bits are the same everywhere on one kind of processor.

An executor is found by its name, here and on the command line. Those that need a package of their own are imported when
they are asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass

from fscl.cpu import level_variables
from fscl.errors import MisuseError, unknown_name
from fscl.experiment.executors.executor import Executor
from fscl.experiment.executors.in_process import InProcess
from fscl.experiment.executors.local import LocalProcesses


@dataclass(frozen=True)
class Placement:
    """What is said about other machines.

    Attributes:
        address: of the cluster.
        send_data: whether machines that do not have the data get it from this one.
        cpu_level: to which processes of other machines are held; this one holds itself (`fscl.cpu.pin_cpu_level`).
    """

    address: str | None = None
    send_data: bool = False
    cpu_level: str | None = None


def _here(name: str, make: Callable[[], Executor]) -> Callable[[Placement], Executor]:
    """An executor of this machine, for which there is nothing to say about others."""

    def made(placement: Placement) -> Executor:
        if placement.address is not None or placement.send_data:
            option = "--address" if placement.address is not None else "--send-data"
            raise MisuseError(
                f"{option} is about other machines, but --executor {name} computes on this one; remove it."
            )
        return make()

    return made


def _ray(placement: Placement) -> Executor:
    from fscl.experiment.executors.on_ray import OnRay

    environment = {} if placement.cpu_level is None else level_variables(placement.cpu_level)
    return OnRay(placement.address, send_data=placement.send_data, environment=environment)


def _slurm(placement: Placement) -> Executor:
    from fscl.experiment.executors.on_slurm import SlurmArray

    if placement.address is not None or placement.send_data:
        option = "--address" if placement.address is not None else "--send-data"
        raise MisuseError(f"{option} is for --executor ray; the machines of SLURM share a file system. Remove it.")
    return SlurmArray()


EXECUTORS: dict[str, Callable[[Placement], Executor]] = {
    "in-process": _here("in-process", InProcess),
    "local": _here("local", LocalProcesses),
    "ray": _ray,
    "slurm": _slurm,
}


def find_executor(name: str, placement: Placement | None = None) -> Executor:
    """The executor of this name.

    Args:
        placement: for those that compute on other machines.
    """
    if name not in EXECUTORS:
        raise unknown_name("executor", name, EXECUTORS)
    return EXECUTORS[name](placement or Placement())
