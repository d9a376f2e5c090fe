"""What a run computes, as values: its cells, what each of them is computed from, and what it leaves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fscl.data.catalogue import DataSpec, find_data_set
from fscl.data.pool import ClassPool
from fscl.data.stream import Stream
from fscl.experiment.config import Config
from fscl.rng import generator


@dataclass(frozen=True)
class Cell:
    """One method on one sequence."""

    method: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.method} on sequence {self.sequence}"


@dataclass(frozen=True, eq=False)
class Order:
    """All that the cells of a run are computed from. It can be pickled, so that any process of any machine can compute one.

    Attributes:
        base: the base network, as the bytes of its file.
        streams: the sequences, by number.
        data_hash: the content hash of the pool that the streams are drawn from. Who computes a cell loads the data itself.
        base_data_hash: that of the training classes of the base, where they are of another data set.
        versions: what makes the results, the level of the processor (`cpu`) among it.
        save_every: after how many seconds at the soonest a cell tells what it could go on from, if it were killed.
        compute: for work of another kind that executors shall do: the function of a module that is called with the order,
            a cell, what to call after each part, and what to go on from. Without it, a cell is learned and evaluated.
    """

    config: Config
    base: bytes = field(repr=False)
    streams: tuple[Stream, ...] = field(repr=False)
    data_hash: str
    base_data_hash: str | None
    versions: Mapping[str, str]
    save_every: float = 60.0
    compute: "Compute | None" = None

    @property
    def pools(self) -> list[tuple[DataSpec, str, str]]:
        """The data that who computes a cell must have: a set, a side of it, and the content hash of that side."""
        pools: list[tuple[DataSpec, str, str]] = [(self.config.data, self.config.run.split, self.data_hash)]
        if self.config.base_data is not None and self.config.all_probes:
            pools.append((self.config.base_data, "train", self.base_data_hash or ""))
        return pools


@dataclass(frozen=True)
class Tick:
    """A task of a cell is done.

    Attributes:
        n_done: how many are.
        accuracy: of the last answers, on all tasks so far.
        begun: what the cell could go on from, as the bytes of a file; None where nobody has to write anything yet.
    """

    n_done: int
    accuracy: float
    begun: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Finished:
    """What computing a cell gives.

    Attributes:
        result: what depends on the order alone, as JSON.
        cost: what depends on the machine, as JSON.
        files: by path relative to the run directory, the content of each file that belongs to the cell.
    """

    result: Mapping[str, Any]
    cost: Mapping[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)


Compute = Callable[[Order, Cell, Callable[[Tick], None], bytes | None], Finished]
"""What gives a finished cell: the same in any process."""


def plan_cells(config: Config) -> list[Cell]:
    """Every cell, sequence by sequence, so that an unfinished run still compares all methods on the same sequences."""
    return [Cell(method, number) for number in range(config.run.n_sequences) for method in config.run.methods]


def sample_streams(config: Config, pool: ClassPool) -> tuple[Stream, ...]:
    """The sequences of an experiment; each depends on the seed and its number alone."""
    data_set, numbers = find_data_set(config.data.name), range(config.run.n_sequences)
    drawn = (data_set.draw_stream(pool, config.stream, generator(config.seed, "stream", number)) for number in numbers)
    return tuple(drawn)
