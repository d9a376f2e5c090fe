"""The options that say where cells are computed, for every command that has an executor."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fscl.experiment.executors.executor import Executor

ExecutorName = Annotated[
    str,
    typer.Option("--executor", help="local: processes of this machine; in-process: none, for debuggers."),
]
Address = Annotated[str | None, typer.Option(help="Of a cluster, for executors that join one.")]
SendData = Annotated[bool, typer.Option("--send-data", help="Send the data to machines that do not have it.")]


def chosen_executor(name: str, *, address: str | None = None, send_data: bool = False) -> "Executor":
    """What the options stand for."""
    from fscl.experiment.executors import Placement, find_executor

    return find_executor(name, Placement(address, send_data))
