"""Watching meta-training: the Fisher information of the embedding at each validation, written as it is measured.

All validations meet the same episodes of training classes. What is known of a step is replaced when the step comes again, so
that a run that was killed and continued ends with the same file as one that was not.
"""

from pathlib import Path

from fscl.data.episode import sample_episode
from fscl.data.pool import Splits
from fscl.evaluation.inspected import Watch, load_found, save_found
from fscl.evaluation.inspection import fisher_over_episodes
from fscl.experiment.config import Config
from fscl.meta.train import OnValidation
from fscl.nets.network import Network
from fscl.rng import generator
from fscl.storage import digest

MAX_CHECKPOINTS = 200  # of training that are measured; with more validations, one in two, or one in three and so on


def watch_meta_training(config: Config, splits: Splits, path: Path) -> OnValidation | None:
    """What to call at each validation; None where nothing is asked, or nothing is trained."""
    if config.inspect is None or config.inspect.fisher_episodes == 0 or config.base.use is not None:
        return None
    train = config.base.train
    every = train.validate_every * -(-train.steps // (train.validate_every * MAX_CHECKPOINTS))
    asked = digest(
        {
            "episodes": config.inspect.fisher_episodes,
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
        for number in range(config.inspect.fisher_episodes)
    ]

    def look(step: int, network: Network) -> None:
        if step % every and step < train.steps:
            return
        before = load_found(path, Watch) if step > 0 and path.exists() else Watch(asked=asked)
        ours = before.fisher if before.asked == asked else ()  # else of another training, which is no longer here
        known = tuple(old for old in ours if old.step < step)
        point = fisher_over_episodes(network, episodes, step)
        save_found(path, Watch(asked=asked, fisher=known if point is None else (*known, point)))

    return look
