"""Cells as tasks of a Ray cluster that somebody else has started; the driver alone writes.

A cell whose process or node dies is computed again elsewhere, from the last task that the driver has saved. Ray's own
retries would begin such a cell anew, so they are not used.
"""

from collections import Counter, deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fscl.errors import RunError
from fscl.experiment.config import Config
from fscl.experiment.executors.executor import Begun, OnTick, Outcome, Tell
from fscl.experiment.executors.ray_cluster import (
    asks_for_a_token,
    find_address,
    import_ray,
    join,
    nodes_alive,
    without_remarks,
)
from fscl.experiment.executors.ray_nodes import Nodes
from fscl.experiment.plan import Cell, Order

SECONDS_TO_WAIT = 1.0  # for something to happen, before the nodes are looked at again


class OnRay:
    """The nodes of a Ray cluster.

    Args:
        address: HOST:PORT of the cluster; without it, `RAY_ADDRESS`.
        send_data: whether nodes that do not have the data get it from the driver.
        environment: variables that the processes which compute cells shall have.
    """

    def __init__(
        self, address: str | None = None, *, send_data: bool = False, environment: Mapping[str, str] | None = None
    ) -> None:
        self._given, self._send_data, self._environment = address, send_data, environment or {}
        self._address, self._is_mine = "", False
        self._most: int | None = None

    def workers_for(self, config: Config, workers: int | None) -> int:
        """By default as many as the cluster has room for. An address where no cluster is ends it here."""
        self._address = find_address(self._given)
        if not import_ray().is_initialized():
            join(self._address, self._environment)
            self._is_mine = True
        self._most = workers
        return workers or max(1, sum(node.slots(config.run.resources, config.device) for node in nodes_alive()))

    def compute(
        self, order: Order, cells: Sequence[Cell], workers: int, on_tick: OnTick, begun: Begun, tell: Tell
    ) -> Generator[tuple[Cell, Outcome], None, None]:
        """Every cell with its outcome, as they finish."""
        if not asks_for_a_token():
            tell(
                f"Warning: the Ray cluster at {self._address} asks for no token: who can reach its ports can run anything "
                "on its machines. Start it with RAY_AUTH_MODE=token, or keep others out of its network."
            )
        with without_remarks():
            nodes = Nodes(order, self._address, send_data=self._send_data, tell=tell)
            crew = _Crew(order, cells, nodes, begun)
            try:
                yield from crew.outcomes(self._most, on_tick)
            finally:
                crew.stop()
                if self._is_mine:
                    import_ray().shutdown()


@dataclass
class _Running:
    """A cell under way, and the nodes that it may be computed on."""

    cell: Cell
    nodes: frozenset[str]
    node: str | None = None  # where it is, when it has said something


class _Crew:
    """The cells that wait, and those under way."""

    def __init__(self, order: Order, cells: Sequence[Cell], nodes: Nodes, begun: Begun) -> None:
        self._ray = import_ray()
        self._order, self._nodes, self._begun = order, nodes, begun
        self._shared = self._ray.put(order)
        self._compute: Any = None
        self._where: frozenset[str] = frozenset()
        self._data: Any = None
        self._waiting = deque(cells)
        self._running: dict[Any, _Running] = {}
        self._deaths: Counter[Cell] = Counter()

    def outcomes(self, most: int | None, on_tick: OnTick) -> Generator[tuple[Cell, Outcome], None, None]:
        """Every cell with its outcome; at most `most` of them under way."""
        while self._waiting or self._running:
            if self._nodes.refresh():
                self._go_to_accepted()
                self._take_back_stranded()
            # one more than there is room for on each: a node that has finished a cell shall not wait for the driver
            room = most or 2 * self._nodes.slots
            while self._waiting and len(self._running) < room:
                self._submit(self._waiting.popleft())
            tasks = list(self._running)
            if self._ray.wait(tasks, num_returns=1, timeout=SECONDS_TO_WAIT)[0]:
                ready, _ = self._ray.wait(tasks, num_returns=len(tasks), timeout=0)  # the others that are ready by now
            else:
                ready = []
            for task in ready:
                yield from self._hear(task, on_tick)

    def _submit(self, cell: Cell) -> None:
        from fscl.experiment.executors.ray_node import data_to_send

        if self._nodes.without_data and self._data is None:
            self._data = self._ray.put(data_to_send(self._order))
        sent = dict.fromkeys(self._nodes.without_data, self._data)
        task = self._compute.remote([self._shared], cell, self._begun(cell), self._nodes.names, sent)
        self._running[task] = _Running(cell, self._where)

    def _go_to_accepted(self) -> None:
        """Cells that are handed out from here on go to the nodes accepted by now."""
        from fscl.experiment.executors.ray_node import compute_cell

        resources = self._order.config.run.resources
        self._where = frozenset(self._nodes.accepted)
        self._compute = self._ray.remote(
            num_cpus=resources.num_cpus,
            num_gpus=resources.gpus_on(self._order.config.device),
            num_returns="streaming",
            max_retries=0,
            label_selector={"ray.io/node-id": f"in({','.join(sorted(self._where))})"},
        )(compute_cell)

    def _hear(self, task: Any, on_tick: OnTick) -> Generator[tuple[Cell, Outcome], None, None]:
        running = self._running[task]
        try:
            said = self._ray.get(next(task))
        except StopIteration:
            yield from self._lost(task, "it ended without a word")
            return
        except self._ray.exceptions.RayTaskError as error:
            raise RunError(f"{running.cell} failed on the Ray cluster: {error}") from error
        except self._ray.exceptions.RayError as error:
            yield from self._lost(task, type(error).__name__)
            return
        running.node = said.node
        if said.tick is not None:
            on_tick(running.cell, said.tick)
            return
        del self._running[task]
        if said.fault is not None:
            raise said.fault
        yield running.cell, said.outcome

    def _lost(self, task: Any, how: str) -> Generator[tuple[Cell, Outcome], None, None]:
        """The process or the node of a cell died: let it wait for another one, or give up."""
        running = self._running.pop(task)
        cell, retries = running.cell, self._order.config.run.resources.retries
        self._deaths[cell] += 1
        if self._deaths[cell] <= retries:
            self._waiting.append(cell)
            return
        where = f", the last time on node {self._nodes.names[running.node]}" if running.node else ""
        yield (
            cell,
            RunError(
                f"{cell} ended the process that computed it {self._deaths[cell]} times{where} ({how}). Run the same command "
                "again, where there is more memory if that is short."
            ),
        )

    def _take_back_stranded(self) -> None:
        """Cells that may be computed only on nodes that are gone would wait for ever."""
        for task, running in list(self._running.items()):
            if running.nodes.isdisjoint(self._nodes.accepted):
                del self._running[task]
                self._cancel(task)
                self._waiting.append(running.cell)

    def _cancel(self, task: Any) -> None:
        with suppress(self._ray.exceptions.RayError, ValueError, TypeError):  # one that has ended
            self._ray.cancel(task, force=True)

    def stop(self) -> None:
        """End what is under way."""
        for task in self._running:
            self._cancel(task)
        self._running.clear()
