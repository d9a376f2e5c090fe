"""The tables of a run, beside those of the paper, from its summary in docs/results and from nothing else.

`fscl summary RUN docs/results/NAME.json` writes the summary; `make docs` makes a page of each (docs/tools/runs.py).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fscl.evaluation.metrics import FEWEST_TO_CLAIM
from fscl.report.summary import MethodSummary, Summary

OURS = "tsc"  # the paper's ideas, but not its method


@dataclass(frozen=True)
class PaperTable:
    """A table of the TSC paper: its figures at 30 and 50 classes, by our name of the method.

    Rows are judged only where the base is the paper's, and the method too: `tsc` is ours. Of photographs, the five best
    answers count as well.
    """

    run: str
    title: str
    figures: Mapping[str, tuple[float, float]]
    judged: bool = True
    photographs: bool = False
    top5: Mapping[str, tuple[float, float]] = field(default_factory=dict)


MAML_FIGURES = {
    "joint": (96.20, 94.97),
    "replay": (94.38, 92.13),
    "gr": (94.93, 93.49),
    "si": (94.97, 94.51),
    "ewc": (95.52, 93.95),
    "mas": (95.81, 94.47),
    "stc": (95.84, 95.06),
    "fsw": (96.44, 95.57),
    "tsc_paper": (96.67, 96.04),
    "tsc": (96.67, 96.04),
    "tsc_gr": (96.89, 96.63),
}
# the paper's own table of these is of photographs; some rows of its main table are the same methods
ABLATION_FIGURES = {
    "fsw@beta=0": MAML_FIGURES["joint"],
    "fsw@beta=1": MAML_FIGURES["replay"],
    "fsw@k=100": MAML_FIGURES["fsw"],
}
MAMLPP_FIGURES = {"joint": (97.33, 95.67), "replay": (95.53, 93.26), "tsc": (97.78, 96.63)}
BIRDS = {
    "joint": (29.83, 23.43),
    "replay": (20.86, 13.17),
    "ewc": (23.97, 15.87),
    "mas": (22.33, 18.60),
    "tsc_paper": (30.52, 24.38),
    "tsc": (30.52, 24.38),
}
BIRDS_TOP5 = {
    "joint": (64.58, 53.86),
    "replay": (45.79, 31.87),
    "ewc": (57.47, 41.97),
    "mas": (54.41, 47.84),
    "tsc_paper": (65.00, 55.20),
    "tsc": (65.00, 55.20),
}
PAPER = (
    PaperTable("omniglot-table2-maml", "Table 2: every method, MAML base", MAML_FIGURES),
    PaperTable(
        "omniglot-table2-protonet", "Table 2 with a ProtoNet base (the paper's is MAML)", MAML_FIGURES, judged=False
    ),
    PaperTable(
        "omniglot-table2-generative",
        "Table 2: generative replay, MAML base (our generator is a small one)",
        MAML_FIGURES,
        judged=False,
    ),
    PaperTable("omniglot-bases-maml", "Table 3: MAML base", MAML_FIGURES),
    PaperTable("omniglot-bases-mamlpp", "Table 3: MAML++ base", MAMLPP_FIGURES),
    PaperTable(
        "omniglot-bases-protonet", "Table 3 with a ProtoNet base (the paper's is MAML)", MAML_FIGURES, judged=False
    ),
    PaperTable("omniglot-bases-oml", "Table 3: OML, with its own way and others", {"online@raw": (91.47, 88.55)}),
    PaperTable("omniglot-bases-oml-tsc", "OML's base with tsc", {}),
    PaperTable("omniglot-bases-anml", "Table 3: ANML, with its own way and others", {"online@raw": (96.71, 95.47)}),
    PaperTable("omniglot-bases-anml-tsc", "ANML's base with tsc", {}),
    PaperTable(
        "omniglot-bases-apl",
        "Table 3: APL, with its own way and others (the paper's has 20 shots)",
        {"apl": (94.88, 93.42)},
    ),
    PaperTable("omniglot-bases-apl-tsc", "APL's base with tsc", {}),
    PaperTable("omniglot-bases-gemcl", "GeMCL's base, with its own way and others", {}),
    PaperTable("omniglot-bases-gemcl-tsc", "GeMCL's base with tsc", {}),
    PaperTable("omniglot-table2-rivals-maml", "The named systems and today's rivals, MAML base", {}),
    PaperTable("omniglot-table2-rivals-protonet", "The named systems and today's rivals, ProtoNet base", {}),
    PaperTable("omniglot-systems", "Table 1, measured: old classes kept, and few-shot ability, MAML base", {}),
    PaperTable("omniglot-online-oml", "The own test of OML and ANML: 600 characters one after another, OML's base", {}),
    PaperTable("omniglot-online-anml", "600 characters one after another, ANML's base", {}),
    PaperTable("omniglot-online-gemcl", "600 characters one after another, GeMCL's base", {}),
    PaperTable("omniglot-online-protonet", "600 characters one after another, ProtoNet base", {}),
    PaperTable("omniglot-online-maml", "600 characters one after another, MAML base", {}),
    PaperTable("omniglot-online-tsc", "600 characters one after another: what moves, MAML base", {}),
    PaperTable(
        "omniglot-ablation",
        "Table 4: β, k and the regulariser; then tsc, part by part",
        ABLATION_FIGURES,
        judged=False,  # by `quick`, which flatters β = 1
    ),
    PaperTable("omniglot-choice", "Other settings, one setting at a time: validation classes, MAML base", {}),
    PaperTable(
        "omniglot-augmented", "The same augmentation for all: every method that trains, with and without it", {}
    ),
    PaperTable(
        "omniglot-choice-tsc", "The second edition of tsc, one setting at a time: validation classes, MAML base", {}
    ),
    PaperTable(
        "omniglot-choice-augmented",
        "Joint training and replay with augmentation, one setting at a time: validation classes, MAML base",
        {},
    ),
    PaperTable(
        "omniglot-strengths",
        "How firmly classic regularisers hold, with all 500 steps: validation classes, MAML base",
        {},
    ),
    PaperTable("omniglot-agreement-quick", "The preset quick", MAML_FIGURES, judged=False),
    PaperTable("omniglot-agreement-paper", "The same sequences with all 500 steps (preset paper)", MAML_FIGURES),
    PaperTable(
        "omniglot-agreement-classic-quick", "Classic regularisers: the preset quick", MAML_FIGURES, judged=False
    ),
    PaperTable(
        "omniglot-agreement-classic-paper",
        "Classic regularisers: the same sequences with all 500 steps (preset paper)",
        MAML_FIGURES,
    ),
    PaperTable("omniglot-transfer-maml", "Both sides along the stream, MAML base (figures 1 and 6)", {}),
    PaperTable("omniglot-transfer-protonet", "Both sides along the stream, ProtoNet base (figure 1)", {}),
    PaperTable("omniglot-transfer-glyphs", "Both sides along the stream, a base of invented characters", {}),
    PaperTable("omniglot-new-instance-20w", "New examples of the same 20 classes, without replay (figure 7)", {}),
    PaperTable(
        "omniglot-new-instance-beta", "The same with the MAML base, slow weights that follow more (figure 7)", {}
    ),
    PaperTable("omniglot-new-instance-mixed", "New examples, and new classes every second task", {}),
    PaperTable("omniglot-new-instance-overwrite", "New classes under the labels of old ones", {}),
    PaperTable("omniglot-interference-drift", "Interference: replay at two learning rates (figure 2)", {}),
    PaperTable("omniglot-interference-fisher", "Interference: Fisher information along meta-training (figure 2c)", {}),
    PaperTable("omniglot-interference-penalties", "Interference: classic regularisers after five tasks (figure 5)", {}),
    PaperTable("glyphs-to-omniglot", "A change of domain: a base of invented characters, a stream of Omniglot", {}),
    PaperTable("mini-5w5s", "Photographs: four tasks of miniImageNet's test classes", {}, photographs=True),
    PaperTable(
        "mini-to-cub",
        "A change of domain: a base of miniImageNet, a stream of birds (the paper's base is of tieredImageNet)",
        BIRDS,
        judged=False,
        photographs=True,
        top5=BIRDS_TOP5,
    ),
    PaperTable("mini-incremental", "AAN's own test: 64 known classes and five new ones", {}),
    PaperTable("mini-fscil", "Few-shot class-incremental learning: the published sessions of miniImageNet", {}),
)
MOMENTS = (30, 50)  # classes, at which the paper gives its figures


def verdict(method: MethodSummary, reference: MethodSummary | None, figures: Mapping[str, tuple[float, float]]) -> str:
    """What the run says of the paper's row.

    *Reproduced*: the paper's figures lie within our intervals. *In order but not in value*: our paired difference to the
    reference has the paper's sign, and its interval excludes zero, at 30 and at 50 classes. *Undecided*: where it does not,
    it is so wide that it holds the paper's difference as well as zero. Nothing is said of fewer than three sequences, whose
    intervals hold almost anything.
    """
    paper = figures.get(method.method)
    if paper is None or method.method == OURS or any(n not in method.accuracy for n in MOMENTS):
        return ""
    if method.n_sequences < FEWEST_TO_CLAIM:
        return "too few sequences"
    if all(method.accuracy[n].holds(value) for n, value in zip(MOMENTS, paper, strict=True)):
        return "reproduced"
    if reference is None or method.method == reference.method or reference.method not in figures:
        return "not reproduced"
    theirs = [value - other for value, other in zip(paper, figures[reference.method], strict=True)]
    ours = [method.minus_reference[n] for n in MOMENTS if n in method.minus_reference]
    if len(ours) < len(MOMENTS):
        return "not reproduced"
    pairs = list(zip(ours, theirs, strict=True))
    in_order = [our.excludes_zero and math.copysign(1, our.mean) == math.copysign(1, their) for our, their in pairs]
    too_wide = [our.holds(0) and our.holds(their) for our, their in pairs]
    if all(in_order):
        return "in order but not in value"
    told = all(order or wide for order, wide in zip(in_order, too_wide, strict=True))
    return "undecided" if told else "not reproduced"


def table_of(summary: Summary, paper: PaperTable) -> str:
    """One run as a section of the page."""
    figures, title = paper.figures, paper.title
    if not summary.methods:
        return f"## {title}\n\nNothing is finished yet.\n"
    if all(method.drop is not None for method in summary.methods):
        return sessions_table(summary, title)
    known = {method.method: method for method in summary.methods}
    reference = known.get(summary.reference)
    moments = list(summary.methods[0].accuracy)
    n_done = sorted(method.n_sequences for method in summary.methods)
    sequences = f"{summary.n_sequences} sequence{'' if summary.n_sequences == 1 else 's'}"
    if n_done[0] < summary.n_sequences:
        span = f"{n_done[0]} to {n_done[-1]}" if n_done[0] < n_done[-1] else n_done[0]
        sequences = f"unfinished: {span} of {sequences}"
    heading = ["method", *(f"A_{n}" for n in moments), *(f"A_{n} - {summary.reference}" for n in moments)]
    heading += [f"A_{n} - class means" for n in moments]
    heading += [f"A_{n} top-5" for n in moments] if paper.photographs else []
    shows_moved = any(method.moved is not None for method in summary.methods)
    heading += ["BWT", "BWT, own classes", "moved, %"] if shows_moved else []
    heading += ["embedding steps", "s/task", "ms/image"]
    if figures:
        heading += ["paper", "verdict"] if paper.judged else ["paper"]
    lines = [f"## {title}", ""]
    lines.append(
        f"`{summary.command}`, {summary.split} classes, preset `{summary.preset}`, {sequences}. Base: {summary.base}."
        + _unfinished(summary)
        + _first_edition(summary)
    )
    lines += ["", "| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    for method in summary.methods:
        cells = [f"`{method.method}`", *(method.accuracy[n].show() for n in moments)]
        for differences in (method.minus_reference, method.minus_class_means):
            cells += [differences[n].show(signed=True) if n in differences else "" for n in moments]
        if paper.photographs:
            cells += [method.top5[n].show() if n in method.top5 else "" for n in moments]
        if shows_moved:
            cells += [
                "" if figure is None else figure.show(signed=True) for figure in (method.bwt, method.bwt_own_classes)
            ]
            cells.append("" if method.moved is None else f"{method.moved:.1f}")
        cells.append("" if method.embedding_steps is None else f"{method.embedding_steps:.1f}")
        cells += [f"{method.seconds_per_task:.3g}", f"{method.ms_per_image:.2g}"]
        if figures:
            cells.append(_in_paper(paper, method.method))
            cells += [verdict(method, reference, figures)] if paper.judged else []
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n" + probe_table(summary) + along_table(summary)


def is_first_edition(method: MethodSummary) -> bool:
    """Summaries without their sequences are older than the second edition of `tsc` (docs/decisions/0013)."""
    return method.method.split("@")[0] == OURS and not method.sequences


def _first_edition(summary: Summary) -> str:
    if not any(map(is_first_edition, summary.methods)):
        return ""
    return " `tsc` is that of the first edition ([decision 13](../../decisions/0013-tsc-second-edition.md))."


def _unfinished(summary: Summary) -> str:
    return f" Not run yet: {', '.join(f'`{method}`' for method in summary.unfinished)}." if summary.unfinished else ""


def _in_paper(paper: PaperTable, method: str) -> str:
    """The paper's figures at 30 and 50 classes; of photographs each with that for the five best answers."""
    theirs, best = paper.figures.get(method), paper.top5.get(method)
    if theirs is None:
        return ""
    if best is None:
        return " / ".join(f"{value:.2f}" for value in theirs)
    return " / ".join(f"{value:.2f} ({five:.2f})" for value, five in zip(theirs, best, strict=True))


