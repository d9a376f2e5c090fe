"""Which nodes of a Ray cluster compute cells: those whose versions, processor and data are the run's. Others are refused by
name, with the reason; nodes that join later are looked at then."""

import time
from typing import Any

from fscl.errors import RunError
from fscl.experiment.executors.executor import Tell
from fscl.experiment.executors.ray_cluster import Node, import_ray, is_there, nodes_alive
from fscl.experiment.plan import Order
from fscl.experiment.resources import Resources
from fscl.experiment.versions import CPU, that_must_not_mix

SECONDS_BETWEEN_LOOKS = 2.0


class Nodes:
    """The nodes as they are, looked at again now and then."""

    def __init__(self, order: Order, address: str, *, send_data: bool, tell: Tell) -> None:
        self._order, self._address, self._send_data, self._tell = order, address, send_data, tell
        self._resources: Resources = order.config.run.resources
        self._looks: dict[Any, Node] = {}  # under way
        self._last = 0.0
        self.accepted: dict[str, Node] = {}
        self.refused: dict[str, str] = {}  # why, by id
        self.without_data: set[str] = set()
        self.names: dict[str, str] = {}

    @property
    def slots(self) -> int:
        """How many cells can be computed at a time."""
        return sum(node.slots(self._resources, self._order.config.device) for node in self.accepted.values())

    def refresh(self) -> bool:
        """Look at the cluster, if it is time; whether the accepted nodes have changed."""
        before = set(self.accepted)
        self._hear(0.0)
        if time.monotonic() - self._last >= SECONDS_BETWEEN_LOOKS:
            self._last = time.monotonic()
            self._see_who_is_there()
        while not self.accepted and self._looks:
            self._hear(SECONDS_BETWEEN_LOOKS)
            self._see_who_is_there()
        if not self.accepted:
            raise RunError(self._why_none())
        return set(self.accepted) != before

    def _see_who_is_there(self) -> None:
        if not is_there(self._address):
            raise RunError(
                f"the Ray cluster at {self._address} is gone. Finished cells are kept; the same command continues when it "
                "is there again, and with --executor local without it."
            )
        alive = {node.id: node for node in nodes_alive()}
        for gone in self.accepted.keys() - alive.keys():
            self._tell(f"Node {self.accepted.pop(gone).name} is gone; its cells are computed elsewhere.")
        self._looks = {look: node for look, node in self._looks.items() if node.id in alive}
        known = {*self.accepted, *self.refused, *(node.id for node in self._looks.values())}
        for node in alive.values():
            if node.id not in known and node.slots(self._resources, self._order.config.device):
                self.names[node.id] = node.name
                self._looks[self._look_at(node)] = node

    def _look_at(self, node: Node) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from fscl.experiment.executors import ray_look

        ray = import_ray()
        ray.cloudpickle.register_pickle_by_value(ray_look)
        there = NodeAffinitySchedulingStrategy(node.id, soft=False)
        look = ray.remote(num_cpus=0, max_retries=2, scheduling_strategy=there)(ray_look.look)
        order = self._order
        return look.remote(order.config.device, [(spec.model_dump_json(), side) for spec, side, _ in order.pools])

    def _hear(self, seconds: float) -> None:
        """What the looks under way have found."""
        if not self._looks:
            return
        ray = import_ray()
        done, _ = ray.wait(list(self._looks), num_returns=1, timeout=seconds)
        for look in done:
            node = self._looks.pop(look)
            try:
                why = self._objection(node, ray.get(look))
            except ray.exceptions.RayError as error:
                why = f"it did not answer ({type(error).__name__})"
            if why is None:
                self.accepted[node.id] = node
            else:
                self.refused[node.id] = f"{node.name}: {why}"
                self._tell(f"Node {node.name} computes no cells: {why}.")

    def _objection(self, node: Node, found: dict[str, Any]) -> str | None:
        """Why a node that has this cannot compute cells of the order; None if it can."""
        if "fault" in found:
            return str(found["fault"])
        here, there = that_must_not_mix(self._order.versions), that_must_not_mix(found["versions"])
        for name in here:
            if here[name] != there[name]:
                called = "the processor level" if name == CPU else name
                hint = "; --cpu-level sets one for all" if name == CPU else ""
                return f"{called} is {there[name]} there and {here[name]} in this run{hint}"
        wanted = [(spec.name, hash_) for spec, _, hash_ in self._order.pools]
        for (name, hash_), actual, missing in zip(wanted, found["hashes"], found["missing"], strict=True):
            if missing and not self._send_data:
                return f"it has no data {name!r} ({missing.rstrip('.')}); --send-data sends it"
            if missing:
                self.without_data.add(node.id)
            elif actual != hash_:
                return f"its data {name!r} is other data: content hash {actual} there and {hash_} in this run"
        return None

    def _why_none(self) -> str:
        kept = "Finished cells are kept, and the same command continues."
        if self.refused:
            return (
                f"no node of the Ray cluster can compute cells of this run: {'; '.join(self.refused.values())}. {kept}"
            )
        gpus = self._resources.gpus_on(self._order.config.device)
        need = f"num_cpus = {self._resources.num_cpus:g}" + (f" and num_gpus = {gpus:g}" if gpus else "")
        return (
            f"the Ray cluster at {self._address} has no node with {need}, which run.resources asks for a cell. Add a node, "
            f"or ask for less. {kept}"
        )
