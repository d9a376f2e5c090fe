"""A base from elsewhere in a run: what it cannot serve is refused, and what readers must know is said."""

from fscl.continual.registry import make_learner
from fscl.errors import ConfigError
from fscl.evaluation.contamination import seen_before
from fscl.experiment.config import Config
from fscl.experiment.progress import Reporter
from fscl.nets.network import Network


def check_pretrained(config: Config, network: Network, reporter: Reporter) -> None:
    """Say what a base that was trained elsewhere means for a run, and refuse what it cannot serve."""
    if network.is_meta_trained:
        return
    for method in config.run.methods:
        make_learner(method, network, settings=config.settings_of(method))  # one that cannot start from it says so
    if config.all_probes:
        raise ConfigError(
            "a probe asks for classes that the base was trained on, and those of a pretrained base are not at hand. Leave "
            "out the probe."
        )
    warning = seen_before(network, config.data.name)
    if warning is not None:
        reporter.warn(warning)
    if not network.inputs_are_cheap:
        reporter.warn(
            "The first stages of the base are frozen and run once for each picture of a task, so methods take pictures as "
            "they are: jitter, mirror and views have no effect."
        )
    if not network.params:
        reporter.warn(
            "The base is frozen, so methods that would move the embedding learn their heads alone, and those that differ "
            "only in how the embedding moves come out alike."
        )
