"""Classifiers on a small untrained base, and the pictures that they learn."""

from pathlib import Path
from typing import Any

import numpy as np

from fscl import ContinualClassifier
from fscl.testing import POOL, small_base

BASE = small_base()


def examples(*classes: int, n: int = 3, start: int = 0) -> tuple[np.ndarray, list[str]]:
    """Pictures (n, h, w) of some classes of the pool, and their labels."""
    X = np.concatenate([POOL.of_class(i)[start : start + n, 0].numpy() for i in classes])
    return X, [f"class-{i}" for i in classes for _ in range(n)]


def classifier(method: str = "prototypes", **settings: Any) -> ContinualClassifier:
    if method == "tsc":
        settings = {"settings": {"embedding_steps": 3}, **settings}  # for speed
    return ContinualClassifier(BASE, method, **settings)


def same(one: ContinualClassifier, other: ContinualClassifier) -> bool:
    X = POOL.images[:40, 0].numpy()
    return bool(np.array_equal(one.predict_proba(X), other.predict_proba(X))) and one.history_ == other.history_


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a model but the lock's, which tell the last writer's number."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in ("lock", "writer"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def asked(model: ContinualClassifier) -> list[object]:
    """What a classifier says of some pictures, but for the pictures themselves."""
    return [
        (
            each.ranked,
            [(near.label, near.source, near.distance) for near in each.nearest],
            each.unknown_score,
            each.threshold,
        )
        for each in model.explain_all(POOL.images[:8, 0].numpy())
    ]
