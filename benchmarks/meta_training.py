"""Meta-gradients of MAML: ours against `higher` and against the loop that learn2learn runs.

    python -m pip install -c constraints.txt --group bench
    python benchmarks/meta_training.py               # one thread each
    python benchmarks/meta_training.py --cores 2     # two threads for the others, two processes for ours

Conv-4 with 64 filters, BatchNorm with batch statistics (as the others have it), 32×32 glyphs, 5-way 5-shot, 15 queries,
4 tasks. All must give the same meta-gradient first, in double precision. Then each runs in float32 in a process of its own,
in turn, so that none profits from another's memory, and ratios are of medians. The others run with torch's own settings of
memory and denormals. learn2learn itself does not build on current Pythons, so its loop stands in for it.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from fscl import configure_process, generator, load_glyphs
from fscl.data.episode import Episode, sample_episode
from fscl.meta.maml import Maml
from fscl.meta.team import Team, join_team
from fscl.nets.curvature import part
from fscl.nets.params import Params
from fscl.nets.trained import NetworkSpec
from fscl.process import release_free_memory

N_TASKS, RATE, MB = 4, 0.1, 2**20
SPEC = NetworkSpec(width=64, norm="batch")
PEERS = ("higher", "plain")
NAMES = {"ours": "fscl", "higher": "higher 0.2.1", "plain": "learn2learn's loop"}


class PlainConv4(nn.Module):
    """Conv-4 and a linear head as one usually writes them."""

    def __init__(self, meta: Params) -> None:
        super().__init__()
        inputs = [1, 64, 64, 64]
        self.convs = nn.ModuleList(nn.Conv2d(n, 64, 3, padding=1, bias=False) for n in inputs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(64, track_running_stats=False) for _ in inputs)
        self.head = nn.Linear(256, 5)
        params, head = part(meta)
        state = params | {f"head.{name}": tensor for name, tensor in head.items()}
        self.load_state_dict({name: tensor.contiguous() for name, tensor in state.items()})
        self.to(next(iter(meta.values())).dtype)

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.max_pool2d(F.relu(norm(conv(x))), 2)
        return self.head(x.flatten(1))


def in_usual_order(model: PlainConv4, grads: Sequence[Tensor]) -> Tensor:
    """One flat meta-gradient, in the order of ours."""
    by_name = {
        name.replace("head.", "head/"): grad for (name, _), grad in zip(model.named_parameters(), grads, strict=True)
    }
    return torch.cat([by_name[name].flatten() for name in sorted(by_name)])


def with_higher(meta: Params, steps: int, first_order: bool) -> Callable[[Episode], Tensor]:
    import higher

    model = PlainConv4(meta)
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)

    def gradient(episode: Episode) -> Tensor:
        support, query = scaled(episode.support.images, meta), scaled(episode.query.images, meta)
        with higher.innerloop_ctx(model, optimiser, copy_initial_weights=False, track_higher_grads=not first_order) as (
            fast,
            inner,
        ):
            for _ in range(steps):
                inner.step(F.cross_entropy(fast(support), episode.support.labels))
            loss = F.cross_entropy(fast(query), episode.query.labels)
            wanted = list(fast.parameters() if first_order else fast.parameters(time=0))
            return in_usual_order(model, torch.autograd.grad(loss, wanted))

    return gradient


def with_plain_loop(meta: Params, steps: int, first_order: bool) -> Callable[[Episode], Tensor]:
    model = PlainConv4(meta)

    def gradient(episode: Episode) -> Tensor:
        support, query = scaled(episode.support.images, meta), scaled(episode.query.images, meta)
        start = dict(model.named_parameters())
        fast = start
        for _ in range(steps):
            loss = F.cross_entropy(functional_call(model, fast, (support,)), episode.support.labels)
            grads = torch.autograd.grad(loss, list(fast.values()), create_graph=not first_order)
            fast = {name: tensor - RATE * grad for (name, tensor), grad in zip(fast.items(), grads, strict=True)}
        loss = F.cross_entropy(functional_call(model, fast, (query,)), episode.query.labels)
        return in_usual_order(model, torch.autograd.grad(loss, list(start.values())))

    return gradient


def with_ours(meta: Params, steps: int, first_order: bool) -> Callable[[Episode], Tensor]:
    learner = Maml(inner_steps=steps, inner_rate=RATE, first_order=first_order, transductive=True)

    def gradient(episode: Episode) -> Tensor:
        grads = dict(zip(meta, learner.gradients(SPEC, meta, episode)[1], strict=True))
        return torch.cat([grads[name].flatten() for name in sorted(grads)])

    return gradient


WAYS = {"ours": with_ours, "higher": with_higher, "plain": with_plain_loop}


def scaled(images: Tensor, meta: Params) -> Tensor:
    return images.to(next(iter(meta.values())).dtype) / 255


def setting(double: bool) -> tuple[Params, list[Episode]]:
    """The same start and the same tasks for all."""
    meta = Maml().init(SPEC, n_way=5, n_classes=5, generator=generator(0, "benchmark"))
    meta = {name: tensor.double() if double else tensor for name, tensor in meta.items()}
    pool = load_glyphs().train
    return meta, [
        sample_episode(pool, n_way=5, n_shot=5, n_query=15, generator=generator(0, "task", number))
        for number in range(N_TASKS)
    ]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def child(way: str, steps: int, first_order: bool, seconds: float, check: Path | None) -> None:
    """Run in a process of its own: warm up, measure, print one line of JSON."""
    meta, episodes = setting(double=check is not None)
    gradient = WAYS[way](meta, steps, first_order)
    if check is not None:
        torch.save(sum(gradient(episode) for episode in episodes), check)
        return
    with join_team() as team:
        result = measured(gradient, episodes, seconds, team)
        if team.leads:
            print(json.dumps(result))


def measured(
    gradient: Callable[[Episode], Tensor], episodes: list[Episode], seconds: float, team: Team
) -> dict[str, float]:
    def meta_batch() -> Tensor:
        return torch.stack(list(team.map(N_TASKS, lambda number: gradient(episodes[number])))).sum(0)

    release_free_memory()  # or what the glyphs left behind would count as ours already
    before = resident()
    meta_batch()
    times: list[float] = []
    start = time.perf_counter()
    while not team.any(time.perf_counter() - start > seconds and len(times) >= 2):
        begun = time.perf_counter()
        meta_batch()
        times.append(time.perf_counter() - begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    total = sum(found.item() for found in team.map(team.size, lambda _: torch.tensor([float(peak)])))
    return {"seconds": statistics.median(times), "memory": total}


def run_child(
    way: str, steps: int, first_order: bool, seconds: float, cores: int, check: Path | None = None
) -> dict[str, float]:
    arguments = [__file__, "--child", way, "--steps", str(steps), "--seconds", str(seconds), "--cores", str(cores)]
    arguments += ["--first-order"] if first_order else []
    arguments += ["--check", str(check)] if check else []
    team = way == "ours" and cores > 1 and check is None
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(cores)] if team else []
    done = subprocess.run([sys.executable, *launcher, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return {} if check else dict(json.loads(done.stdout.splitlines()[0]))


def check_equal(steps: int, first_order: bool) -> dict[str, float]:
    """The largest deviation of each way from ours, relative to the meta-gradient's length, in double precision."""
    with tempfile.TemporaryDirectory() as folder:
        for way in WAYS:
            run_child(way, steps, first_order, 0, 1, Path(folder) / way)
        grads = {way: torch.load(Path(folder) / way, weights_only=True) for way in WAYS}
    return {way: float((grads[way] - grads["ours"]).norm() / grads["ours"].norm()) for way in PEERS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=6.0, help="how long to measure each, each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--first-order", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--check", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        if given.child == "ours":
            configure_process()
        else:
            torch.set_num_threads(given.cores)  # everything else as torch has it
        child(given.child, given.steps, given.first_order, given.seconds, given.check)
        return
    print(
        f"{given.cores} core(s), {N_TASKS} tasks a meta-gradient. Memory is the peak above what the process started with.\n"
    )
    print(f"{'':<22}{'tasks/s':>9}{'peak MB':>9}{'our speed':>12}{'our memory':>12}   same meta-gradient to")
    for first_order in (False, True):
        for steps in (1, 5):
            compare(steps, first_order, given.seconds, given.rounds, given.cores)


def compare(steps: int, first_order: bool, seconds: float, rounds: int, cores: int) -> None:
    """Check that all agree, measure them in turn, and print a few lines."""
    deviations = check_equal(steps, first_order)
    worst = max(deviations.values())
    if worst > 1e-4:
        raise SystemExit(f"the meta-gradients differ by {worst:.1e} relative: nothing to compare.")
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            found[way].append(run_child(way, steps, first_order, seconds, cores))
    own, *_ = middle = {
        way: {key: statistics.median(one[key] for one in found[way]) for key in ("seconds", "memory")} for way in WAYS
    }
    print(f"{'first' if first_order else 'second'} order, {steps} step{'s' if steps > 1 else ''}")
    for way, result in middle.items():
        line = f"  {NAMES[way]:<20}{N_TASKS / result['seconds']:>9.2f}{result['memory'] / MB:>9.0f}"
        if way != own:
            speed = result["seconds"] / middle[own]["seconds"]
            memory = middle[own]["memory"] / result["memory"]
            line += f"{speed:>10.2f} ×{memory:>10.2f} ×   {deviations[way]:.0e}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
