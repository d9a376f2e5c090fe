"""Named random generators grown from one seed. Nothing in fscl seeds or reads the global generators.

A generator is found by name, not by turn, so that what ran before never matters: `generator(0, "stream", 3)` is the same
in any process, in any order.
"""

import hashlib

import numpy as np
import torch


def child_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed that depends on every name and on nothing else."""
    text = "\x1f".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *names: str | int) -> torch.Generator:
    """A torch generator of its own for each name.

    Examples:
        >>> import torch
        >>> first = torch.randint(100, (3,), generator=generator(0, "stream", 1))
        >>> bool((first == torch.randint(100, (3,), generator=generator(0, "stream", 1))).all())
        True

    Args:
        seed: of everything; another seed gives other numbers under every name.
        names: words and numbers that say what the random numbers are for.
    """
    return torch.Generator().manual_seed(child_seed(seed, *names))


def numpy_generator(seed: int, *names: str | int) -> np.random.Generator:
    """A numpy generator of its own for each name."""
    return np.random.default_rng(child_seed(seed, *names))
