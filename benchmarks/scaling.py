"""How cells scale: cells a minute with 1 and 2 workers, local and on Ray, and at how many nodes the driver ends it.

    python benchmarks/scaling.py
    python benchmarks/scaling.py --kinds waiting --workers 2 --cells 36 --empty 0     # the overhead alone

The Ray nodes are started here, on the loopback interface of this machine. *Learned* cells are real ones (replay on glyphs,
as many steps as fill the seconds asked for); *waiting* cells sleep as long, so that a machine which is busy with other work
tells the overhead all the same: the wall time beyond cells × seconds ÷ workers, the start of the workers included. For
learned cells the seconds are those that each of them took.

Then the driver alone: how long it takes to hand out and take back a cell that does nothing, and to write one to disk
(batches of 1,000, the files of a real cell). A simulation puts the two together: nodes of 64 cores finish cells at random,
the driver handles one at a time, and its pen writes all that waits at once.
"""

import argparse
import heapq
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fscl
from fscl.data.catalogue import load_splits
from fscl.experiment.cell import compute
from fscl.experiment.config import Config, make_config
from fscl.experiment.executors import Placement, find_executor
from fscl.experiment.executors.executor import Executor
from fscl.experiment.plan import Cell, Finished, Order, Tick, plan_cells, sample_streams
from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from fscl.experiment.versions import versions
from fscl.meta.shipped import shipped_bases

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
CORES = 64  # of a node in the simulation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=5.0, help="that a cell takes")
    parser.add_argument("--kinds", nargs="+", choices=("waiting", "learned"), default=("waiting", "learned"))
    parser.add_argument("--workers", nargs="+", type=int, choices=(1, 2), default=(1, 2))
    parser.add_argument(
        "--empty", type=int, default=1000, help="cells that do nothing, to measure the driver with; 0: do not"
    )
    asked = parser.parse_args()
    fscl.configure_process()
    with tempfile.TemporaryDirectory(prefix="fscl-scaling-") as place, two_nodes() as address:
        folder = Path(place)
        steps = 5
        if "learned" in asked.kinds:
            steps, seconds = calibrate(asked.seconds)
            print(f"A learned cell of {steps} steps takes {seconds:.1f} s alone.\n", flush=True)
        print(
            f"{'cells':<9} {'executor':<9} {'workers':>7} {'wall s':>7} {'cells/min':>10} {'overhead':>9} {'to local':>9}"
        )
        for kind in asked.kinds:
            compare(kind, asked, steps, address, folder)
        if not asked.empty:
            return
        handling = cost_of_handling(address, asked.empty)
        writing = cost_of_writing(folder / "writing", finished_cell(steps))
    print(f"\nThe driver: {1e3 * handling:.2f} ms to hand out and take back a cell ({1 / handling:,.0f} a second);")
    pen = f"{1e3 * writing[1]:.2f} ms a cell in batches of 1,000 ({1 / writing[1]:,.0f} a second)"
    print(f"its pen: {pen}, {1e3 * writing[0]:.1f} ms for one alone.")
    simulate(asked.seconds, handling, writing)


# ---- cells that are computed ----


def compare(kind: str, asked: argparse.Namespace, steps: int, address: str, folder: Path) -> None:
    """A line for each executor and number of workers."""
    walls: dict[tuple[str, int], float] = {}
    for workers in asked.workers:
        for name in ("local", "ray"):
            executor = find_executor(name, Placement(address) if name == "ray" else None)
            begin = time.monotonic()
            if kind == "learned":
                record = run_experiment(
                    config_of(asked.cells, steps), folder / f"{name}-{workers}", workers=workers, executor=executor
                )
                busy = sum(
                    sum(entry["cost"][key])
                    for entry in record.cells().values()
                    for key in ("learn_seconds", "predict_seconds")
                )
            else:
                n_done = len(list(through(executor, order_of(asked.cells, wait, asked.seconds), workers)))
                busy = n_done * asked.seconds
            wall = walls[name, workers] = time.monotonic() - begin
            ratio = f"{wall / walls['local', workers]:.3f}" if name == "ray" else ""
            overhead = wall / (busy / workers) - 1
            print(
                f"{kind:<9} {name:<9} {workers:>7} {wall:>7.1f} {60 * asked.cells / wall:>10.1f} "
                f"{100 * overhead:>8.1f}% {ratio:>9}",
                flush=True,
            )


def config_of(n_cells: int, steps: int) -> Config:
    return make_config(
        {
            "name": "scaling",
            "base": {"use": "glyphs-protonet-conv4"},
            "stream": {"n_tasks": 5},
            "run": {"methods": ["replay"], "reference": "replay", "n_sequences": n_cells},
            "settings": {"replay": {"steps": steps}},
        }
    )


def calibrate(seconds: float) -> tuple[int, float]:
    """How many steps a task make a cell of so many seconds, and how long it then takes."""
    steps, taken = 5, timed(5)
    while taken < seconds:
        steps = max(steps + 1, int(1.1 * steps * seconds / taken))
        taken = timed(steps)
    return steps, taken


def timed(steps: int) -> float:
    begin = time.monotonic()
    finished_cell(steps)
    return time.monotonic() - begin


