"""Where a run's base network comes from: the package, a file, or meta-training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from fscl.data.catalogue import load_splits, recorded, share_names
from fscl.data.dataset import DataSet
from fscl.data.pool import ClassPool, Splits, chosen_classes, with_rotations
from fscl.device import find_device
from fscl.errors import ConfigError, MisuseError
from fscl.evaluation.contamination import has_seen_classes
from fscl.evaluation.metrics import mean_interval
from fscl.experiment.config import Config, shipped_configs
from fscl.experiment.progress import Reporter
from fscl.experiment.search.spec import refuse_search
from fscl.meta.base import EmbeddingLearner
from fscl.meta.shipped import load_base_with_details, shipped_bases
from fscl.meta.statistics import base_statistics
from fscl.meta.team import Team, join_team
from fscl.meta.train import OnValidation, TrainedBase, episode_accuracy, meta_train
from fscl.nets.network import Network
from fscl.nets.sources import is_pretrained_name
from fscl.nets.trained import NetworkSpec, TrainedNetwork
from fscl.process import configure_process
from fscl.rng import child_seed
from fscl.storage import sync_folders


def load_side(spec: DataSet.Options, reporter: Reporter) -> Splits:
    """The pools of a data set, with progress; files that are skipped are named."""
    with reporter.stage(f"Loading {spec.name}") as stage:
        return load_splits(spec, stage.update, lambda problem: reporter.warn(f"Skipped: {problem}"))


def obtain_base(
    config: Config, splits: Splits, checkpoint: Path, reporter: Reporter, on_validation: OnValidation | None = None
) -> tuple[Network, dict[str, Any]]:
    """The network that every method starts from, and where it comes from; `on_validation` watches it being trained.

    Args:
        splits: of the base's side, if a base has to be trained.
    """
    if config.base.use is not None:
        _say_how_to_make(config.base.use, "use")
        network, about = _with_movable_tail(config, *load_base_with_details(config.base.use))
        reporter.say(f"Base: {describe_base(config, network, about)}.")
        return network, about
    trained, about = train_base(config, splits, checkpoint, reporter, on_validation=on_validation)
    return trained.network, about


def _with_movable_tail(config: Config, network: Network, about: dict[str, Any]) -> tuple[Network, dict[str, Any]]:
    """The base with weights to move from stage `base.tail` on, where that is asked for."""
    depth = config.base.tail
    if depth is None:
        return network, about
    try:
        movable = network.movable(depth)
    except MisuseError as error:
        raise ConfigError(f"base.tail = {depth}: {error}") from error
    features = str(about.get("summary", "features")).removeprefix("frozen ")
    last = network.n_stages - depth
    move = "last stage moves" if last == 1 else f"last {last} stages move"
    return movable, {**about, "summary": f"{features}, whose {move}"}


def _say_how_to_make(name: str, key: str) -> None:
    """A base that `fscl train` would have put there, and has not yet."""
    path = Path(name)
    if len(path.parts) == 3 and path.parts[0] == "bases" and path.parts[1] in shipped_configs() and not path.exists():
        raise ConfigError(
            f"the base {name} is not here yet: `fscl train {path.parts[1]}` makes it, in this folder. Or name another file "
            f"with base.{key}=PATH."
        )


def describe_base(config: Config, network: Network, about: dict[str, Any]) -> str:
    """Where the base comes from, for people; and whether it has seen the classes of the stream before."""
    summary = about.get("summary", "no details")
    if has_seen_classes(network, config.data.name):
        summary += f" (all classes of {config.data.name} are among what they have seen)"
    if config.base.use is None:
        return f"meta-trained for this run: {summary}"
    if config.base.use in shipped_bases():
        return f"{config.base.use}, which comes with the package: {summary}"
    if is_pretrained_name(config.base.use):
        return f"{config.base.use}: {summary}"
    return f"{Path(config.base.use).name}, from a file: {summary}"


def train_base(
    config: Config,
    splits: Splits,
    checkpoint: Path,
    reporter: Reporter,
    team: Team | None = None,
    on_validation: OnValidation | None = None,
) -> tuple[TrainedBase, dict[str, Any]]:
    """Meta-train a base on the training classes; the best weights are chosen on the validation classes."""
    base = config.base
    if not len(splits.train):
        raise ConfigError(
            f"{config.base_side.name} has no training classes, so no base can be trained on it. Name a base with base.use, "
            "or other data to train one on with base_data.name."
        )
    splits = replace(splits, train=chosen_classes(splits.train, base.train.classes))
    train = with_rotations(splits.train) if base.train.rotations else splits.train
    channels, size, _ = train.image_shape
    spec = NetworkSpec(**base.network.model_dump(), channels=channels, image_size=size)
    start, before = _start(config, splits)
    with reporter.stage(f"Meta-training {base.learner.method}") as stage:
        trained = meta_train(
            base.learner,
            spec,
            train,
            splits.validation,
            base.train,
            seed=config.seed,
            checkpoint=checkpoint,
            start=start,
            progress=stage.update,
            team=team,
            on_validation=on_validation,
            device=config.device,
            autocast=config.autocast,
        )
    trained = replace(trained, network=_with_extras(config, trained, splits.train, reporter))
    about: dict[str, Any] = {
        "summary": f"{base.learner.method} on {config.base_side.name}, {_accuracy(config, trained)}",
        "config": config.name,
        "data": recorded(config.base_side),
        "learner": base.learner.model_dump(mode="json"),
        "train": base.train.model_dump(mode="json"),
        "start": base.start,
        "seed": config.seed,
        "best_step": trained.best_step,
        "validation_accuracy": trained.best_accuracy,
        "licence": "MIT",
        "train_classes": sorted({*splits.train.class_names, *before.get("train_classes", [])}),
        "validation_classes": sorted({*splits.validation.class_names, *before.get("validation_classes", [])}),
    }
    if config.device != "cpu":
        about["device"] = config.device
    if config.autocast:
        about["autocast"] = True
    if before and not share_names(before.get("data", {}), about["data"]):
        about["before"] = {key: before.get(key) for key in ("data", "train_classes", "validation_classes", "before")}
    return trained, about


def _with_extras(config: Config, trained: TrainedBase, train: ClassPool, reporter: Reporter) -> TrainedNetwork:
    """The network with what continual methods may ask of a base: statistics of its classes, and what its learner adds."""
    network, train = trained.network, train.to(trained.network.device)
    with reporter.stage("Statistics of the training classes") as stage:
        statistics = base_statistics(network, train, stage.update)
    return replace(network, extras={**statistics, **config.base.learner.extras(network, trained.meta, train)})


def _accuracy(config: Config, trained: TrainedBase) -> str:
    inference = config.base.learner.inference
    return f"validation accuracy {100 * trained.best_accuracy:.2f} %" + (f" with {inference}" if inference else "")


def _start(config: Config, splits: Splits) -> tuple[Network | None, dict[str, Any]]:
    """The network that training starts from, which must not know the classes that the base is chosen or tested on."""
    if config.base.start is None:
        return None, {}
    _say_how_to_make(config.base.start, "start")
    network, about = load_base_with_details(config.base.start)
    try:
        network.starting_weights()
    except MisuseError as error:
        raise ConfigError(f"base.start = {config.base.start!r}: {error} Use base.use.") from error
    for pool in (splits.validation, splits.test):
        _refuse_shared(
            config.base_side, about, "train_classes", pool, "the network to start from was trained", splits.known
        )
    _refuse_shared(config.base_side, about, "validation_classes", splits.test, "the network to start from was chosen")
    return network, about


def train_and_test(config: Config, folder: Path, reporter: Reporter) -> tuple[Path, list[str]]:
    """Meta-train a base into `folder` and test it: the path of the network, and what to say of it.

    Under `torchrun` the processes share the work; only the first one writes and has something to say.
    """
    refuse_search(config.search, config.name)
    if config.base.use is not None:
        raise ConfigError(f"base.use = {config.base.use!r} brings a trained network; remove it to train one.")
    configure_process()
    device = find_device(config.device)  # one that is not here is refused before anything is written
    path = folder / "network.safetensors"
    with join_team(device) as team:
        if not team.leads:
            reporter = Reporter(quiet=True)
        elif team.size > config.base.train.meta_batch:
            reporter.warn(
                f"{team.size} processes share the tasks of a step, but base.train.meta_batch is "
                f"{config.base.train.meta_batch}: the others wait."
            )
        splits = load_side(config.base_side, reporter)
        _check_test(config, splits)
        trained, about = train_base(config, splits, folder / "meta-training.safetensors", reporter, team)
        about["test"] = _test(config, trained, splits, reporter, team)
        if team.leads:
            trained.network.save(path, about)
            sync_folders(folder.absolute(), up_to=folder.absolute().parent)
    inference = config.base.learner.inference
    chosen = f"{config.base.train.validation_way}-way {config.base.train.shots_to_test}-shot" + (
        f", {inference}," if inference else ""
    )
    lines = [f"{chosen} on validation classes: {100 * trained.best_accuracy:.2f} % (chose step {trained.best_step})"]
    for test in about["test"]:
        accuracy = f"{100 * test['accuracy']:.2f} ± {100 * test['interval_95']:.2f} %"
        lines.append(f"{test['shape']} on test classes: {accuracy} ({test['episodes']} episodes)")
    return path, lines if team.leads else []


def _check_test(config: Config, splits: Splits) -> None:
    """Refuse tests that the split or the learner cannot serve, before hours of training."""
    train, learner = config.base.train, config.base.learner
    if train.test_mirrored and not isinstance(learner, EmbeddingLearner):
        raise ConfigError(
            f"test_mirrored is for learners that predict from features, and {learner.method} adapts; remove it."
        )
    for way in train.test_ways or (train.validation_way,) if train.test_episodes else ():
        splits.test.require(
            n_classes=way,
            n_images=train.shots_to_test + train.validation_query,
            purpose=f"testing the base at {way} ways",
        )
        if learner.has_fixed_way and way != train.n_way:
            raise ConfigError(
                f"the head of {learner.method} has {train.n_way} rows (n_way), so test_ways cannot hold {way}; remove it."
            )


def _test(config: Config, trained: TrainedBase, splits: Splits, reporter: Reporter, team: Team) -> list[dict[str, Any]]:
    """Accuracy on episodes of the test classes, for the record only: nothing is chosen by it."""
    train, results = config.base.train, []
    if train.test_episodes == 0:
        return []
    for way in train.test_ways or (train.validation_way,):
        variants = [
            (name, learner, False) for name, learner in config.base.learner.test_variants(trained.network.spec).items()
        ]
        if train.test_mirrored:
            variants.append(("each picture seen both ways", config.base.learner, True))
        for name, learner, mirrored in variants:
            shape = f"{way}-way {train.shots_to_test}-shot" + (f", {name}" if name else "")
            with reporter.stage(f"Testing {shape}") as stage:
                accuracies = episode_accuracy(
                    learner,
                    trained.network,
                    trained.meta,
                    splits.test.to(trained.network.device),
                    n_episodes=train.test_episodes,
                    n_way=way,
                    n_shot=train.shots_to_test,
                    n_query=train.validation_query,
                    seed=child_seed(config.seed, "test", way),
                    mirrored=mirrored,
                    team=team,
                    progress=stage.update,
                )
            test = mean_interval(accuracies)
            results.append({"shape": shape, "episodes": test.n, "accuracy": test.mean, "interval_95": test.half_width})
    return results


def refuse_leak(config: Config, about: dict[str, Any], pool: ClassPool, known: frozenset[str] = frozenset()) -> None:
    """A base must never have been trained on the classes of the stream, nor chosen on those of a test stream.

    Args:
        known: classes of a base session, which the base is trained on by right.
    """
    _refuse_shared(config.data, about, "train_classes", pool, "the base was trained", known)
    if config.run.split == "test":
        _refuse_shared(config.data, about, "validation_classes", pool, "the base was chosen", known)
    if about.get("before"):  # the network that its training started from
        refuse_leak(config, about["before"], pool, known)


def refuse_other_base_side(config: Config, about: dict[str, Any]) -> None:
    """The *base* side of a probe is of the classes that the base was trained on, and of no others."""
    trained_on = about.get("data", {})
    if config.all_probes and trained_on and not share_names(trained_on, recorded(config.base_side)):
        raise ConfigError(
            f"the base was trained on {trained_on['name']}, but its side of the probe would be of {config.base_side.name}. "
            f'Add base_data.name = "{trained_on["name"]}", or leave out the probe.'
        )


def check_base_side(config: Config, base: Splits, pool: ClassPool, known: frozenset[str] = frozenset()) -> None:
    """Refuse another data set for the base that cannot serve the stream in `pool`, before hours of training."""
    if config.base_data is None:
        return
    if base.train.image_shape != pool.image_shape:
        shapes = ["×".join(map(str, one.image_shape)) for one in (base.train, pool)]
        raise ConfigError(
            f"base_data has images of {shapes[0]} (channels, height, width) and data has {shapes[1]}; one network reads "
            "both. Give both the same image_size, and a folder the channels of the other."
        )
    if config.base.use is None:
        classes = {"train_classes": base.train.class_names, "validation_classes": base.validation.class_names}
        refuse_leak(config, {"data": recorded(config.base_data), **classes}, pool, known)


def _refuse_shared(
    spec: DataSet.Options,
    about: dict[str, Any],
    key: str,
    pool: ClassPool,
    how: str,
    known: frozenset[str] = frozenset(),
) -> None:
    if not share_names(about.get("data", {}), recorded(spec)):
        return
    shared = set(about.get(key) or []) & set(pool.class_names) - known
    if shared:
        raise ConfigError(
            f"{how} on {len(shared)} of the classes of {pool.name!r}, such as {min(shared)!r}: its figures would not "
            "count. Use the split that it was made with, or train one on this split."
        )
