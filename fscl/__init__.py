"""Few-shot continual learning: new classes for ever, from a few examples each, without forgetting the old ones.

The public names are all that most scripts need. They are listed in `__init__.pyi`, with the module that each lives in, and
imported when first used, so that `import fscl` is instant.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0"


def _public_names() -> dict[str, str]:
    """Each public name with the module that it lives in."""
    listing = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8"))
    imports = [statement for statement in listing.body if isinstance(statement, ast.ImportFrom)]
    return {alias.name: str(statement.module) for statement in imports for alias in statement.names}


_HOME = _public_names()
__all__ = ["__version__", *_HOME]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fscl' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
