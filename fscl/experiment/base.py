"""Where a run's base network comes from: the package, a file, or meta-training."""

from pathlib import Path
from typing import Any

from fscl.data.pool import ClassPool, Splits, with_rotations
from fscl.errors import ConfigError
from fscl.experiment.config import Config
from fscl.experiment.progress import Reporter
from fscl.meta.shipped import load_base_with_details
from fscl.meta.train import episode_accuracy, meta_train
from fscl.nets.network import Network, NetworkSpec

TEST_EPISODES = 600


def obtain_base(config: Config, splits: Splits, checkpoint: Path, reporter: Reporter) -> tuple[Network, dict[str, Any]]:
    """The network that every method starts from, and where it comes from."""
    if config.base.use is not None:
        network, about = load_base_with_details(config.base.use)
        reporter.say(f"Base: {config.base.use}, already meta-trained ({about.get('summary', 'no details')}).")
        return network, about
    return train_base(config, splits, checkpoint, reporter)


def train_base(config: Config, splits: Splits, checkpoint: Path, reporter: Reporter) -> tuple[Network, dict[str, Any]]:
    """Meta-train a base on the training classes; the best weights are chosen on the validation classes."""
    base = config.base
    train = with_rotations(splits.train) if base.train.rotations else splits.train
    channels, size, _ = train.image_shape
    spec = NetworkSpec(**base.network.model_dump(), channels=channels, image_size=size)
    with reporter.stage(f"Meta-training {base.learner.method}") as stage:
        trained = meta_train(
            base.learner,
            spec,
            train,
            splits.validation,
            base.train,
            seed=config.seed,
            checkpoint=checkpoint,
            progress=stage.update,
        )
    about = {
        "summary": f"{base.learner.method} on {config.data.name}, validation accuracy {100 * trained.best_accuracy:.2f} %",
        "config": config.name,
        "data": config.data.model_dump(mode="json"),
        "learner": base.learner.model_dump(mode="json"),
        "train": base.train.model_dump(mode="json"),
        "seed": config.seed,
        "best_step": trained.best_step,
        "validation_accuracy": trained.best_accuracy,
        "licence": "MIT",
        "train_classes": list(splits.train.class_names),
    }
    return trained.network, about


def test_base(config: Config, network: Network, splits: Splits, reporter: Reporter) -> list[float]:
    """Accuracy on episodes of the test classes, for the record only: nothing is chosen by it."""
    train = config.base.train
    accuracies: list[float] = []
    with reporter.stage("Testing the base") as stage:
        for number in range(TEST_EPISODES):
            accuracies += episode_accuracy(
                config.base.learner,
                network,
                splits.test,
                n_episodes=1,
                n_way=train.validation_way,
                n_shot=train.n_shot,
                n_query=train.validation_query,
                seed=config.seed * TEST_EPISODES + number,
            )
            stage.update(number + 1, TEST_EPISODES)
    return accuracies


def refuse_leak(config: Config, about: dict[str, Any], pool: ClassPool) -> None:
    """A base must never have been trained on the classes of the stream."""
    if dict(about.get("data", {})).get("name") != config.data.name:
        return
    shared = set(about.get("train_classes", [])) & set(pool.class_names)
    if shared:
        raise ConfigError(
            f"the base was trained on {len(shared)} of the stream's classes, such as {min(shared)!r}: its figures would not "
            "count. Use the split that the base was trained with, or train one on this split."
        )
