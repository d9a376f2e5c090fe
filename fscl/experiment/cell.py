"""A cell (method × sequence) as a pure function: the same order gives the same result in any process, in any order.

Nothing is written here: what a cell leaves besides numbers comes back as bytes, and the driver of the run writes it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from statistics import fmean

import torch

from fscl.continual.learner import ContinualLearner
from fscl.continual.registry import make_learner
from fscl.data.catalogue import DataSpec, load_splits
from fscl.data.pool import ClassPool, Examples, Splits
from fscl.data.stream import Stream
from fscl.device import find_device
from fscl.errors import DataError, RunError
from fscl.evaluation.course import Course, course_bytes, resume
from fscl.evaluation.findings import finding_bytes
from fscl.evaluation.observer import Observer
from fscl.evaluation.probe import Probe, make_probe
from fscl.evaluation.protocol import evaluate_stream
from fscl.experiment.config import Config
from fscl.experiment.confused import CONFUSIONS, confusions_json, worst_confusions
from fscl.experiment.observers import observers_of
from fscl.experiment.plan import Cell, Finished, Order, Tick
from fscl.experiment.record import OBSERVED
from fscl.experiment.versions import that_must_not_mix, versions
from fscl.nets.network import Network
from fscl.nets.sources import network_from_bytes
from fscl.process import configure_process, peak_memory, reset_peak_memory
from fscl.rng import child_seed

BASE_NAME = Path("base.safetensors")  # what errors call the bytes of the base


def compute(
    order: Order, cell: Cell, on_task: Callable[[Tick], None] | None = None, begun: bytes | None = None
) -> Finished:
    """Learn and evaluate one cell.

    Args:
        on_task: called after each task.
        begun: what a `Tick` of the same cell brought, to go on from; damaged bytes are passed over.
    """
    configure_process()
    material, stream = _material(order), order.streams[cell.sequence]
    learner = _make_learner(order.config, cell, material.network)
    observers = _observers(order.config, cell, stream, material.pool)
    saver = _Saver(order.save_every, learner, f"{cell} of stream {stream.content_hash}", on_task)

    def look(n_tasks: int, learner: ContinualLearner) -> None:
        for observer in observers.values():
            observer.look(n_tasks, learner)

    reset_peak_memory()
    outcome = evaluate_stream(
        learner,
        stream,
        material.pool_on_device,
        probes=_probes(order, cell.sequence),
        prediction=order.config.run.prediction,
        # what observers have seen so far is in no file, so a cell that is observed begins again
        begun=None if begun is None or observers else resume(begun, learner, saver.what),
        on_task=partial(saver.task_done, is_saved=not observers),
        on_learned=look,
    )
    cost = {**outcome.cost(), "peak_memory_bytes": peak_memory()}
    files = {CONFUSIONS: confusions_json(worst_confusions(stream, material.pool, outcome.answers))}
    if cell.sequence == 0:  # once is enough to look at
        files |= learner.artefacts(_shots(stream, material.pool))
    for name, observer in observers.items():
        found = observer.found(learner)
        if found is not None:
            files[f"{OBSERVED}/{name}.json"] = finding_bytes(found)
    return Finished(outcome.result(), cost, files)


@dataclass
class _Saver:
    """Tells after each task how far a cell is, and now and then what it could go on from."""

    every: float
    learner: ContinualLearner
    what: str
    tell: Callable[[Tick], None] | None
    last: float = field(default_factory=time.monotonic)

    def task_done(self, course: Course, *, is_saved: bool) -> None:
        if self.tell is None:
            return
        begun = None
        if is_saved and time.monotonic() - self.last >= self.every:
            begun, self.last = course_bytes(course, self.learner, self.what), time.monotonic()
        self.tell(Tick(course.n_done, fmean(course.top1[-1]), begun))


@dataclass(frozen=True, eq=False)
class _Material:
    """What all cells of an order share in one process."""

    splits: Splits
    pool: ClassPool
    pool_on_device: ClassPool
    network: Network


_provided: dict[str, Splits] = {}


def provide(data: Mapping[str, Splits]) -> None:
    """Give this process data that its machine does not have, by its options as JSON; cells check it as any other."""
    _provided.update(data)


def load_here(spec: DataSpec) -> Splits:
    """The data that this process was given, or that its machine has."""
    return _provided.get(spec.model_dump_json()) or load_splits(spec)


@lru_cache(maxsize=1)
def _material(order: Order) -> _Material:
    """Loaded with the first cell, so that what is wrong with it is an error of that cell."""
    refuse_other_versions(order)
    device = find_device(order.config.device)
    splits = load_here(order.config.data)
    pool = splits.pool(order.config.run.split)
    refuse_other_data(pool, order.data_hash)
    network, _ = network_from_bytes(BASE_NAME, order.base)
    _warm_up()
    return _Material(splits, pool, pool.to(device), network.to(device))


def refuse_other_versions(order: Order) -> None:
    """This process must compute the bits that others would."""
    here, there = that_must_not_mix(versions(order.config.device)), that_must_not_mix(order.versions)
    for name in here:
        if here[name] != there[name]:
            raise RunError(
                f"the run is one of {name} {there[name]}, but the process that should compute a cell of it has {name} "
                f"{here[name]}: the last bits of the results would differ. Compute all cells on machines of one kind."
            )


def refuse_other_data(pool: ClassPool, data_hash: str) -> None:
    """The data here must be what the order was made of."""
    if pool.content_hash != data_hash:
        raise DataError(
            f"{pool.name!r} is not what the run began with: its content hash is {pool.content_hash}, and that of the run is "
            f"{data_hash}. Bring the old data back, or begin another run with --out."
        )


def _make_learner(config: Config, cell: Cell, network: Network) -> ContinualLearner:
    seed = child_seed(config.seed, "learner", cell.sequence)
    return make_learner(cell.method, network, seed=seed, settings=config.settings_of(cell.method))


@lru_cache(maxsize=2)
def _probes(order: Order, sequence: int) -> dict[str, Probe]:
    """The probes of a sequence, kept for the next method: where both have the same weights, one answer serves both."""
    if not order.config.all_probes:
        return {}
    splits, device = _material(order).splits, find_device(order.config.device)
    base_data = order.config.base_data
    trained_on = splits.train if base_data is None else _train_pool(order, base_data)
    probes = make_probes(order.config, splits, trained_on, order.streams[sequence], sequence)
    return {name: probe.to(device) for name, probe in probes.items()}


@lru_cache(maxsize=1)
def _train_pool(order: Order, base_data: DataSpec) -> ClassPool:
    """The classes that the base was trained on, of another data set than the streams."""
    pool = load_here(base_data).train
    refuse_other_data(pool, order.base_data_hash or "")
    return pool


def make_probes(
    config: Config, splits: Splits, trained_on: ClassPool, stream: Stream, sequence: int
) -> dict[str, Probe]:
    """The probes of a sequence, the same for every method: *novel* classes, which the stream does not have, and classes of
    the *base*, which it was trained on; behind these words the name of a probe that has one."""
    of_stream = {name for task in stream.tasks for name in task.classes}
    pools = {"novel": (splits.pool(config.run.split), of_stream), "base": (trained_on, set[str]())}
    return {
        f"{side} {name}".rstrip(): make_probe(
            pool, spec, seed=child_seed(config.seed, f"probe-{side}", sequence), without=without
        )
        for name, spec in config.all_probes.items()
        for side, (pool, without) in pools.items()
    }


def _observers(config: Config, cell: Cell, stream: Stream, pool: ClassPool) -> dict[str, Observer]:
    """Those that look at this cell: the first sequence of each method."""
    if cell.sequence != 0:
        return {}
    first = stream.task(pool, 0)
    return {name: observer(settings, first) for name, (observer, settings) in observers_of(config.observe).items()}


def _shots(stream: Stream, pool: ClassPool) -> Examples:
    """All that was learned in a sequence."""
    tasks = [stream.task(pool, number).support for number in range(len(stream))]
    return Examples(*(torch.cat([getattr(task, part) for task in tasks]) for part in ("images", "labels")))


def _warm_up() -> None:
    """The first step of an optimiser imports a second's worth of torch, which is no part of learning a task."""
    weight = torch.zeros(1, requires_grad=True)
    weight.square().sum().backward()
    torch.optim.Adam([weight]).step()
