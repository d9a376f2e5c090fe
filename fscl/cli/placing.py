"""The options that say where cells are computed, for every command that has an executor."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fscl.experiment.executors.executor import Executor

ExecutorName = Annotated[
    str,
    typer.Option(
        "--executor", help="local: processes of this machine; ray, slurm: a cluster; in-process: none, for debuggers."
    ),
]
Address = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Of the Ray cluster. Default: RAY_ADDRESS.")]
SendData = Annotated[bool, typer.Option("--send-data", help="Send the data to nodes that do not have it.")]


CpuLevel = Annotated[
    str | None, typer.Option(help="avx512, avx2 or sse4: one level for machines of several. Default: what each has.")
]


def chosen_executor(
    name: str, *, address: str | None = None, send_data: bool = False, cpu_level: str | None = None
) -> "Executor":
    """What the options stand for. A level of the processor holds from here on, so torch must not be loaded yet."""
    if cpu_level is not None:
        from fscl.cpu import pin_cpu_level

        pin_cpu_level(cpu_level)
    from fscl.experiment.executors import Placement, find_executor

    return find_executor(name, Placement(address, send_data, cpu_level))
