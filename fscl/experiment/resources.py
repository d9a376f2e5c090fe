"""What computing a cell takes, for executors of other machines: where cells are computed, never what they give."""

from pydantic import BaseModel, ConfigDict, Field


class Resources(BaseModel):
    """The section `[run.resources]` of a configuration: for one cell.

    Attributes:
        num_cpus: cores that are kept for it; it computes on one thread.
        num_gpus: GPUs, or the part of one, that are kept for it. By default 1 where the device is a GPU, else none.
        retries: how often it is computed again after the process or the machine that computed it has died.
        hours: after which SLURM may stop it; it then goes on from the last task that it has saved.
        memory_gb: of memory, for SLURM.
        slurm: more options of `sbatch`, such as partition = "short".
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_cpus: float = Field(default=1, gt=0, le=1024)
    num_gpus: float | None = Field(default=None, ge=0, le=64)
    retries: int = Field(default=3, ge=0, le=100)
    hours: float = Field(default=4, gt=0, le=24 * 30)
    memory_gb: float = Field(default=4, gt=0)
    slurm: dict[str, str | int] = {}

    def gpus_on(self, device: str) -> float:
        """How many GPUs a cell takes on this device."""
        return self.num_gpus if self.num_gpus is not None else float(device != "cpu")
