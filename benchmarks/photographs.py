"""A classifier taught in ten lessons, beside scikit-learn on frozen features of the same network, fitted once on all shots.

    FSCL_DATA=… python benchmarks/photographs.py --out photographs.json
    FSCL_DATA=… python benchmarks/photographs.py --sets birds --shots 5 --draws 5 --draws-from 5 --out more.json
    python benchmarks/photographs.py --show photographs.json more.json --markdown

Ours is `fscl.ContinualClassifier("efficientnet_lite0")` with its defaults, in memory. A draw chooses the classes' order (of
the drawings, also which), the queries and the shots; all sides have the same ones, so that differences are paired. Sets:
the 50 test classes of birds and of cars, and 50 of Omniglot's evaluation characters, dark on white paper as they were drawn.
Unknown is asked half way, when half of the classes are taught. Seconds are of the processor, on one thread.

The file is written after every draw, and draws that it has are not repeated: a run may be killed and started again, and
several processes may share the work, each with a file of its own.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from photographs_tables import KIND, OURS, RIVALS, SETS, SIMPLE, Record, calibration_error, read_records, tables
from sklearn.base import ClassifierMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import pairwise_distances, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits
from torch import Tensor

import fscl
from fscl.classifier.inputs import Shape, as_pictures
from fscl.data.catalogue import find_data_set
from fscl.data.pool import ClassPool
from fscl.nets.network import Network
from fscl.rng import numpy_generator
from fscl.storage import write_json

BASE = "efficientnet_lite0"
SHOTS = (1, 5, 10)
N_TIMED, ROUNDS = 48, 3  # pictures of which the time is taken, and how often

MAKERS: dict[str, Callable[[], ClassifierMixin]] = {
    "LogisticRegression": lambda: LogisticRegression(max_iter=1000),
    "Ridge": lambda: RidgeClassifier(),
    "LDA": lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
    "1-NN": lambda: KNeighborsClassifier(1),
}


@dataclass
class Pictures:
    """A pool's pictures in the shape of the network, and their frozen features, each computed once."""

    pool: ClassPool
    network: Network
    features: dict[int, NDArray[np.float64]] = field(default_factory=dict)

    def __call__(self, positions: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.float64]]:
        channels, image_size = self.network.picture_shape or (3, 224)
        images = as_pictures(list(self.pool.images[positions].numpy()), Shape(image_size, channels)).images
        missing = [place for place, position in enumerate(positions.tolist()) if position not in self.features]
        embedded = self.network.embed(images[missing]).double().numpy()
        self.features |= dict(zip(positions[missing].tolist(), embedded, strict=True))
        return images, np.stack([self.features[position] for position in positions.tolist()])


@dataclass(frozen=True)
class Draw:
    """Shots and queries, class by class in the order of teaching; labels are places in this order."""

    shots: tuple[Tensor, NDArray[np.float64]]
    queries: tuple[Tensor, NDArray[np.float64]]
    shot_labels: NDArray[np.int64]
    query_labels: NDArray[np.int64]


def load_set(name: str) -> ClassPool:
    """The classes of a set that nothing was chosen on."""
    if name == "drawings":
        pool = fscl.load_omniglot(split="official", image_size=105).test
        return ClassPool(name, 255 - pool.images, pool.class_names, pool.counts)
    data_set = find_data_set(name)
    return data_set.load(data_set.Options()).test


def draw_pictures(pictures: Pictures, shots: int, draw: int, setting: dict[str, int]) -> Draw:
    """The same queries for every number of shots, and shots of which the fewer are among the more."""
    pool, n_queries = pictures.pool, setting["queries"]
    rng = numpy_generator(draw, "photographs", pool.name)
    pool.require(n_classes=setting["classes"], n_images=n_queries + shots, purpose="a draw")
    chosen = rng.permutation(len(pool))[: setting["classes"]]
    orders = [pool.starts[index] + rng.permutation(pool.counts[index]) for index in chosen]
    places = np.arange(len(chosen))
    return Draw(
        pictures(np.concatenate([order[n_queries : n_queries + shots] for order in orders])),
        pictures(np.concatenate([order[:n_queries] for order in orders])),
        places.repeat(shots),
        places.repeat(n_queries),
    )


