"""Teaching a classifier that holds 50 classes five more, asking it, and loading one of 200; beside scikit-learn.

    python benchmarks/classifier.py

Every figure is the median of some repetitions in one process on one thread, with Conv-4 of width 64 at 32×32 on invented
characters; seconds of the processor stand beside those of the clock, which a busy machine or a slow disk stretches. The
scikit-learn rivals get the same features for nothing and do the same job in memory: no journal, no commit, no judging by
leaving one out. Ratios are of seconds of the processor.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.neighbors import NearestCentroid

import fscl
from fscl.data.pool import ClassPool
from fscl.nets.network import Network

BASE = "omniglot-protonet-conv4"
N_KNOWN, N_NEW, N_SHOT, N_MANY, N_ASKED = 50, 5, 5, 200, 500


@dataclass(frozen=True)
class Seconds:
    """By the clock, and of the processor."""

    clock: float
    processor: float

    def __str__(self) -> str:
        return f"{self.clock:.3f} s ({self.processor:.3f} s of the processor)"


def seconds(job: Callable[[], object], *, times: int, before: Callable[[], object] = lambda: None) -> Seconds:
    """Median time of a job; `before` puts things back, and is not counted."""
    clock, processor = [], []
    for _ in range(times):
        before()
        begin, worked = time.perf_counter(), time.process_time()
        job()
        clock.append(time.perf_counter() - begin)
        processor.append(time.process_time() - worked)
    return Seconds(statistics.median(clock), statistics.median(processor))


def shots(pool: ClassPool, first: int, n: int) -> tuple[np.ndarray, list[str]]:
    X = np.concatenate([pool.of_class(i)[:N_SHOT, 0].numpy() for i in range(first, first + n)])
    return X, [f"character {i:03}" for i in range(first, first + n) for _ in range(N_SHOT)]


def main() -> None:
    fscl.configure_process()
    pool, network = fscl.load_glyphs().test, fscl.load_base(BASE)
    known, new = shots(pool, 0, N_KNOWN), shots(pool, N_KNOWN, N_NEW)
    asked = pool.images[:N_ASKED]
    taught: dict[str, Seconds] = {}
    with tempfile.TemporaryDirectory() as folder:
        for method, times in (("prototypes", 11), ("tsc", 3)):
            taught[method] = _teach_and_ask(Path(folder) / method, method, times, network, known, new, asked)
        _load(Path(folder) / "many", pool)
    _rivals(network, known, new, taught)


def _teach_and_ask(folder: Path, method: str, times: int, network: Network, known, new, asked) -> Seconds:
    model = fscl.ContinualClassifier(BASE, method).fit(*known).save(folder)
    model.partial_fit(*new)  # the first time builds what later ones find built
    taught = seconds(lambda: model.partial_fit(*new), times=times, before=model.undo)
    print(f"{method}: {N_NEW}-way {N_SHOT}-shot into a folder of {N_KNOWN} classes: {taught}")
    X = asked[:, 0].numpy()
    pairs = [
        (seconds(lambda: network.embed(asked), times=1), seconds(lambda: model.predict(X), times=1)) for _ in range(21)
    ]
    bare = statistics.median(bare.processor for bare, _ in pairs)
    ratio = statistics.median(whole.processor / bare.processor for bare, whole in pairs)
    print(
        f"{method}: predicting: {1e6 * bare / len(X):.0f} µs a picture for the bare network, × {ratio:.3f} for predict"
    )
    return taught


def _load(folder: Path, pool: ClassPool) -> None:
    still = {"embedding_steps": 0}  # a state of the same size as any of `tsc`, without the time to learn it
    fscl.ContinualClassifier(BASE, "tsc", settings=still).fit(*shots(pool, 0, N_MANY)).save(folder)
    one = pool.images[:1, 0].numpy()  # the learner is made when it is first asked
    taken = seconds(lambda: fscl.ContinualClassifier.load(folder).predict(one), times=7)
    print(f"loading a model of {N_MANY} classes ({N_MANY * N_SHOT} stored examples), and one answer: {taken}")


def _rivals(network: Network, known, new, taught: dict[str, Seconds]) -> None:
    X = np.concatenate([known[0], new[0]])
    y = [*known[1], *new[1]]
    import torch

    features = network.embed(torch.from_numpy(X)[:, None]).numpy()
    embedding = seconds(lambda: network.embed(torch.from_numpy(new[0])[:, None]), times=15)
    print(
        f"scikit-learn, refitted on all {len(y)} features (embedding the {len(new[1])} new pictures: {embedding} more)"
    )
    for rival in (NearestCentroid(), SGDClassifier(random_state=0)):
        fitted = seconds(lambda rival=rival: rival.fit(features, y), times=15)
        whole = fitted.processor + embedding.processor
        ratios = ", ".join(f"{method} takes × {each.processor / whole:.2f}" for method, each in taught.items())
        print(f"  {type(rival).__name__}: {fitted}; with the embedding, {ratios}")


if __name__ == "__main__":
    main()
