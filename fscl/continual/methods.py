"""The table of methods: what can be compared, by name.

Most rows are settings of one learner (`consolidation.py`); a row with `dials = None` has a file of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fscl.continual.base import ContinualLearner
from fscl.continual.consolidation import Consolidation, Dials
from fscl.continual.prototypes import Prototypes
from fscl.errors import MisuseError, unknown_name
from fscl.nets.network import Network

TSC_PAPER = "Wang, Li, Zhong, Zhu 2021"


@dataclass(frozen=True)
class Method:
    """One row of the table: a sentence for people, its source, its dials, and the module that holds it."""

    summary: str
    source: str
    dials: Dials | None
    module: str = "fscl.continual.consolidation"


METHODS: dict[str, Method] = {
    "tsc": Method(
        "Two-step consolidation: slow and fast weights, tags that gate how far the embedding moves, replay.",
        TSC_PAPER + ", with an effective strength and gate (the printed ones have no effect)",
        Dials(regulariser="tagging", strength=0.1, activity_scale="layer"),
    ),
    "tsc_paper": Method(
        "Two-step consolidation with the printed strength of 1e-10 and raw tags; in effect `fsw`.",
        TSC_PAPER,
        Dials(regulariser="tagging", strength=1e-10, activity_scale="raw"),
    ),
    "fsw": Method("Fast and slow weights with replay, without tags.", TSC_PAPER, Dials()),
    "joint": Method(
        "Joint training: every task starts again from the base and trains on all shots so far (JT).",
        TSC_PAPER,
        Dials(slow_rate=0, embedding_steps="all"),
    ),
    "replay": Method(
        "Memory replay: one set of weights goes on training on all shots so far (MR).",
        TSC_PAPER,
        Dials(slow_rate=1, embedding_steps="all"),
    ),
    "sequential": Method(
        "Sequential training: one set of weights, the newest task only; forgets (ST).",
        TSC_PAPER,
        Dials(slow_rate=1, embedding_steps="all", memory_per_class=0),
    ),
    "head": Method(
        "Only the head learns; the embedding stays as the base made it.", TSC_PAPER, Dials(embedding_steps=0)
    ),
    "naive": Method(
        "Joint training from random weights: what the shots alone can teach.",
        TSC_PAPER,
        Dials(slow_rate=0, embedding_steps="all", start="random"),
    ),
    "prototypes": Method(
        "Class means on the frozen embedding; nothing is trained.",
        "Mensink et al. 2013; Snell et al. 2017",
        None,
        "fscl.continual.prototypes",
    ),
}


def find_method(name: str) -> Method:
    """A row of the table, or an error with the nearest name."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return METHODS[name]


def make_learner(name: str, network: Network, *, seed: int, dials: Mapping[str, Any] | None = None) -> ContinualLearner:
    """A fresh learner by name, with some of its dials set otherwise.

    Learners with the same seed draw the same new head rows, so that methods are compared on common random numbers.
    """
    method = find_method(name)
    if method.dials is None:
        if dials:
            raise MisuseError(f"method {name!r} has no dials, but got {', '.join(dials)}.")
        return Prototypes(network)
    chosen = Dials.model_validate(method.dials.model_dump() | dict(dials or {}))
    return Consolidation(network, chosen, seed=seed, name=name)