def measure(network: Network, draw: Draw, shots: int, n_lessons: int) -> dict[str, Any]:
    """All figures of one draw; see photographs_tables.py."""
    images, labels = draw.queries[0].numpy(), draw.query_labels
    model, seconds, unknown = fscl.ContinualClassifier(BASE), [], {}
    for number, lesson in enumerate(np.split(np.arange(labels.max() + 1), n_lessons), start=1):
        taught = np.isin(draw.shot_labels, lesson)
        X, y = draw.shots[0][torch.from_numpy(taught)].numpy(), draw.shot_labels[taught]
        begin = time.process_time()
        model.partial_fit(X, y)
        seconds.append(time.process_time() - begin)
        if number == n_lessons // 2:
            unknown = ask_for_unknown(model, draw, lesson[-1] + 1)
    chances = model.predict_proba(images)
    right = model.classes_[chances.argmax(1)] == labels
    return {
        "accuracy": rivals(draw, shots) | {OURS: float(right.mean())},
        "lesson_seconds": seconds,
        **predicting(model, network, draw.queries[0][:: max(1, len(labels) // N_TIMED)]),
        "estimated": model.estimated_accuracy_,
        "calibration_error": calibration_error(chances.max(1), right),
        **unknown,
    }


def rivals(draw: Draw, shots: int) -> dict[str, float]:
    """Accuracy of each rival; LDA needs two shots to have a variance."""
    names = [name for name in RIVALS if shots > 1 or name != "LDA"]
    fitted = {name: MAKERS[name]().fit(draw.shots[1], draw.shot_labels) for name in names}
    return {name: float(rival.score(draw.queries[1], draw.query_labels)) for name, rival in fitted.items()}


def predicting(model: fscl.ContinualClassifier, network: Network, images: Tensor) -> dict[str, list[float]]:
    """Seconds a picture by the classifier and by the bare network, in turn."""
    found: dict[str, list[float]] = {"predict_seconds": [], "bare_seconds": []}
    X = images.numpy()
    for _ in range(ROUNDS):
        for name, job in (
            ("predict_seconds", lambda: model.predict(X)),
            ("bare_seconds", lambda: network.embed(images)),
        ):
            begin = time.process_time()
            job()
            found[name].append((time.process_time() - begin) / len(X))
    return found


def ask_for_unknown(model: fscl.ContinualClassifier, draw: Draw, n_taught: int) -> dict[str, Any]:
    """How well scores tell queries of the classes taught so far from those of the others."""
    answers = model.explain_all(draw.queries[0].numpy(), n_nearest=1)
    never = draw.query_labels >= n_taught
    seen = draw.shots[1][draw.shot_labels < n_taught]
    means = seen.reshape(n_taught, -1, seen.shape[1]).mean(1)
    scores = {OURS: [answer.unknown_score for answer in answers]} | dict(
        zip(
            SIMPLE,
            (
                [-answer.probability for answer in answers],
                pairwise_distances(draw.queries[1], means).min(1),
                pairwise_distances(draw.queries[1], seen).min(1),
            ),
            strict=True,
        )
    )
    called = np.array([answer.unknown for answer in answers])
    has_threshold = answers[0].threshold is not None
    return {
        "auroc": {name: float(roc_auc_score(never, score)) for name, score in scores.items()},
        "false_alarms": float(called[~never].mean()) if has_threshold else None,
        "caught": float(called[never].mean()) if has_threshold else None,
    }


def run(given: argparse.Namespace, setting: dict[str, int]) -> None:
    """Measure what the file does not have yet, and write it after every draw."""
    records: list[Record] = []
    if given.out.exists():
        found, records = read_records([given.out])
        if found != setting:
            raise SystemExit(f"{given.out} has the setting {found}, not {setting}; name another file by --out.")
    done = {(record["set"], record["shots"], record["draw"]) for record in records}
    network = fscl.load_base(BASE)
    for name in given.sets:
        pictures: Pictures | None = None
        for draw in range(given.draws_from, given.draws_from + given.draws):  # all shots of a draw share its pictures
            for shots in given.shots:
                if (name, shots, draw) in done:
                    continue
                pictures = pictures or Pictures(load_set(name), network)
                begin = time.process_time()
                found = measure(network, draw_pictures(pictures, shots, draw, setting), shots, setting["lessons"])
                records.append({"set": name, "shots": shots, "draw": draw, **found})
                write_json(given.out, KIND, {"setting": setting, "records": records})
                accuracy = ", ".join(f"{rival} {100 * share:.1f}" for rival, share in found["accuracy"].items())
                print(
                    f"{name}, {shots} shots, draw {draw}: {accuracy} ({time.process_time() - begin:.0f} s)", flush=True
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--shots", nargs="+", type=int, default=SHOTS)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--draws-from", type=int, default=0, help="number of the first draw")
    parser.add_argument("--lessons", type=int, default=10)
    parser.add_argument("--classes", type=int, default=50)
    parser.add_argument("--queries", type=int, default=10, help="of each class")
    parser.add_argument("--out", type=Path, default=Path("photographs.json"))
    parser.add_argument(
        "--show", type=Path, nargs="+", metavar="FILE", help="print the tables of these files, run nothing"
    )
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    if given.lessons < 2 or given.classes % given.lessons:
        parser.error(f"{given.classes} classes cannot be taught in {given.lessons} equal lessons, two or more.")
    if not given.show:
        fscl.configure_process()
        with threadpool_limits(1):  # scikit-learn's
            run(given, {"classes": given.classes, "lessons": given.lessons, "queries": given.queries})
    print(tables(*read_records(given.show or [given.out]), markdown=given.markdown))


if __name__ == "__main__":
    main()
