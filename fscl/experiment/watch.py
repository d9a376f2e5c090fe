"""Observing meta-training: what an observer sees at each validation, written as it is measured.

All validations meet the same episodes of training classes. What is known of a step is replaced when the step comes again, so
that a run that was killed and continued ends with the same file as one that was not.
"""

from pathlib import Path
from typing import Any

from pydantic import Field

from fscl.data.episode import sample_episode
from fscl.data.pool import Splits
from fscl.evaluation.findings import finding_bytes, load_finding
from fscl.evaluation.observer import Finding, Observer
from fscl.experiment.config import Config
from fscl.experiment.observers import observers_of
from fscl.experiment.record import RunRecord
from fscl.meta.train import OnValidation
from fscl.nets.network import Network
from fscl.rng import generator
from fscl.storage import digest, write_bytes

MAX_CHECKPOINTS = 200  # of training that are measured; with more validations, one in two, or one in three and so on
MAX_POINTS = 10_000


class TrainingCourse(Finding):
    """What an observer saw, validation by validation.

    Attributes:
        asked: a fingerprint of what was trained and observed.
        points: by step, ascending.
    """

    asked: str
    points: tuple[dict[str, Any], ...] = Field(default=(), max_length=MAX_POINTS)


def observe_meta_training(config: Config, splits: Splits, record: RunRecord) -> OnValidation | None:
    """What to call at each validation; None where nothing is asked, or nothing is trained."""
    if config.base.use is not None:
        return None
    watching = [
        _watch(config, splits, record.observed_path(name), observer, observer.n_episodes(settings))
        for name, (observer, settings) in observers_of(config.observe).items()
        if observer.n_episodes(settings)
    ]

    def look(step: int, network: Network) -> None:
        for watch in watching:
            watch(step, network)

    return look if watching else None


def _watch(config: Config, splits: Splits, path: Path, observer: type[Observer], n_episodes: int) -> OnValidation:
    train = config.base.train
    every = train.validate_every * -(-train.steps // (train.validate_every * MAX_CHECKPOINTS))
    asked = digest(
        {
            "episodes": n_episodes,
            "base": config.base.model_dump(mode="json"),
            "data": splits.train.content_hash,
            "seed": config.seed,
        }
    )
    episodes = [
        sample_episode(
            splits.train,
            n_way=train.n_way,
            n_shot=train.n_shot,
            n_query=train.n_query,
            generator=generator(config.seed, "inspected-episode", number),
        )
        for number in range(n_episodes)
    ]

    def look(step: int, network: Network) -> None:
        if step % every and step < train.steps:
            return
        before = load_finding(path, TrainingCourse) if step > 0 and path.exists() else TrainingCourse(asked=asked)
        ours = before.points if before.asked == asked else ()  # else of another training, which is no longer here
        known = tuple(point for point in ours if point["step"] < step)
        point = observer.look_at_training(network, episodes, step)
        new = () if point is None else (point.model_dump(mode="json"),)
        write_bytes(path, finding_bytes(TrainingCourse(asked=asked, points=(*known, *new))))

    return look
