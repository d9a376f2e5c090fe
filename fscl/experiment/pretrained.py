"""What a pretrained base means for a run: what it cannot serve is refused, what readers must know is said."""

from fscl.errors import ConfigError
from fscl.evaluation.seen import seen_before
from fscl.experiment.config import Config
from fscl.experiment.progress import Reporter
from fscl.nets.network import Network
from fscl.nets.pretrained import PretrainedNetwork


def check_pretrained(config: Config, network: Network, reporter: Reporter) -> None:
    """Say what a pretrained base means for a run, and refuse what it cannot serve."""
    if not isinstance(network, PretrainedNetwork):
        return
    settings = {method: config.settings_of(method) for method in config.run.methods}
    random = [method for method, chosen in settings.items() if chosen is not None and chosen.start == "random"]
    if random:
        raise ConfigError(
            f"{random[0]} starts from random weights, and a pretrained base has none. Leave it out of run.methods."
        )
    if config.probe is not None:
        raise ConfigError(
            "a probe asks for classes that the base was trained on, and those of a pretrained base are not at hand. Leave "
            "out the probe."
        )
    warning = seen_before(network, config.data.name)
    if warning is not None:
        reporter.warn(warning)
    moving = [method for method, chosen in settings.items() if chosen is not None and chosen.moving_steps > 0]
    if moving and not network.params:
        reporter.warn(
            f"The base is frozen, so the embedding stands still for {', '.join(moving)}: they learn their heads alone, and "
            "those that differ only in how the embedding moves come out alike."
        )
