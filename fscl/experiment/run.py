"""Run an experiment: base × methods × sequences, by an executor, into a run directory.

A run that was killed is continued by the same call and ends with the same `results.json`, bit for bit, with any executor and
any number of workers: every cell depends on its order alone. Only this process writes to the run directory.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import Any

from fscl.continual.registry import make_learner
from fscl.data.pool import ClassPool, Splits
from fscl.data.stream import Stream
from fscl.device import find_device
from fscl.errors import CellsFailed, FsclError, Interrupted
from fscl.experiment.base import (
    check_base_side,
    describe_base,
    load_side,
    obtain_base,
    refuse_leak,
    refuse_other_base_side,
)
from fscl.experiment.cell import BASE_NAME
from fscl.experiment.config import Config
from fscl.experiment.executors import find_executor
from fscl.experiment.executors.executor import Executor
from fscl.experiment.plan import Cell, Finished, Order, Tick, plan_cells, sample_streams
from fscl.experiment.pretrained import check_pretrained
from fscl.experiment.progress import Reporter, Stage
from fscl.experiment.record import RunRecord
from fscl.experiment.search.spec import refuse_search
from fscl.experiment.versions import versions
from fscl.experiment.watch import observe_meta_training
from fscl.experiment.writing import CellWriter, disk_errors
from fscl.nets.network import Network
from fscl.nets.sources import load_network, network_from_bytes
from fscl.process import configure_process
from fscl.storage import digest, tensor_digest, write_bytes

MOST_NODES = 6  # that progress names
SAVE_EVERY = 60.0  # seconds of work that a kill may cost a cell, or a task if that takes longer


def run_experiment(
    config: Config,
    folder: Path,
    *,
    workers: int | None = None,
    executor: str | Executor = "local",
    reporter: Reporter | None = None,
    reuse: Sequence[Path] = (),
) -> RunRecord:
    """Run what is not yet done of an experiment, and return its record.

    Args:
        workers: how many cells are computed at a time; without it, the executor decides.
        executor: where they are computed, by name ("local": processes of this machine; "in-process"), or what
            `find_executor` has made.
        reuse: other run directories; cells finished there that would come out the same here are copied.
    """
    configure_process()
    refuse_search(config.search, config.name)
    find_device(config.device)  # one that is not here is refused before anything is written
    chosen = find_executor(executor) if isinstance(executor, str) else executor
    n_workers = chosen.workers_for(config, workers)
    reporter = reporter or Reporter(quiet=True)
    record = RunRecord(folder)
    with record.locked():
        order = _prepare(config, record, reporter)
        plan = plan_cells(config)
        for other in reuse:
            reporter.say(f"{record.take_over(RunRecord(other), plan)} finished cells are taken over from {other}.")
        done = record.cells()
        pending = [cell for cell in plan if cell not in done]
        if pending:
            _execute(chosen, order, pending, min(n_workers, len(pending)), record, reporter)
        with disk_errors(record.folder):
            record.finish(plan)
    return record


def _prepare(config: Config, record: RunRecord, reporter: Reporter) -> Order:
    """Load the data, obtain the base, and write what this run is; the order of its cells."""
    splits = load_side(config.data, reporter)
    base_side = splits if config.base_data is None else load_side(config.base_data, reporter)
    pool = splits.pool(config.run.split)
    streams = sample_streams(config, pool)
    check_base_side(config, base_side, pool, splits.known)
    record.refuse_strays()
    if record.network_path.exists():
        network, origin = load_network(record.network_path)
    else:
        on_validation = observe_meta_training(config, base_side, record)
        network, origin = obtain_base(config, base_side, record.checkpoint_path, reporter, on_validation)
        network.to_input(pool.images[:1])  # a base for other images is refused before anything is written
        refuse_other_base_side(config, origin)
    check_pretrained(config, network, reporter)
    refuse_leak(config, origin, pool, splits.known)
    for (
        name
    ) in config.run.methods:  # a base or a stream that one of them cannot use is refused before anything is written
        make_learner(name, network, settings=config.settings_of(name)).check_stream(config.stream)
    record.begin({**_about(config, pool, network, origin, streams), **_trained_on(config, base_side)})
    network.save(record.network_path, origin)
    for number, stream in enumerate(streams):
        stream.save(record.stream_path(number))
    record.drop_torn_line()
    return Order(
        config=config,
        base=record.network_path.read_bytes(),
        streams=streams,
        data_hash=pool.content_hash,
        base_data_hash=None if config.base_data is None else base_side.train.content_hash,
        versions=versions(config.device),
        save_every=SAVE_EVERY,
    )


def _about(
    config: Config, pool: ClassPool, network: Network, origin: dict[str, Any], streams: Sequence[Stream]
) -> dict[str, Any]:
    return {
        "config": config.resolved(),
        "versions": versions(config.device),
        "data": {"pool": pool.name, "hash": pool.content_hash, "classes": len(pool)},
        "base": {
            "hash": tensor_digest(network.tensors()),
            "spec": network.spec.model_dump(mode="json"),
            "origin": digest(origin),
            "summary": describe_base(config, network, origin),
        },
        "streams": [stream.content_hash for stream in streams],
    }


def _trained_on(config: Config, base: Splits) -> dict[str, Any]:
    """What the base was trained on, where that is another data set: a run goes on with the same one alone."""
    if config.base_data is None:
        return {}
    return {"trained_on": {"train": base.train.content_hash, "validation": base.validation.content_hash}}


def _execute(
    executor: Executor, order: Order, cells: list[Cell], workers: int, record: RunRecord, reporter: Reporter
) -> None:
    """Have the cells computed and write each as it finishes; those that fail leave the others to finish."""
    failures: list[FsclError] = []
    with reporter.stage(f"Learning {len(cells)} streams, {workers} at a time") as stage:
        progress = _Progress(order, cells, stage)

        def task_done(cell: Cell, tick: Tick) -> None:
            if tick.begun is not None:
                with disk_errors(record.folder):
                    write_bytes(record.unfinished_path(cell), tick.begun)
            progress.update(cell, tick)

        work = executor.compute(order, cells, workers, task_done, record.unfinished, reporter.warn)
        try:
            with closing(CellWriter(record)) as writer, closing(work) as outcomes:
                for cell, outcome in outcomes:
                    if isinstance(outcome, Finished):
                        writer.add(cell, outcome)
                        progress.finish(cell, outcome)
                    else:
                        failures.append(outcome)
        except KeyboardInterrupt as error:
            n_done = len(record.cells())
            raise Interrupted(f"stopped; {n_done} finished cells are kept, and the same command continues.") from error
        writer.check()
    if failures:
        raise CellsFailed(
            f"{len(failures)} of {len(cells)} cells failed; {len(record.cells())} finished ones are kept. The first said: "
            f"{failures[0]}",
            failures,
        )


class _Progress:
    """Shows how much of the work is done, at each task that is learned."""

    def __init__(self, order: Order, cells: Sequence[Cell], stage: Stage) -> None:
        config, stream = order.config, order.config.stream
        n_tasks, (network, _) = stream.n_tasks, network_from_bytes(BASE_NAME, order.base)
        learners = {name: make_learner(name, network, settings=config.settings_of(name)) for name in config.run.methods}
        works = {name: [learner.work(stream, n) for n in range(n_tasks)] for name, learner in learners.items()}
        self._work = {method: list(accumulate(work, initial=0.0)) for method, work in works.items()}
        self._n_done = dict.fromkeys(cells, 0)
        self._n_tasks_done, self._done, self._total = 0, 0.0, sum(self._work[cell.method][-1] for cell in cells)
        self._n_tasks, self._n_cells = n_tasks * len(cells), len(cells)
        self._n_finished, self._on_nodes = 0, Counter[str]()
        self._stage = stage

    def update(self, cell: Cell, tick: Tick) -> None:
        """Note that so many tasks of a cell are done."""
        self._advance(cell, tick.n_done)
        self._show(f"{cell.method} {100 * tick.accuracy:.1f} % after {tick.n_done}")

    def finish(self, cell: Cell, finished: Finished) -> None:
        """Note that a cell is finished, and where it was computed, if that is told."""
        self._n_finished += 1
        self._advance(cell, len(self._work[cell.method]) - 1)
        if "node" in finished.cost:
            self._on_nodes[str(finished.cost["node"])] += 1
        self._show(f"{cell} is finished")

    def _advance(self, cell: Cell, n_done: int) -> None:
        work = self._work[cell.method]
        self._done += work[n_done] - work[self._n_done[cell]]  # less than 0 when a cell begins again
        self._n_tasks_done += n_done - self._n_done[cell]
        self._n_done[cell] = n_done

    def _show(self, last: str) -> None:
        nodes = self._on_nodes.most_common()
        where = ", ".join(f"{count} on {node}" for node, count in nodes[:MOST_NODES])
        where += f", others on {len(nodes) - MOST_NODES} more nodes" if len(nodes) > MOST_NODES else ""
        cells = f"{self._n_finished}/{self._n_cells} cells" + (f" ({where})" if where else "")
        self._stage.update(self._done, self._total, f"{cells}, {self._n_tasks_done}/{self._n_tasks} tasks; {last}")
