"""Two-step consolidation and the methods that its paper compares it with: named settings of one learner (consolidation.py).

L. Wang, Q. Li, Y. Zhong, J. Zhu, "Few-shot Continual Learning: a Brain-inspired Approach", 2021.

Departs from the paper: `tsc` is its three ideas (slow and fast weights, tags, replay) trained with a leave-one-out
prototype loss, which five shots do not overfit, on jittered shots; `tsc_paper` is as printed, where the strength of the
penalty is too small to have an effect; `tsc_gated` is as printed with a strength that has one.
"""

from fscl.continual.consolidation import Consolidation
from fscl.continual.generator import QUICK_GENERATOR
from fscl.continual.registry import Method

TSC_PAPER = "Wang, Li, Zhong, Zhu 2021"
ALL_MOVE = {"slow_rate": 1, "embedding_steps": "all"}  # one set of weights, which goes on training
REPLAYS = {"kind": "shots", "always": True}  # methods that are nothing without earlier examples
GENERATES = {"kind": "generated", "generator": QUICK_GENERATOR.model_dump()}
TAGS = {"kind": "tagging", "strength": 0.1}

METHODS = (
    Method(
        "tsc",
        Consolidation,
        "Two-step consolidation: slow and fast weights, tags that gate how far the embedding moves, replay.",
        TSC_PAPER + "; its three ideas with a leave-one-out prototype loss (docs/benchmarks/reproduction.md)",
        {
            "slow_rate": 0.3,
            "embedding_steps": 100,
            "learning_rate": 1e-3,
            "jitter": 2.0,
            "views": 11,
            "objective": {"kind": "leave_one_out", "temperature": 20},
            "regulariser": {**TAGS, "strength": 0.01},
        },
        on_frozen="tsc_tail",
    ),
    Method(
        "tsc_paper",
        Consolidation,
        "Two-step consolidation with the printed strength of 1e-10 and raw tags; in effect `fsw`.",
        TSC_PAPER,
        {"regulariser": {"kind": "tagging", "strength": 1e-10, "activity_scale": "raw"}},
    ),
    Method(
        "tsc_gated",
        Consolidation,
        "Two-step consolidation as printed, but with a strength and a gate that have an effect.",
        TSC_PAPER + ", with strength 0.1 and tags scaled by layer",
        {"regulariser": TAGS},
    ),
    Method(
        "tsc_gr",
        Consolidation,
        "Two-step consolidation that replays generated images of old classes instead of their shots.",
        TSC_PAPER + "; a smaller generator (generator.py)",
        {"regulariser": TAGS, "memory": GENERATES},
    ),
    Method("fsw", Consolidation, "Fast and slow weights with replay, without tags.", TSC_PAPER),
    Method(
        "constant",
        Consolidation,
        "Fast and slow weights with replay, every weight held alike (CP).",
        TSC_PAPER,
        {"regulariser": {"kind": "constant", "strength": 0.1}},
    ),
    Method(
        "head",
        Consolidation,
        "Only the head learns; the embedding stays as the base made it.",
        TSC_PAPER,
        {"embedding_steps": 0},
    ),
    Method(
        "joint",
        Consolidation,
        "Joint training: every task starts again from the base and trains on all shots so far (JT).",
        TSC_PAPER,
        {"slow_rate": 0, "embedding_steps": "all", "memory": REPLAYS},
    ),
    Method(
        "replay",
        Consolidation,
        "Memory replay: one set of weights goes on training on all shots so far (MR).",
        TSC_PAPER,
        {**ALL_MOVE, "memory": REPLAYS},
    ),
    Method(
        "first_task",
        Consolidation,
        "Replay whose embedding is trained in the first task and stands still after it: the control of ewc, si and mas.",
        settings={**ALL_MOVE, "moving_tasks": 1, "memory": REPLAYS},
    ),
    Method(
        "gr",
        Consolidation,
        "Generative replay: one set of weights, with generated images of old classes instead of their shots.",
        TSC_PAPER + "; a smaller generator (generator.py)",
        {**ALL_MOVE, "memory": {**GENERATES, "always": True}},
    ),
    Method(
        "ewc",
        Consolidation,
        "Replay that holds weights by their Fisher information (EWC-M).",
        "Kirkpatrick et al. 2017",
        {**ALL_MOVE, "regulariser": {"kind": "ewc", "accumulate": "mean", "strength": 1e7}},
    ),
    Method(
        "si",
        Consolidation,
        "Replay that holds weights by how much they lowered the loss (SI-M).",
        "Zenke, Poole, Ganguli 2017",
        {**ALL_MOVE, "regulariser": {"kind": "si", "strength": 1e4}},
    ),
    Method(
        "mas",
        Consolidation,
        "Replay that holds weights by how far the output moves with them (MAS-M).",
        "Aljundi et al. 2018",
        {**ALL_MOVE, "regulariser": {"kind": "mas", "strength": 10}},
    ),
    Method(
        "stc",
        Consolidation,
        "Replay that holds weights by their tags, without slow weights (Reg, STC-M).",
        TSC_PAPER,
        {**ALL_MOVE, "regulariser": {**TAGS, "activity_scale": "raw"}},
    ),
    Method(
        "sequential",
        Consolidation,
        "Sequential training: one set of weights, the newest task only; forgets (ST).",
        TSC_PAPER,
        {**ALL_MOVE, "memory": {"kind": "none"}},
    ),
    Method(
        "naive",
        Consolidation,
        "Joint training from random weights: what the shots alone can teach.",
        TSC_PAPER,
        {"slow_rate": 0, "embedding_steps": "all", "start": "random", "memory": REPLAYS},
    ),
)
