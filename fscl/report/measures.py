"""Every number that a report shows: the lists of measures that its tables are made of.

A new metric is one entry here, with its figure if it has one; see `fscl.report.spec` for what an entry may say.
"""

from collections.abc import Sequence
from dataclasses import replace

from fscl.evaluation.metrics import backward_transfer, forgetting
from fscl.report.figures.accuracy import ACCURACY
from fscl.report.figures.seconds import SECONDS
from fscl.report.probes import probed_moments, probed_sides, shown_moments, side_in_words
from fscl.report.results import Results
from fscl.report.spec import Family, Measure
from fscl.report.values import (
    accuracy_at,
    average,
    difference_at,
    drop,
    forward_transfer_of,
    gap_to_own_side,
    milliseconds_per_image,
    multiply_adds,
    old_or_new,
    peak_memory,
    percent,
    probe_seconds,
    probed,
    seconds_per_class,
    seconds_per_task,
    stored_bytes_of,
)

KINDS = {"weights": "", "memory": "of examples, ", "importance": "of weights, "}  # of what a learner keeps
MOST_EARLY = 2  # columns of accuracy along the way that a terminal shows, if there are no more


def _brings_new_classes(results: Results) -> bool:
    return results.stream.interval == 1


# The table of results


def _count(results: Results) -> Sequence[Measure]:
    """How many sequences each method has: shown where they are not all the same."""
    shown = results.unfinished
    return [
        Measure(
            "n_sequences",
            "n",
            "",
            lambda results, method: len(results.outcomes[method]),
            latex="$n$",
            digits=0,
            terminal=0 if shown else None,
            page=shown,
            paper=shown,
        )
    ]


def _along_the_way(results: Results) -> Sequence[Measure]:
    few = len(results.at_classes) <= MOST_EARLY
    return [
        Measure(
            f"A_{n}_top1",
            "A",
            "percent",
            accuracy_at(n),
            detail=f"{n} classes, %",
            short=f"A_{n}",
            latex=f"$A_{{{n}}}$",
            terminal=(2 if place == 0 else 5) if place == 0 or few else None,
        )
        for place, n in enumerate(results.at_classes)
    ]


def _differences(results: Results) -> Sequence[Measure]:
    if not results.has_reference:
        return []
    at_end = Measure(
        "difference",
        "difference",
        "points",
        difference_at(),
        detail=f"to {results.reference}",
        short=f"minus {results.reference}",
        signed=True,
        tested=True,
        reference=results.reference,
        terminal=1,
        meaning=(
            "Final A minus that of the reference on the same sequence, then averaged. Each interval stands for its own "
            "comparison; among many, some exclude zero by chance. So what is called significant is corrected for how many "
            "methods are compared (paired t-test, Holm's correction, p < 0.05, from three sequences on)."
        ),
    )
    along = replace(at_end, terminal=None, page=False, paper=False)
    return [at_end, *(replace(along, key=f"A_{n}_difference", of=difference_at(n)) for n in results.at_classes)]


def _sessions(results: Results) -> Sequence[Measure]:
    """The mean over the stream, which matters most where there is a base session; and what is lost since then."""
    average_measure = Measure(
        "average_top1",
        "average A",
        "percent",
        average,
        detail="over the stream",
        latex="average $A$",
    )
    if not results.stream.base_way:
        return [average_measure]
    drop_measure = Measure(
        "drop",
        "drop",
        "points",
        drop,
        detail="from the base session, points",
        terminal=1,
        lower_is_better=True,
        meaning=(
            "How far accuracy over all classes fell from the base session to the last one (performance drop, PD); lower "
            "is better."
        ),
    )
    return [replace(average_measure, terminal=1), drop_measure]


