"""How good are class means on pretrained features? Few-shot episodes of one split of a data set, each image embedded once.

    python examples/pretrained_features.py efficientnet_lite0@128 mini-imagenet --split validation
    python examples/pretrained_features.py efficientnet_lite0 cub --split test

Choose the size of the images (`@128`) on validation classes. A base that has seen the classes it is asked for comes with a
warning.
"""

import argparse
import sys
import time

import torch

import fscl
from fscl.continual.methods.prototypes import Prototypes
from fscl.data.catalogue import load_splits, read_options
from fscl.data.episode import sample_positions
from fscl.evaluation.contamination import has_seen_classes, seen_before
from fscl.evaluation.metrics import mean_interval
from fscl.evaluation.protocol import top_k_accuracy

N_QUERY = 15
SPLITS = {"cub": {"split": "few-shot"}}  # 100/50/50 classes; the other sets have one split


def first_images(pool: fscl.ClassPool, n_images: int | None) -> fscl.ClassPool:
    """The pool with so many images of each class, or with all."""
    if n_images is None:
        return pool
    parts = [pool.of_class(index)[:n_images] for index in range(len(pool))]
    return fscl.ClassPool(pool.name, torch.cat(parts), pool.class_names, tuple(map(len, parts)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="such as efficientnet_lite0, timm:resnet18@128, or a .safetensors file")
    parser.add_argument("data", help="such as mini-imagenet or cub")
    parser.add_argument("--split", choices=("validation", "test"), default="validation")
    parser.add_argument("--way", type=int, default=5)
    parser.add_argument("--shot", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=600)
    parser.add_argument("--images", type=int, help="at most so many of each class, the first ones; default: all")
    asked = parser.parse_args()

    fscl.configure_process()
    base = fscl.load_base(asked.base)
    options = read_options({"name": asked.data, **SPLITS.get(asked.data, {})})
    pool = first_images(load_splits(options).pool(asked.split), asked.images)
    warning = seen_before(base, pool.name)
    if warning is not None:
        print(warning, file=sys.stderr)

    begin = time.perf_counter()
    features = base.embed(pool.images)
    seconds = time.perf_counter() - begin
    accuracies = []
    for number in range(asked.episodes):
        random = fscl.generator(0, "pretrained-episode", number)
        drawn = sample_positions(pool, n_way=asked.way, n_shot=asked.shot, n_query=N_QUERY, generator=random)
        learner, labels = Prototypes(base, Prototypes.Settings(), seed=0), torch.arange(asked.way)
        learner.learn_features(features[drawn.support.flatten()], labels.repeat_interleave(asked.shot))
        scores = learner.scores(features[drawn.query.flatten()])
        accuracies.append(top_k_accuracy(scores, labels.repeat_interleave(N_QUERY), 1))
    found = mean_interval(accuracies)
    seen = ", which the base has seen" if has_seen_classes(base, pool.name) else ""
    print(
        f"{asked.base}, {asked.way}-way {asked.shot}-shot on {len(pool)} {asked.split} classes of {asked.data}{seen}: "
        f"{100 * found.mean:.2f} ± {100 * found.half_width:.2f} % ({found.n} episodes of {len(pool.images):,} images; "
        f"{1000 * seconds / len(pool.images):.0f} ms an image)"
    )


if __name__ == "__main__":
    main()
