"""How fast the library is beside a bare PyTorch loop: learning a task, and predicting.

    python benchmarks/learning.py [--width 64] [--norm batch] [--rounds 7]

All sides compute the same thing from the same drawings in the same process, turn by turn: Conv-4 on 32×32 images, full-batch
Adam with every weight moving, then prediction in batches of 250 (BatchNorm with frozen statistics). A ratio above 1 means
that the library is faster; it computes the first block by patches while learning (nets/fast/patches.py). The last column
is the bare loop as most people write it, in PyTorch's default memory layout.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fscl.continual.consolidation import Consolidation
from fscl.continual.registry import make_learner
from fscl.data.pool import Examples
from fscl.data.sets.glyphs import load_glyphs
from fscl.nets.norm import NormName
from fscl.nets.trained import NetworkSpec, init_network
from fscl.process import configure_process
from fscl.rng import generator

STEPS = 10
N_LEARN, N_PREDICT, N_CLASSES, BATCH = 125, 1500, 25, 250


def bare_network(width: int, norm: NormName, layout: torch.memory_format) -> nn.Sequential:
    """Conv-4 as a plain nn.Sequential, with a linear head."""
    layers: list[nn.Module] = []
    for inputs in (1, width, width, width):
        conv = nn.Conv2d(inputs, width, 3, padding=1, bias=False)
        normed = nn.BatchNorm2d(width) if norm == "batch" else nn.GroupNorm(width // 8, width)
        layers += [conv, normed, nn.MaxPool2d(2), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * width, N_CLASSES)).to(memory_format=layout)


def bare_learning(
    width: int, norm: NormName, images: Tensor, labels: Tensor, layout: torch.memory_format
) -> nn.Sequential:
    network = bare_network(width, norm, layout)
    optimiser = torch.optim.Adam(network.parameters(), lr=5e-4, betas=(0.5, 0.999))
    x = images.float().div_(255).contiguous(memory_format=layout)
    for _ in range(STEPS):
        loss = cross_entropy(network(x), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network.eval()


def bare_prediction(network: nn.Sequential, images: Tensor, layout: torch.memory_format) -> Tensor:
    with torch.no_grad():
        parts = images.split(BATCH)
        return torch.cat([network(part.float().div_(255).contiguous(memory_format=layout)) for part in parts])


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def compare(title: str, n_images: int, contestants: dict[str, Callable[[], object]], rounds: int) -> None:
    """Time the contestants turn by turn, so that a busy moment of the machine hits all of them."""
    for work in contestants.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, work in contestants.items():
            times[name].append(seconds(work))
    ratios = {
        name: statistics.median(bare / ours for bare, ours in zip(times[name], times["fscl"], strict=True))
        for name in contestants
    }
    rate = n_images / statistics.median(times["fscl"])
    print(
        f"{title:<11} {rate:>8.0f} images/s   {ratios['bare']:.3f} × bare loop   {ratios['default']:.3f} × default layout"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=64, help="filters of Conv-4")
    parser.add_argument("--norm", choices=("batch", "group"), default="batch")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    configure_process()
    width: int = arguments.width
    norm: NormName = arguments.norm

    base = init_network(NetworkSpec(width=width, norm=norm), generator(0, "base"))
    images = load_glyphs().test.images[:N_PREDICT]
    labels = torch.arange(N_CLASSES).repeat_interleave(N_LEARN // N_CLASSES)
    shots = Examples(images[:N_LEARN], labels)
    layouts = {"bare": torch.channels_last, "default": torch.contiguous_format}

    def learn() -> Consolidation:
        learner = make_learner("joint", base, seed=0, settings={"steps": STEPS})
        assert isinstance(learner, Consolidation)
        learner.learn_task(shots)
        return learner

    learning: dict[str, Callable[[], object]] = {"fscl": learn}
    for name, layout in layouts.items():
        learning[name] = lambda layout=layout: bare_learning(width, norm, shots.images, labels, layout)
    compare("learning", STEPS * N_LEARN, learning, arguments.rounds)

    learner = learn()
    predicting: dict[str, Callable[[], object]] = {"fscl": lambda: learner.predict(images)}
    for name, layout in layouts.items():
        network = bare_learning(width, norm, shots.images, labels, layout)
        predicting[name] = lambda network=network, layout=layout: bare_prediction(network, images, layout)
    compare("predicting", N_PREDICT, predicting, arguments.rounds)


if __name__ == "__main__":
    main()