BWT = (
    "Backward transfer: how much a task's accuracy changed from just after it was learned to the end; below zero is a loss. "
    "Single-head, it also falls because there are more classes to confuse; among the task's own classes it does not."
)
FINAL = Measure(
    "final_top1",
    "final A",
    "percent",
    accuracy_at(),
    detail="top-1, %",
    latex="final $A$",
    terminal=0,
    figure=ACCURACY,
    meaning=(
        "The share of test images answered right (top-1), over all tasks learned so far; final A is that after the "
        "last task, top-5 counts the five best answers."
    ),
)
RESULTS: list[Measure | Family] = [
    _count,
    _along_the_way,
    FINAL,
    _differences,
    Measure("final_top5", "top-5", "percent", accuracy_at(top5=True), detail="final, %", paper=False),
    _sessions,
    Measure(
        "forgetting",
        "forgetting",
        "points",
        percent(lambda outcome, stream: forgetting(outcome.top1)),
        detail="points",
        terminal=4,
        lower_is_better=True,
        meaning=(
            "How far a task's accuracy fell from the best it ever was before the last task, averaged over all tasks but "
            "the last; lower is better."
        ),
    ),
    Measure(
        "bwt",
        "BWT",
        "points",
        percent(lambda outcome, stream: backward_transfer(outcome.top1)),
        detail="single-head",
        signed=True,
        meaning=BWT,
    ),
    Measure(
        "bwt_own_classes",
        "BWT",
        "points",
        percent(lambda outcome, stream: backward_transfer(outcome.restricted)),
        detail="own classes",
        short="BWT, own",
        signed=True,
        meaning=BWT,
    ),
    Measure(
        "learn",
        "learning",
        "seconds_per_task",
        seconds_per_task,
        detail="s a task",
        short="s/task",
        digits=None,
        lower_is_better=True,
        terminal=3,
        figure=SECONDS,
    ),
    Measure(
        "answer",
        "answering",
        "ms_per_image",
        milliseconds_per_image,
        detail="ms an image",
        short="ms/image",
        digits=None,
        lower_is_better=True,
        terminal=6,
        paper=False,
    ),
    Measure(
        "peak_memory",
        "memory",
        "bytes",
        peak_memory,
        detail="peak, MiB",
        digits=0,
        scale=2**20,
        lower_is_better=True,
        paper=False,
    ),
]


# Both sides: what a method keeps, and how well it goes on learning


def _probes(results: Results) -> Sequence[Measure]:
    """The probe after so many tasks, and its change since the first time; the page shows some of them."""
    found = []
    for side in probed_sides(results):
        moments, shown = probed_moments(results, side), shown_moments(results, side)
        key = side.replace(" ", "-")
        for after in moments:
            tasks = "1 task" if after == 1 else f"{after} tasks"
            probe = Measure(
                f"probe_{key}_after_{after}",
                f"probe, {side}",
                "percent",
                probed(side, after, lambda point: point.accuracy),
                detail=f"after {tasks}, %",
                short=f"{side_in_words(side)}, {tasks}" if " " in side else f"{side} classes, {tasks}",
                page=after in shown,
                paper=after in shown,
            )
            change = Measure(
                f"probe_{key}_change_{after}",
                "change",
                "points",
                probed(side, after, lambda point: point.change),
                detail="points",
                digits=2,
                signed=True,
                tested=results.n_sequences
                > 1,  # else its interval is over problems, and says nothing of other sequences
                page=after == moments[-1],
                paper=after == moments[-1],
            )
            found += [probe] if after == moments[0] else [probe, change]
    return found


BOTH_SIDES: list[Measure | Family] = [
    replace(FINAL, figure=None),
    Measure("old", "old", "percent", old_or_new("old"), detail="tasks, %", when=_brings_new_classes),
    Measure("new", "new", "percent", old_or_new("new"), detail="task, %", when=_brings_new_classes),
    Measure("harmonic", "harmonic", "percent", old_or_new("harmonic"), detail="mean, %", when=_brings_new_classes),
    Measure(
        "side_gap",
        "Δ",
        "points",
        gap_to_own_side,
        detail="to own side",
        latex="$\\Delta$",
        signed=True,
        when=lambda results: bool(results.stream.base_way),
        meaning=(
            "How much lower accuracy is with all classes as candidates than with the classes of the same task alone, mean "
            "over tasks after the last; nearer to zero is better (Ren et al. 2019)."
        ),
    ),
    Measure(
        "forward_transfer",
        "FWT",
        "points",
        percent(forward_transfer_of),
        detail="points",
        signed=True,
        when=lambda results: not _brings_new_classes(results),
        meaning=(
            "Forward transfer: how much better than chance a task is answered just before it is learned; only where its "
            "classes are known already."
        ),
    ),
    _probes,
]


# Cost


def _kept(results: Results) -> Sequence[Measure]:
    return [
        Measure(
            kind,
            kind,
            "bytes",
            stored_bytes_of(kind),
            detail=f"{detail}KiB",
            digits=0,
            scale=2**10,
            lower_is_better=True,
        )
        for kind, detail in KINDS.items()
    ]


COST: list[Measure | Family] = [
    Measure(
        "learn",
        "learning",
        "seconds_per_class",
        seconds_per_class,
        detail="s a class",
        digits=None,
        lower_is_better=True,
    ),
    Measure(
        "multiply_adds",
        "multiply-adds",
        "per_class",
        multiply_adds,
        detail="millions a class",
        digits=0,
        scale=1e6,
        lower_is_better=True,
    ),
    Measure(
        "stored",
        "kept",
        "bytes",
        stored_bytes_of(None),
        detail="KiB in all",
        digits=0,
        scale=2**10,
        lower_is_better=True,
    ),
    _kept,
    Measure(
        "probe",
        "probing",
        "seconds_per_sequence",
        probe_seconds,
        detail="s a sequence",
        digits=None,
        lower_is_better=True,
        when=lambda results: bool(probed_sides(results)),
    ),
]
