"""Gives a base that was trained before the statistics of its training classes, which `fscl train` adds by itself.

    FSCL_DATA=… python tools/statistics.py fscl/meta/weights/omniglot-maml-conv4.safetensors

The weights stay as they are, bit by bit.
"""

import sys
from dataclasses import replace
from pathlib import Path

from fscl.data.catalogue import find_data_set, load_splits
from fscl.meta.statistics import base_statistics, carried
from fscl.nets.trained import TrainedNetwork


def add_statistics(path: Path) -> str:
    """Add them to the file; what it carries then."""
    network, about = TrainedNetwork.load(path)
    asked = find_data_set(about["data"]["name"]).Options
    options = {key: about["data"][key] for key in asked.model_fields if about["data"].get(key) is not None}
    train = load_splits(asked(**options)).train
    if set(train.class_names) != set(about["train_classes"]):
        raise SystemExit(f"{path} was trained on other classes than those of {about['data']} here.")
    richer = replace(network, extras={**network.extras, **base_statistics(network, train)})
    richer.save(path, about)
    return carried(richer.extras)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{name} carries {add_statistics(Path(name))}")
