"""What pretrained weights have seen before: figures on it are not figures on new classes, and say so wherever they go.

Weights trained on ImageNet have seen every class of miniImageNet and tieredImageNet, test classes included. Of CUB's
kinds of birds ImageNet has some, and a few of the photographs are in both.
"""

from fscl.data.catalogue import known_data_set
from fscl.nets.network import Network


class SeenBefore(UserWarning):
    """A base meets data that its weights were trained on."""


def has_seen_classes(network: Network, data: str) -> bool:
    """Whether the base was trained on all classes of a data set, or of a pool such as "mini-imagenet (test)"."""
    if not _has_seen_imagenet(network):
        return False
    data_set = known_data_set(_set(data))
    return data_set is not None and data_set.has_imagenet_classes


def seen_before(network: Network, data: str) -> str | None:
    """The warning that figures of this base on this data need; None where there is nothing to warn of."""
    if has_seen_classes(network, data):
        return (
            f"Warning: the base has seen ImageNet, and with it every class of {_set(data)}, test classes included. Its "
            "figures here do not measure the learning of new classes, and compare with no base that has not seen them."
        )
    data_set = known_data_set(_set(data)) if _has_seen_imagenet(network) else None
    if data_set is None or data_set.in_imagenet is None:
        return None
    return (
        f"Warning: the base has seen ImageNet, which has {data_set.in_imagenet}. Its figures here compare with no base that "
        "has not."
    )


def _has_seen_imagenet(network: Network) -> bool:
    return network.seen == "imagenet"


def _set(data: str) -> str:
    """Pools are called after their data set: "cub (test)" is of "cub"."""
    return data.partition(" (")[0]
