"""Where the cells of a run are computed; the bits are the same everywhere on one kind of processor."""

from fscl.errors import unknown_name
from fscl.experiment.executors.executor import Executor
from fscl.experiment.executors.in_process import InProcess
from fscl.experiment.executors.local import LocalProcesses

EXECUTORS: dict[str, Executor] = {"in-process": InProcess(), "local": LocalProcesses()}


def find_executor(name: str) -> Executor:
    """The executor of this name."""
    if name not in EXECUTORS:
        raise unknown_name("executor", name, EXECUTORS)
    return EXECUTORS[name]
