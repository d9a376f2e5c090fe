"""The table of methods: what can be compared, by name.

Most rows are settings of one learner (`consolidation.py`); a row with `settings = None` has a file of its own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fscl.continual.consolidation import Consolidation
from fscl.continual.discriminant import Discriminant
from fscl.continual.frozen import FrozenFeatures
from fscl.continual.gaussian import GaussianHead
from fscl.continual.generator import QUICK_GENERATOR
from fscl.continual.learner import ContinualLearner
from fscl.continual.neighbour import NearestNeighbour
from fscl.continual.projection import RandomProjection
from fscl.continual.prototypes import Prototypes
from fscl.continual.settings import Dials
from fscl.errors import MisuseError, unknown_name
from fscl.nets.network import Network

TSC_PAPER = "Wang, Li, Zhong, Zhu 2021"
VARIANT = re.compile(r"[A-Za-z0-9._=-]{1,32}")


@dataclass(frozen=True)
class Method:
    """One row of the table: a sentence for people, its source, and its settings or the class that it is."""

    summary: str
    source: str
    settings: Dials | None
    learner: type[FrozenFeatures] | None = None

    @property
    def module(self) -> str:
        """The module that holds the learner."""
        return (self.learner or Consolidation).__module__


METHODS: dict[str, Method] = {
    "tsc": Method(
        "Two-step consolidation: slow and fast weights, tags that gate how far the embedding moves, replay.",
        TSC_PAPER + "; its three ideas with an objective that five shots cannot exhaust (docs/reproduction.md)",
        Dials(
            slow_rate=0.3,
            embedding_steps=20,
            objective="leave_one_out",
            stop_loss=0.15,
            jitter=1.0,
            views=11,
            regulariser="tagging",
            strength=0.1,
        ),
    ),
    "tsc_paper": Method(
        "Two-step consolidation with the printed strength of 1e-10 and raw tags; in effect `fsw`.",
        TSC_PAPER,
        Dials(regulariser="tagging", strength=1e-10, activity_scale="raw"),
    ),
    "tsc_gated": Method(
        "Two-step consolidation as printed, but with a strength and a gate that have an effect.",
        TSC_PAPER + ", with strength 0.1 and tags scaled by layer",
        Dials(regulariser="tagging", strength=0.1),
    ),
    "tsc_gr": Method(
        "Two-step consolidation that replays generated images of old classes instead of their shots.",
        TSC_PAPER + "; a smaller generator (generator.py)",
        Dials(regulariser="tagging", strength=0.1, memory="generated", generator=QUICK_GENERATOR),
    ),
    "fsw": Method("Fast and slow weights with replay, without tags.", TSC_PAPER, Dials()),
    "constant": Method(
        "Fast and slow weights with replay, every weight held alike (CP).",
        TSC_PAPER,
        Dials(regulariser="constant", strength=0.1),
    ),
    "head": Method(
        "Only the head learns; the embedding stays as the base made it.", TSC_PAPER, Dials(embedding_steps=0)
    ),
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
    "gr": Method(
        "Generative replay: one set of weights, with generated images of old classes instead of their shots.",
        TSC_PAPER + "; a smaller generator (generator.py)",
        Dials(slow_rate=1, embedding_steps="all", memory="generated", generator=QUICK_GENERATOR),
    ),
    "ewc": Method(
        "Replay that holds weights by their Fisher information (EWC-M).",
        "Kirkpatrick et al. 2017",
        Dials(slow_rate=1, embedding_steps="all", regulariser="ewc", accumulate="mean", strength=1e7),
    ),
    "si": Method(
        "Replay that holds weights by how much they lowered the loss (SI-M).",
        "Zenke, Poole, Ganguli 2017",
        Dials(slow_rate=1, embedding_steps="all", regulariser="si", strength=1e4),
    ),
    "mas": Method(
        "Replay that holds weights by how far the output moves with them (MAS-M).",
        "Aljundi et al. 2018",
        Dials(slow_rate=1, embedding_steps="all", regulariser="mas", strength=10),
    ),
    "stc": Method(
        "Replay that holds weights by their tags, without slow weights (Reg, STC-M).",
        TSC_PAPER,
        Dials(slow_rate=1, embedding_steps="all", regulariser="tagging", strength=0.1, activity_scale="raw"),
    ),
    "sequential": Method(
        "Sequential training: one set of weights, the newest task only; forgets (ST).",
        TSC_PAPER,
        Dials(slow_rate=1, embedding_steps="all", memory_per_class=0),
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
        Prototypes,
    ),
    "neighbour": Method("The nearest shot on the frozen embedding.", "Cover, Hart 1967", None, NearestNeighbour),
    "discriminant": Method(
        "Streaming linear discriminant on the frozen embedding, with shrinkage.",
        "Hayes, Kanan 2020; Chen et al. 2010",
        None,
        Discriminant,
    ),
    "projection": Method(
        "Ridge regression on random projections of the frozen embedding (RanPAC-like).",
        "McDonnell et al. 2023",
        None,
        RandomProjection,
    ),
    "gaussian": Method(
        "A Gaussian for each class on the frozen embedding, with an uncertain mean.",
        "Murphy 2007, conjugate analysis of the Gaussian",
        None,
        GaussianHead,
    ),
}


def find_method(name: str) -> Method:
    """A row of the table, or an error with the nearest name.

    "tsc@k=20" is a variant: the row of `tsc`, under a name of its own so that its settings can be set apart.
    """
    row, _, label = name.partition("@")
    if row not in METHODS:
        raise unknown_name("method", row, METHODS)
    if "@" in name and not VARIANT.fullmatch(label):
        raise MisuseError(
            f"{name!r} needs a label of letters, digits, '.', '=', '_' or '-' after its '@', such as tsc@k=20."
        )
    return METHODS[row]


def with_changes(settings: Dials, given: Dials) -> Dials:
    """`settings` with those that were set in `given`; of the generator likewise only what was set."""
    changes = {key: getattr(given, key) for key in given.model_fields_set}
    if "generator" in changes:
        inner = {key: getattr(given.generator, key) for key in given.generator.model_fields_set}
        changes["generator"] = settings.generator.model_copy(update=inner)
    return settings.model_copy(update=changes)


def make_learner(
    name: str, network: Network, *, seed: int, settings: Mapping[str, Any] | None = None
) -> ContinualLearner:
    """A fresh learner by name, with some of its settings set otherwise.

    Learners with the same seed draw the same new head rows, so that methods are compared on common random numbers.
    """
    method = find_method(name)
    if method.settings is not None:
        chosen = with_changes(method.settings, Dials.model_validate(settings or {}))
        return Consolidation(network, chosen, seed=seed, name=name)
    if settings:
        raise MisuseError(f"method {name!r} has no settings, but got {', '.join(settings)}.")
    if method.learner is None:
        raise MisuseError(f"method {name!r} has neither settings nor a learner; its row in METHODS needs one of them.")
    return RandomProjection(network, seed) if method.learner is RandomProjection else method.learner(network)