def sessions_table(summary: Summary, title: str) -> str:
    """A stream that begins with a base session: accuracy after each session, their average, the drop, and at both ends
    how often the right answer is among the five best."""
    moments = list(summary.methods[0].accuracy)
    ends = (moments[0], moments[-1])
    heading = ["method", *(f"{n} classes" for n in moments), "average", "drop", *(f"{n} classes, top-5" for n in ends)]
    sides = [key for key in ("old", "new", "side_gap") if all(getattr(of, key) is not None for of in summary.methods)]
    heading += [{"old": "old classes", "new": "new classes", "side_gap": "Δ to own side"}[key] for key in sides]
    heading += ["embedding steps", "s/session"]
    about = f"`{summary.command}`, preset `{summary.preset}`. Base: {summary.base}.{_unfinished(summary)}"
    lines = [f"## {title}", "", about, ""]
    lines += ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    for method in summary.methods:
        cells = [f"`{method.method}`", *(method.accuracy[n].show() for n in moments)]
        cells += ["" if figure is None else figure.show() for figure in (method.average, method.drop)]
        cells += [method.top5[n].show() if n in method.top5 else "" for n in ends]
        cells += [getattr(method, key).show() for key in sides]
        cells.append("" if method.embedding_steps is None else f"{method.embedding_steps:.1f}")
        cells.append(f"{method.seconds_per_task:.3g}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def probe_table(summary: Summary) -> str:
    """The probe of each method along the stream; nothing where the run has none."""
    probed = [method for method in summary.methods if method.probes]
    if not probed:
        return ""
    sides = {side: list(points) for side, points in probed[0].probes.items()}
    first = min(moment for moments in sides.values() for moment in moments)
    since = "before the first task" if first == 0 else f"after {first} task{'' if first == 1 else 's'}"
    lines = ["", f"The probe: {summary.probe}. In %; the change is since {since}, paired.", ""]
    heading = ["method"]
    for side, moments in sides.items():
        heading += [f"{side}, {moment} tasks" for moment in moments] + [f"{side}, change"]
    lines += ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    for method in probed:
        cells = [f"`{method.method}`"]
        for side, moments in sides.items():
            change = method.probe_changes[side].get(moments[-1])
            told = "" if change is None else change.show(signed=True)
            cells += [method.probes[side][moment].show() for moment in moments]
            claimed = change is not None and change.excludes_zero and method.n_sequences >= FEWEST_TO_CLAIM
            cells.append(f"**{told}**" if claimed else told)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def along_table(summary: Summary) -> str:
    """Accuracy after each task, where tasks bring new examples rather than new classes; nothing elsewhere."""
    shown = [method for method in summary.methods if method.along]
    if not shown:
        return ""
    moments = list(shown[0].along)
    lines = ["", "Accuracy in % after each task:", "", "| method | " + " | ".join(map(str, moments)) + " |"]
    lines.append("|" + "---|" * (len(moments) + 1))
    lines += [
        f"| `{method.method}` | " + " | ".join(method.along[moment].show() for moment in moments) + " |"
        for method in shown
    ]
    return "\n".join(lines) + "\n"
