"""Pretrained bases by name, and networks from files: all that another process needs to build a base again.

    efficientnet_lite0        ImageNet weights from a package of the index (the extra `photos`); also …lite1, …lite2
    timm:<model name>         any model of timm with its weights, where timm is installed
    <either>@128              the same, given images of 128×128 instead of its own size

A file of such a base holds its weights and its name: the name builds the layers, the file fills them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from fscl.errors import MisuseError, StorageError, UnknownName, suggestion
from fscl.nets import efficientnet_lite, pretrained, trained
from fscl.nets.efficientnet_lite import LITE0 as LITE0
from fscl.nets.network import Network, grouped
from fscl.nets.params import frozen_copy, in_layout
from fscl.nets.pretrained import PretrainedNetwork, PretrainedSpec, pretrained_base
from fscl.nets.stages import Staged, Stages
from fscl.nets.trained import NetworkSpec, TrainedNetwork
from fscl.storage import load_tensors, tensors_from_bytes

TIMM = "timm:"
NAME = re.compile(rf"(?P<model>{'|'.join(efficientnet_lite.VARIANTS)}|{TIMM}[A-Za-z0-9._-]+)(?:@(?P<size>\d{{2,4}}))?")
ANY_SPEC: TypeAdapter[NetworkSpec | PretrainedSpec] = TypeAdapter(NetworkSpec | PretrainedSpec)


@dataclass(frozen=True, eq=False)
class Source:
    """A module, and what its makers say of it.

    Attributes:
        mean, std: of each channel, of pixels in [0, 1].
        summary: what its features are, for every table.
    """

    module: nn.Module
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    summary: str
    licence: str


def is_pretrained_name(name: str) -> bool:
    """Whether a name asks for a pretrained base; one that is almost right does."""
    return name.startswith(TIMM) or name.partition("@")[0] in efficientnet_lite.VARIANTS


def named_base(name: str, *, trainable: bool = False) -> tuple[PretrainedNetwork, dict[str, Any]]:
    """A pretrained base by name, and where it comes from."""
    model, size = _parsed(name)
    source = _source(model, weights=True)
    base = pretrained_base(
        source.module,
        image_size=size or source.image_size,
        mean=source.mean,
        std=source.std,
        trainable=trainable,
        seen="imagenet",
        name=name,
    )
    side = f"{base.spec.image_size}×{base.spec.image_size}"
    about = {
        "summary": f"{source.summary}, {base.n_features} of them, of images at {side}",
        "pretrained": name,
        "seen": "imagenet",
        "licence": source.licence,
    }
    return base, about


def load_network(path: Path) -> tuple[Network, dict[str, Any]]:
    """A network of a file and its details, whether it was meta-trained here or pretrained elsewhere."""
    return _network(path, *load_tensors(path, "network"))


def network_from_bytes(path: Path, content: bytes) -> tuple[Network, dict[str, Any]]:
    """As `load_network`, from the bytes of the file; `path` is what errors call it."""
    return _network(path, *tensors_from_bytes(path, "network", content))


def _network(path: Path, tensors: Mapping[str, Tensor], details: Mapping[str, Any]) -> tuple[Network, dict[str, Any]]:
    match details.get("kind"):
        case trained.KIND:
            return TrainedNetwork.restored(path, tensors, details)
        case pretrained.KIND:
            return _rebuilt(path, tensors, details)
    raise StorageError(f"{path} does not say which kind of network it holds. Make it again with `fscl train`.")


def _rebuilt(
    path: Path, tensors: Mapping[str, Tensor], details: Mapping[str, Any]
) -> tuple[PretrainedNetwork, dict[str, Any]]:
    try:
        spec = PretrainedSpec.model_validate(details["spec"])
    except (KeyError, ValidationError) as error:
        raise StorageError(f"{path} does not say which network it holds.") from error
    module = _source(_parsed(spec.module or "")[0], weights=False).module
    state, extras = grouped(tensors, "module", "extras")
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise StorageError(
            f"{path} does not fit the module {spec.module!r} that is installed here; it was made with another version."
        ) from error
    module.eval().requires_grad_(False)
    if spec.stages is not None:
        module = _staged(path, module, spec.stages)
    params = in_layout(frozen_copy(dict(module.named_parameters()))) if spec.trainable else {}
    network = PretrainedNetwork(spec, params, extras=extras, module=module)
    if spec.tail is not None:
        network = network.movable(spec.tail)
    return network, dict(details.get("about", {}))


def _staged(path: Path, module: nn.Module, stages: Stages) -> nn.Module:
    try:
        return Staged(module, stages)
    except AttributeError as error:
        raise StorageError(f"{path} names stages that its module does not have: {error}.") from error


def _parsed(name: str) -> tuple[str, int | None]:
    found = NAME.fullmatch(name)
    if found is None:
        raise UnknownName(
            f"no pretrained base named {name!r}. It is {', '.join(efficientnet_lite.VARIANTS)} or timm:<model name>, with "
            "@<size> behind it for images of another size, such as timm:resnet18@128."
        )
    return found["model"], None if found["size"] is None else int(found["size"])


def _source(model: str, *, weights: bool) -> Source:
    return _from_timm(model.removeprefix(TIMM), weights) if model.startswith(TIMM) else _lite(model, weights)


def _lite(model: str, weights: bool) -> Source:
    return Source(
        efficientnet_lite.with_imagenet_weights(model) if weights else efficientnet_lite.EfficientNetLite(model),
        efficientnet_lite.VARIANTS[model].image_size,
        efficientnet_lite.MEAN,
        efficientnet_lite.STD,
        "frozen features that have seen ImageNet",
        "Apache-2.0",
    )


def _from_timm(model: str, weights: bool) -> Source:
    """A model of timm without its classifier. What its weights have seen is not written in them: taken for ImageNet."""
    timm = _import_timm()
    if not timm.is_model(model):
        raise UnknownName(
            f"timm {timm.__version__} has no model named {model!r}.{suggestion(model, timm.list_models())}"
        )
    try:
        module = timm.create_model(model, pretrained=weights, num_classes=0)
    except Exception as error:  # no weights of it, or no network: a download fails in any library's own way
        raise MisuseError(f"timm could not give {model!r} its weights: {' '.join(str(error).split())}") from error
    shape = timm.data.resolve_model_data_config(module)
    return Source(
        module,
        int(shape["input_size"][-1]),
        tuple(map(float, shape["mean"])),
        tuple(map(float, shape["std"])),
        "frozen features that have seen ImageNet, as is taken of all of timm's",
        str(module.pretrained_cfg.get("license") or "see timm"),
    )


def _import_timm() -> Any:
    try:
        import timm
    except ModuleNotFoundError as error:
        missing = "timm" if error.name == "timm" else f"{error.name}, which timm needs,"
        raise MisuseError(
            f"a base `timm:…` needs timm, and {missing} is not installed: `python -m pip install -c constraints.txt timm` "
            "gets it, with the torchvision that fits your torch."
        ) from error
    except (ImportError, RuntimeError, OSError) as error:
        raise MisuseError(
            f"timm is installed but cannot be imported ({error}): most often its torchvision is for another torch."
        ) from error
    return timm
