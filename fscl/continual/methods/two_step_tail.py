"""Two-step consolidation on the tail of a network (fscl/continual/tail): for photographs, and far from the base."""

from fscl.continual.registry import Method
from fscl.continual.tail.learner import TailConsolidation

METHODS = (
    Method(
        "tsc_tail",
        TailConsolidation,
        "Two-step consolidation of the last stages alone, as far as left-out shots say that it pays; the best head answers.",
        "Wang, Li, Zhong, Zhu 2021; Wortsman et al. 2022",
    ),
)
