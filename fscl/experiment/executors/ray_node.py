"""What runs on the nodes of a Ray cluster: a look at what a node has, and cells."""

import queue
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fscl.data.pool import Splits
from fscl.experiment.cell import provide
from fscl.experiment.executors.executor import attempt, sendable
from fscl.experiment.plan import Cell, Finished, Order, Tick

SECONDS_BETWEEN_TICKS = 1.0  # what a cell tells more often is left out, unless there is something to save


@dataclass(frozen=True)
class Said:
    """What a cell says while it is computed.

    Attributes:
        node: the id of the node that computes it.
        fault: an error that nobody expected.
    """

    node: str
    tick: Tick | None = None
    outcome: Any = None
    fault: Exception | None = None


def compute_cell(
    order: Sequence[Any], cell: Cell, begun: bytes | None, names: Mapping[str, str], sent: Mapping[str, Any]
) -> Iterator[Said]:
    """One cell, as a task of Ray: what it says, one after another; the last has its outcome.

    Args:
        order: a reference to it, in a list so that Ray hands on the reference; a process fetches it once.
        begun: what the cell goes on from.
        names: of the nodes, by their ids.
        sent: by the ids of nodes that have no data, a reference to it.
    """
    import ray

    node = ray.get_runtime_context().get_node_id()
    said: queue.SimpleQueue[Said] = queue.SimpleQueue()

    def work() -> None:
        ticks = _Ticks(said, node)
        try:
            if node in sent:
                provide(_fetched(sent[node]))
            outcome = attempt(_fetched(order[0]), cell, ticks.tell, begun)
            if isinstance(outcome, Finished):
                outcome = replace(outcome, cost={**outcome.cost, "node": names.get(node, node)})
            said.put(Said(node, outcome=sendable(outcome) if isinstance(outcome, Exception) else outcome))
        except Exception as error:  # whatever it is, the driver must hear of it
            error.add_note(f"On node {names.get(node, node)}:\n{traceback.format_exc()}")
            said.put(Said(node, fault=sendable(error)))

    # a task of Ray tells something only by yielding it, and a cell tells by a call: so it has a thread of its own
    threading.Thread(target=work, daemon=True).start()
    while (one := said.get()).tick is not None:
        yield one
    yield one


class _Ticks:
    """Hands on what a cell tells, and not too often."""

    def __init__(self, said: "queue.SimpleQueue[Said]", node: str) -> None:
        self._said, self._node, self._last = said, node, 0.0

    def tell(self, tick: Tick) -> None:
        if tick.begun is not None or time.monotonic() - self._last >= SECONDS_BETWEEN_TICKS:
            self._last = time.monotonic()
            self._said.put(Said(self._node, tick=tick))


_held: dict[Any, Any] = {}


def _fetched(reference: Any) -> Any:
    """What a reference stands for; one object for all cells of a process, which keep what they have made of it."""
    import ray

    if reference not in _held:
        _held[reference] = ray.get(reference)
    return _held[reference]


def data_to_send(order: Order) -> dict[str, Splits]:
    """The data of an order from this machine, by its options as JSON."""
    from fscl.data.catalogue import load_splits

    return {spec.model_dump_json(): load_splits(spec) for spec, _, _ in order.pools}
