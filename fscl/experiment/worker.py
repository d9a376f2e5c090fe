"""The worker process: computes one cell after another, on one thread, and dies with its parent."""

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from dataclasses import dataclass
from functools import cache, lru_cache
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import torch

from fscl.continual.consolidation import Consolidation
from fscl.continual.methods import make_learner
from fscl.data.catalogue import load_splits
from fscl.data.pool import ClassPool, Examples, Splits
from fscl.data.stream import Stream
from fscl.device import find_device
from fscl.errors import RunError
from fscl.evaluation.inspected import save_found
from fscl.evaluation.inspection import Inspector
from fscl.evaluation.probe import Probe, make_probe
from fscl.evaluation.protocol import evaluate_stream
from fscl.evaluation.seen import SeenBefore
from fscl.experiment.config import Config
from fscl.experiment.confused import save_confusions, worst_confusions
from fscl.experiment.record import Cell, RunRecord
from fscl.experiment.sheet import save_sheet
from fscl.nets.network import Network
from fscl.nets.sources import load_network
from fscl.process import configure_process, release_free_memory
from fscl.rng import child_seed


@dataclass(frozen=True, eq=False)
class _Orders:
    """What the parent asked of this process."""

    config: Config
    record: RunRecord
    ticks: "Queue[float]"


_orders: _Orders | None = None  # a process pool hands them over in no other way


def begin(config: Config, folder: Path, ticks: "Queue[float]") -> None:
    """Set up this process; the first call in every worker."""
    global _orders
    configure_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and decides
    warnings.simplefilter("ignore", SeenBefore)  # the parent has said it
    _die_with_parent()
    _warm_up()
    _orders = _Orders(config, RunRecord(folder), ticks)


@cache
def _material(orders: _Orders) -> tuple[Splits, Network]:
    """Data and base, loaded with the first cell, so that what is wrong with them is told as an error of that cell."""
    return load_splits(orders.config.data), load_network(orders.record.network_path)[0]


@cache
def _on_device(orders: _Orders) -> tuple[ClassPool, Network]:
    """The classes of the streams and the base, moved once, to where the configuration says."""
    splits, network = _material(orders)
    device = find_device(orders.config.device)
    return splits.pool(orders.config.run.split).to(device), network.to(device)


def compute(cell: Cell) -> tuple[Cell, dict[str, Any], dict[str, Any]]:
    """Learn and evaluate one cell; its result and its cost."""
    if _orders is None:
        raise RunError("this worker was not set up; it is a fault of fscl.")
    config, record, ticks = _orders.config, _orders.record, _orders.ticks
    pool = _material(_orders)[0].pool(config.run.split)
    moved, network = _on_device(_orders)
    stream = Stream.load(record.stream_path(cell.sequence))
    settings = config.settings_of(cell.method)
    learner = make_learner(
        cell.method,
        network,
        seed=child_seed(config.seed, "learner", cell.sequence),
        settings=None if settings is None else settings.model_dump(),
    )
    inspector = None
    if config.inspect is not None and isinstance(learner, Consolidation) and cell.sequence == 0:
        inspector = Inspector(config.inspect, stream.task(pool, 0))
    _reset_peak_memory()
    outcome = evaluate_stream(
        learner,
        stream,
        moved,
        probes=_probes(_orders, cell.sequence),
        on_task=lambda n_done: ticks.put(task_work(config, cell.method, n_done - 1)),
        on_learned=None if inspector is None else inspector.look,
    )
    peak = _peak_memory()
    if isinstance(learner, Consolidation) and learner.settings.memory == "generated" and cell.sequence == 0:
        _save_sheet(record.sheet_path(cell.method), learner, stream, pool)
    save_confusions(record.confused_path(cell), worst_confusions(stream, pool, outcome.answers))
    if inspector is not None and isinstance(learner, Consolidation):
        save_found(record.inspected_path(cell.method), inspector.found(learner))
    return cell, outcome.result(), {**outcome.cost(), "peak_memory_bytes": peak}


@lru_cache(maxsize=2)
def _probes(orders: _Orders, sequence: int) -> dict[str, Probe]:
    """The probes of a sequence, kept for the next method: where both have the same weights, one answer serves both."""
    if orders.config.probe is None:
        return {}
    splits, _ = _material(orders)
    stream = Stream.load(orders.record.stream_path(sequence))
    probes = make_probes(orders.config, splits, _trained_on(orders), stream, sequence)
    return {name: probe.to(find_device(orders.config.device)) for name, probe in probes.items()}


@cache
def _trained_on(orders: _Orders) -> ClassPool:
    """The classes that the base was trained on, of another data set where the configuration says so."""
    base_data = orders.config.base_data
    return (_material(orders)[0] if base_data is None else load_splits(base_data)).train


def make_probes(
    config: Config, splits: Splits, trained_on: ClassPool, stream: Stream, sequence: int
) -> dict[str, Probe]:
    """The probes of a sequence, the same for every method: *novel* classes, which the stream does not have, and classes of
    the *base*, which it was trained on."""
    if config.probe is None:
        return {}
    of_stream = {name for task in stream.tasks for name in task.classes}
    pools = {"novel": (splits.pool(config.run.split), of_stream), "base": (trained_on, set[str]())}
    return {
        name: make_probe(pool, config.probe, seed=child_seed(config.seed, f"probe-{name}", sequence), without=without)
        for name, (pool, without) in pools.items()
    }


def _save_sheet(path: Path, learner: Consolidation, stream: Stream, pool: ClassPool) -> None:
    """What the first sequence's classes left behind in memory, beside the shots they were generated from."""
    shots = [stream.task(pool, number).support for number in range(len(stream))]
    if learner.memory.stored is not None:
        images, labels = (torch.cat([getattr(task, part) for task in shots]) for part in ("images", "labels"))
        save_sheet(path, Examples(images, labels), learner.memory.stored.to("cpu"))


def task_work(config: Config, method: str, number: int) -> float:
    """About how many images pass through the network to learn and test one task; a backward pass counts as two."""
    stream, settings = config.stream, config.settings_of(method)
    ways, queries = stream.task_sizes, sum(stream.task_sizes[: number + 1]) * stream.n_query
    shots = ways[number] * stream.shots(number)
    if settings is None:
        return shots + queries
    kept = [stream.shots(n) if settings.memory_per_class == "all" else settings.memory_per_class for n in range(number)]
    replayed = shots + sum(way * min(stream.shots(n), kept[n]) for n, way in enumerate(ways[:number]))
    if settings.batch_size != "all":
        replayed = min(replayed, settings.batch_size)
    return (3 * settings.moving_steps + 1) * replayed + queries * settings.views


def _warm_up() -> None:
    """The first step of an optimiser imports a second's worth of torch, which is no part of learning a task."""
    weight = torch.zeros(1, requires_grad=True)
    weight.square().sum().backward()
    torch.optim.Adam([weight]).step()


def _die_with_parent() -> None:
    """A killed parent must not leave workers behind."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _reset_peak_memory() -> None:
    release_free_memory()
    if sys.platform == "linux":
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return  # not allowed in some containers: the peak is then the process's so far


def _peak_memory() -> int:
    """Bytes of resident memory at their highest since the reset, where the system tells; else since the start."""
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return 0  # not measured
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