def finished_cell(steps: int) -> Finished:
    """A real cell, computed here."""
    return compute(order_of(1, None, 0.0, steps), Cell("replay", 0))


def wait(order: Order, cell: Cell, on_task: Callable[[Tick], None], begun: bytes | None) -> Finished:
    """A cell that takes as long as the order says, and computes nothing."""
    time.sleep(order.save_every)
    return Finished({"top1": [[1.0]]}, {})


def order_of(n_cells: int, compute_with: Callable[..., Finished] | None, seconds: float, steps: int = 5) -> Order:
    config = config_of(n_cells, steps)
    pool = load_splits(config.data).test
    base = shipped_bases()["glyphs-protonet-conv4"].read_bytes()
    return Order(
        config, base, sample_streams(config, pool), pool.content_hash, None, versions("cpu"), seconds, compute_with
    )


def through(executor: Executor, order: Order, workers: int) -> Iterator[Cell]:
    """The cells of an order as an executor finishes them."""
    n_workers = executor.workers_for(order.config, workers)
    work = executor.compute(order, plan_cells(order.config), n_workers, lambda *_: None, lambda _: None, lambda _: None)
    for cell, outcome in work:
        if isinstance(outcome, Exception):
            raise outcome
        yield cell


# ---- the driver alone ----


def cost_of_handling(address: str, n_cells: int) -> float:
    """Seconds of the driver's processor for each cell that it hands out and takes back, all its threads together."""
    order = order_of(n_cells, wait, 0.0)
    cells = through(find_executor("ray", Placement(address)), order, 2)
    next(cells)  # the nodes have been looked at, and their workers are there
    begin = time.process_time()
    n_done = len(list(cells))
    return (time.process_time() - begin) / n_done


def cost_of_writing(folder: Path, finished: Finished) -> tuple[float, float]:
    """Wall seconds to write one finished cell alone, and one of a thousand together; medians of five."""
    record = RunRecord(folder)
    base = {"hash": "b", "spec": {}, "origin": "o", "summary": ""}
    data = {"pool": "p", "hash": "h", "classes": 2}
    record.begin({"config": {"name": "toy"}, "versions": {}, "data": data, "base": base, "streams": []})
    alone, together = [], []
    for number in range(5):
        begin = time.monotonic()
        record.append(Cell("alone", number), finished)
        alone.append(time.monotonic() - begin)
        batch = [(Cell("together", 1000 * number + one), finished) for one in range(1000)]
        begin = time.monotonic()
        record.append_all(batch)
        together.append((time.monotonic() - begin) / 1000)
    return statistics.median(alone), statistics.median(together)


def simulate(seconds: float, handling: float, writing: tuple[float, float]) -> None:
    """From how many nodes on the driver, and not the nodes, decides how many cells are finished."""
    print(f"\nSimulated, cells of {seconds:g} s on nodes of {CORES} cores:")
    print(f"{'nodes':>6} {'cells/s':>8} {'of what the nodes could':>24}")
    for power in range(20):
        n_nodes = 2**power
        rate, share = simulated(n_nodes * CORES, seconds, handling, writing)
        print(f"{n_nodes:>6} {rate:>8.0f} {100 * share:>23.0f}%")
        if share < 0.9:
            print(f"With more than {n_nodes // 2} nodes ({n_nodes // 2 * CORES:,} cores) the driver is the bottleneck.")
            return


def simulated(n_slots: int, seconds: float, handling: float, writing: tuple[float, float]) -> tuple[float, float]:
    """Cells a second, and as a share of what the slots could do if the driver took no time."""
    chance = random.Random(0)
    ends = [chance.uniform(0, seconds) for _ in range(n_slots)]  # when each slot's cell is finished
    heapq.heapify(ends)
    n_cells, now, pen_free, waiting = 20 * n_slots if n_slots < 20_000 else 4 * n_slots, 0.0, 0.0, 0
    alone, each = writing
    for _ in range(n_cells):
        end = heapq.heappop(ends)
        now = max(now, end) + handling  # the driver takes it and hands out the next one
        heapq.heappush(ends, now + chance.gauss(seconds, seconds / 10))
        waiting += 1
        if pen_free <= now:
            pen_free, waiting = now + max(alone, each * waiting), 0
        elif waiting >= 1000:  # the driver waits for its pen
            now, waiting = pen_free, 0
            pen_free = now + max(alone, 1000 * each)
    rate = n_cells / max(now, pen_free)
    return rate, rate * seconds / n_slots


# ---- two nodes ----


@contextmanager
def two_nodes() -> Iterator[str]:
    """The address of a Ray cluster with two nodes of one core, which only this machine reaches."""
    # a path of a socket has at most 107 characters
    folder = Path(tempfile.mkdtemp(prefix="fscl-ray-", dir="/tmp"))  # a folder of its own  # nosec B108
    (folder / "ray").mkdir()
    os.environ.update(LOOPBACK, RAY_TMPDIR=str(folder))
    from ray.cluster_utils import Cluster

    here = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "object_store_memory": 200 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**here, "num_cpus": 0, "node_name": "head"})
    try:
        for name in ("one", "two"):
            cluster.add_node(**here, num_cpus=1, node_name=name)
        yield str(cluster.address)
    finally:
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
