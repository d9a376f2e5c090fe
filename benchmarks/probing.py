"""What probing costs beside learning: the same ten-task stream of glyphs, probed five times on two sides.

    python benchmarks/probing.py [--learn means|head] [--methods tsc replay joint prototypes]

Prints seconds of learning and of probing for each method on one sequence, and their ratio; then the probe done one problem
at a time, as a plain loop would do it, against all problems at once.
"""

import argparse
import time

import torch

from fscl.continual.registry import make_learner
from fscl.data.sets.glyphs import load_glyphs
from fscl.data.stream import StreamSpec, sample_stream
from fscl.evaluation.probe import Probe, ProbeSpec, make_probe
from fscl.evaluation.protocol import evaluate_stream
from fscl.meta.shipped import load_base
from fscl.process import configure_process
from fscl.rng import generator

AFTER = (0, 2, 5, 8, 10)


def one_by_one(probe: Probe, network_name: str) -> float:
    """Seconds for the class means of every problem, each embedding its own images."""
    network = load_base(network_name)
    begin = time.perf_counter()
    for classes in probe.problems:
        shots, queries = probe.shots[classes].flatten(0, 1), probe.queries[classes].flatten(0, 1)
        means = network.embed(shots).unflatten(0, (probe.spec.n_way, probe.spec.n_shot)).mean(1)
        torch.cdist(network.embed(queries), means).argmin(1)
    return time.perf_counter() - begin


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--learn", choices=["means", "head"], default="head")
    parser.add_argument("--methods", nargs="+", default=["tsc", "replay", "joint", "prototypes"])
    options = parser.parse_args()
    configure_process()
    splits, base = load_glyphs(), "glyphs-protonet-conv4"
    network = load_base(base)
    stream = sample_stream(splits.test, StreamSpec(n_tasks=10), generator(0, "probing"))
    of_stream = {name for task in stream.tasks for name in task.classes}
    spec = ProbeSpec(after=AFTER, learn=options.learn)
    print(f"{'method':<12} learning    probing   probing/learning")
    probes = {
        "novel": make_probe(splits.test, spec, seed=0, without=of_stream),
        "base": make_probe(splits.train, spec, seed=1),
    }
    for method in options.methods:
        settings = {"stop_loss": 0.05} if method in ("replay", "joint") else None  # as in the preset "quick"
        learner = make_learner(method, network, seed=0, settings=settings)
        result = evaluate_stream(learner, stream, splits.test, probes=probes)
        learning, probing = sum(result.learn_seconds), result.probe_seconds
        print(f"{method:<12} {learning:6.1f} s   {probing:6.2f} s   {probing / learning:.2f}", flush=True)
    means = make_probe(splits.test, ProbeSpec(), seed=0)
    begin = time.perf_counter()
    means.accuracies(network)
    together = time.perf_counter() - begin
    alone = one_by_one(means, base)
    print(f"100 problems by class means: {together:.2f} s together, {alone:.2f} s one by one ({alone / together:.1f}×)")


if __name__ == "__main__":
    main()
