"""Several processes that meta-train one network: each takes its share of the tasks, and all end with the same bits.

Start them with `torchrun`. Every process draws the same episodes by name, computes the gradients of its own and
receives those of the others; the sum is taken in the order of the tasks, so that it does not depend on how many
processes there are.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module

import torch
import torch.distributed as dist
from torch import Tensor

from fscl.errors import RunError

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Team:
    """The processes of a training, which of them this one is, and on which device they exchange tensors."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    @property
    def leads(self) -> bool:
        """Whether this process writes files and talks to people."""
        return self.rank == 0

    def map(self, count: int, work: Callable[[int], Tensor]) -> Iterator[Tensor]:
        """work(0), work(1), … in order, each computed by one process and known to all. All shapes must be equal."""
        if self.size == 1:
            yield from map(work, range(count))
            return
        for start in range(0, count, self.size):
            number = start + self.rank
            mine = work(number) if number < count else None
            yield from self._exchange(mine, min(self.size, count - start))

    def _exchange(self, mine: Tensor | None, wanted: int) -> Sequence[Tensor]:
        # an idle process does not know the shape yet, so the leader, who is never idle, says it first
        length = torch.tensor([mine.numel() if mine is not None else 0], device=self.device)
        dist.broadcast(length, src=0)
        payload = torch.zeros(int(length)) if mine is None else mine
        payload = payload.to(self.device).contiguous()
        gathered = [torch.empty_like(payload) for _ in range(self.size)]
        dist.all_gather(gathered, payload)
        return gathered[:wanted]

    def any(self, flag: bool) -> bool:
        """Whether any process says yes."""
        if self.size == 1:
            return flag
        asked = torch.tensor([int(flag)], device=self.device)
        dist.all_reduce(asked, op=dist.ReduceOp.MAX)
        return bool(asked.item())

    def agree(self, step: int) -> None:
        """Refuse to go on from different checkpoints."""
        steps = [int(found.item()) for found in self.map(self.size, lambda _: torch.tensor([float(step)]))]
        if len(set(steps)) > 1:
            raise RunError(
                f"the processes would continue from different steps: {steps}. Give all of them the same output folder, "
                "on a disk that they share."
            )

    def wait(self) -> None:
        """Until all are here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def join_team(device: torch.device = CPU) -> Iterator[Team]:
    """The team that `torchrun` started this process in, or a team of one, which computes on `device`.

    On a GPU for each process they talk over nccl, otherwise over gloo by way of the CPU.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Team()
        return
    meeting_place = _take_a_gpu(size) if device.type == "cuda" else CPU
    with process_group("nccl" if meeting_place.type == "cuda" else "gloo"):
        yield Team(dist.get_rank(), dist.get_world_size(), meeting_place)


@contextmanager
def process_group(backend: str) -> Iterator[None]:
    """The connection to the other processes, which is gone with all its threads when the block ends.

    The functions of `torch.distributed.nn` have the process group as a default argument: imported while there is one, they
    keep it, and its threads, alive for ever. torch imports them with the first step of an optimiser. A thread of gloo that
    then lets go of a tensor while Python shuts down aborts the process, after all its work is done ("terminate called
    without an active exception"): on a busy machine in one run of three. So they are imported before.
    """
    import_module("torch.distributed.nn")
    dist.init_process_group(backend)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _take_a_gpu(size: int) -> torch.device:
    """Make one of this machine's GPUs this process's own: the device to talk on, the CPU if processes must share a GPU."""
    here, n_here = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", size))
    n_gpus = torch.cuda.device_count()
    torch.cuda.set_device(here % n_gpus)
    return torch.device("cuda", here) if dist.is_nccl_available() and n_here <= n_gpus else CPU
