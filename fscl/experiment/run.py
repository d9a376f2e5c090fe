"""Run an experiment: base × methods × sequences, in worker processes, into a run directory.

A run that was killed is continued by the same call and ends with the same `results.json`, bit for bit, with any number of
workers: every cell depends on the configuration alone and is computed on one thread.
"""

import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import Any

from fscl.data.catalogue import find_data_set
from fscl.data.pool import ClassPool, Splits
from fscl.data.stream import Stream
from fscl.device import find_device
from fscl.errors import FsclError, Interrupted, RunError
from fscl.experiment import worker
from fscl.experiment.base import (
    check_base_side,
    describe_base,
    load_side,
    obtain_base,
    refuse_leak,
    refuse_other_base_side,
)
from fscl.experiment.config import Config
from fscl.experiment.pretrained import check_pretrained
from fscl.experiment.progress import Reporter, Stage
from fscl.experiment.record import Cell, RunRecord, versions
from fscl.experiment.watch import watch_meta_training
from fscl.experiment.worker import task_work
from fscl.nets.network import Network
from fscl.nets.sources import load_network
from fscl.process import configure_process
from fscl.rng import generator
from fscl.storage import digest, tensor_digest


def plan_cells(config: Config) -> list[Cell]:
    """Every cell, sequence by sequence, so that an unfinished run still compares all methods on the same sequences."""
    return [Cell(method, number) for number in range(config.run.n_sequences) for method in config.run.methods]


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers(config: Config) -> int:
    """One a core; processes that share a GPU only wait for each other."""
    return usable_cores() if config.device == "cpu" else 1


def run_experiment(
    config: Config,
    folder: Path,
    *,
    workers: int | None = None,
    reporter: Reporter | None = None,
    reuse: Sequence[Path] = (),
) -> RunRecord:
    """Run what is not yet done of an experiment, and return its record.

    Args:
        reuse: other run directories; cells finished there that would come out the same here are copied.
    """
    configure_process()
    find_device(config.device)  # one that is not here is refused before anything is written
    reporter = reporter or Reporter(quiet=True)
    record = RunRecord(folder)
    with record.locked():
        splits = load_side(config.data, reporter)
        base_side = splits if config.base_data is None else load_side(config.base_data, reporter)
        pool = splits.pool(config.run.split)
        streams = sample_streams(config, pool)
        check_base_side(config, base_side, pool, splits.known)
        record.refuse_strays()
        if record.network_path.exists():
            network, origin = load_network(record.network_path)
        else:
            watch = watch_meta_training(config, base_side, record.watched_path)
            network, origin = obtain_base(config, base_side, record.checkpoint_path, reporter, watch)
            network.to_input(pool.images[:1])  # a base for other images is refused before anything is written
            refuse_other_base_side(config, origin)
        check_pretrained(config, network, reporter)
        refuse_leak(config, origin, pool, splits.known)
        record.begin({**_about(config, pool, network, origin, streams), **_trained_on(config, base_side)})
        network.save(record.network_path, origin)
        for number, stream in enumerate(streams):
            stream.save(record.stream_path(number))
        record.drop_torn_line()
        plan = plan_cells(config)
        for other in reuse:
            reporter.say(f"{record.take_over(RunRecord(other), plan)} finished cells are taken over from {other}.")
        done = record.cells()
        pending = [cell for cell in plan if cell not in done]
        if pending:
            _compute(config, record, pending, min(workers or default_workers(config), len(pending)), reporter)
        record.finish(plan)
    return record


def sample_streams(config: Config, pool: ClassPool) -> list[Stream]:
    """The sequences of an experiment; each depends on the seed and its number alone."""
    data_set, numbers = find_data_set(config.data.name), range(config.run.n_sequences)
    return [data_set.draw_stream(pool, config.stream, generator(config.seed, "stream", number)) for number in numbers]


def _about(
    config: Config, pool: ClassPool, network: Network, origin: dict[str, Any], streams: list[Stream]
) -> dict[str, Any]:
    return {
        "config": config.resolved(),
        "versions": versions(),
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


def _compute(config: Config, record: RunRecord, pending: list[Cell], workers: int, reporter: Reporter) -> None:
    context = multiprocessing.get_context("spawn")  # forked copies of a process that used torch can hang
    ticks: Queue[float] = context.Queue()
    executor = ProcessPoolExecutor(workers, context, worker.begin, (config, record.folder, ticks))
    work = [task_work(config, cell.method, number) for cell in pending for number in range(config.stream.n_tasks)]
    with reporter.stage(f"Learning {len(pending)} streams, {workers} at a time") as stage:
        over = threading.Event()
        counter = threading.Thread(target=_count, args=(ticks, stage, work, over), daemon=True)
        counter.start()
        failures: list[FsclError] = []
        try:
            futures = [executor.submit(worker.compute, cell) for cell in pending]
            for future in as_completed(futures):
                try:
                    record.append(*future.result())
                except FsclError as error:  # the other cells are none the worse for it
                    failures.append(error)
        except KeyboardInterrupt as error:
            _abandon(executor)
            done = len(record.cells())
            raise Interrupted(f"stopped; {done} finished cells are kept, and the same command continues.") from error
        except BrokenProcessPool as error:
            raise RunError(
                f"a worker died (out of memory, or killed); {len(record.cells())} finished cells are kept. Run the same "
                "command again, with fewer --workers if memory is short."
            ) from error
        except BaseException:
            _abandon(executor)
            raise
        finally:
            over.set()
            counter.join()
        executor.shutdown()
    if failures:
        raise RunError(
            f"{len(failures)} of {len(pending)} cells failed; {len(record.cells())} finished ones are kept. The first said: "
            f"{failures[0]}"
        )


def _abandon(executor: ProcessPoolExecutor) -> None:
    processes = list((executor._processes or {}).values())
    executor.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()


def _count(ticks: "Queue[float]", stage: Stage, work: list[float], over: threading.Event) -> None:
    """Show how much of the work is done, at each task that a worker learned, until all is over."""
    total, done, n_tasks = sum(work), 0.0, 0
    while not over.is_set():
        try:
            done += ticks.get(timeout=0.2)
        except Empty:
            continue
        n_tasks += 1
        stage.update(done, total, f"{n_tasks}/{len(work)} tasks")
