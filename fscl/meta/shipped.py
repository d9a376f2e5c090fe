"""The bases that come with the package: small networks, already meta-trained, ready offline.

Each is a safetensors file under `weights/` whose details say which data, command and seed made it, and how good it is.
"""

from pathlib import Path
from typing import Any

from fscl.errors import unknown_name
from fscl.nets.efficientnet_lite import VARIANTS
from fscl.nets.network import Network
from fscl.nets.sources import is_pretrained_name, load_network, named_base

_WEIGHTS = Path(__file__).parent / "weights"


def shipped_bases() -> dict[str, Path]:
    """The bases that come with the package, by name.

    Examples:
        >>> "glyphs-protonet-conv4" in shipped_bases()
        True
    """
    return {path.stem: path for path in sorted(_WEIGHTS.glob("*.safetensors"))}


def load_base(name_or_path: str | Path) -> Network:
    """A base: one that comes with the package, by name; a file written by `fscl train`; or a pretrained one (sources.py).

    Examples:
        >>> load_base("glyphs-protonet-conv4").n_features
        128

    Args:
        name_or_path: a name from `fscl bases`, the path of a .safetensors file, or a name such as "efficientnet_lite0".
    """
    return load_base_with_details(name_or_path)[0]


def load_base_with_details(name_or_path: str | Path) -> tuple[Network, dict[str, Any]]:
    """As `load_base`, with what the file says of its origin."""
    bases = shipped_bases()
    if is_pretrained_name(str(name_or_path)):
        return named_base(str(name_or_path))
    path = bases.get(str(name_or_path), Path(name_or_path))
    if path.suffix != ".safetensors":
        raise unknown_name(
            "base", str(name_or_path), [*bases, *VARIANTS, "timm:<model name>", "a path to a .safetensors file"]
        )
    network, about = load_network(path)
    if isinstance(about.get("test"), dict):
        about["test"] = [about["test"]]  # bases were tested on one size of episode at first
    return network, about
