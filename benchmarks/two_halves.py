"""IDA's own experiment: train on half of the classes, go on with the other half, and ask about old, new and unseen ones.

    python benchmarks/two_halves.py [--folder bases] [--episodes 600]

Trains what is missing (configurations omniglot-ida-first-half and omniglot-ida, seven bases of a few minutes each), then
prints 5-way accuracy for: no update, fine-tuning without alignment, IDA at three weights, alignment of features, and all
classes at once, which takes as many steps as both halves together. Episodes are the same for every base, so differences to
*no update* are paired. Old and new classes are asked about with images that were trained on: Omniglot has 20 a class, and
none is set aside. The validation accuracy (20-way, classes of neither half) is what a weight is to be chosen by.
"""

import argparse
from pathlib import Path

import numpy as np

from fscl.data.catalogue import load_splits
from fscl.data.pool import ClassPool, chosen_classes
from fscl.evaluation.metrics import mean_interval
from fscl.experiment.base import train_and_test
from fscl.experiment.config import load_config
from fscl.experiment.progress import Reporter
from fscl.meta.protonet import ProtoNet
from fscl.meta.shipped import load_base_with_details
from fscl.meta.train import episode_accuracy
from fscl.nets.trained import TrainedNetwork
from fscl.process import configure_process

FIRST, SECOND = "omniglot-ida-first-half", "omniglot-ida"
ALL_STEPS = 2000  # as many as both halves together
UPDATES = {
    "fine-tuning": ["base.learner.alignment=none"],
    "IDA, weight 0.1": ["base.learner.weight=0.1"],
    "IDA, weight 1": ["base.learner.weight=1.0"],
    "IDA, weight 10": ["base.learner.weight=10.0"],
    "features aligned": ["base.learner.alignment=features", "base.learner.weight=0.1"],
}


def trained(folder: Path, name: str, config: str, overrides: list[str]) -> tuple[TrainedNetwork, float]:
    """A base and its validation accuracy, trained unless it is there."""
    place = folder / name.lower().replace(",", "").replace(" ", "-")
    path = place / "network.safetensors"
    if not path.exists():
        place.mkdir(parents=True, exist_ok=True)
        chosen = load_config(config, [*overrides, "base.train.test_episodes=0"])
        train_and_test(chosen, place, Reporter(quiet=True))
    network, about = load_base_with_details(path)
    assert isinstance(network, TrainedNetwork)
    return network, float(about["validation_accuracy"])


def all_bases(folder: Path) -> dict[str, tuple[TrainedNetwork, float]]:
    """Every base by its name, the one that all others start from first."""
    bases = {"no update": trained(folder, "no update", FIRST, [])}
    start = f"base.start={folder / 'no-update' / 'network.safetensors'}"
    for name, overrides in UPDATES.items():
        bases[name] = trained(folder, name, SECOND, [start, *overrides])
    together = ["base.train.classes=all", f"base.train.steps={ALL_STEPS}"]
    bases["all at once"] = trained(folder, "all at once", FIRST, together)
    return bases


def accuracies(network: TrainedNetwork, pool: ClassPool, n_shot: int, n_episodes: int) -> np.ndarray:
    shares = episode_accuracy(
        ProtoNet(), network, {}, pool, n_episodes=n_episodes, n_way=5, n_shot=n_shot, n_query=15, seed=0
    )
    return 100 * np.array(shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("bases") / "two-halves", help="where the bases are put")
    parser.add_argument("--episodes", type=int, default=600)
    arguments = parser.parse_args()
    configure_process()
    bases = all_bases(arguments.folder)
    splits = load_splits(load_config(FIRST).data)
    pools = {
        "old": chosen_classes(splits.train, "first_half"),
        "new": chosen_classes(splits.train, "second_half"),
        "unseen": splits.test,
    }
    for n_shot in (1, 5):
        print(f"\n5-way {n_shot}-shot accuracy, {arguments.episodes} episodes; in brackets the difference to no update")
        print(f"| base | validation | {' | '.join(pools)} |\n|---|---|{'---|' * len(pools)}")
        before: dict[str, np.ndarray] = {}
        for name, (network, validation) in bases.items():
            cells = []
            for side, pool in pools.items():
                found = accuracies(network, pool, n_shot, arguments.episodes)
                before.setdefault(side, found)
                gain = mean_interval((found - before[side]).tolist())
                cells.append(f"{found.mean():.2f} ({gain.mean:+.2f} ± {gain.half_width:.2f})")
            print(f"| {name} | {100 * validation:.2f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
