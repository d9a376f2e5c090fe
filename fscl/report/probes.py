"""Probes: fresh few-shot problems, learned from where a method stood after so many tasks (evaluation/probe.py).

Changes along the stream are paired, since every moment meets the same problems.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fscl.evaluation.metrics import Interval, mean_interval
from fscl.report.results import Results

SIDES = {"novel": "classes never seen", "base": "classes of meta-training"}


def side_in_words(side: str) -> str:
    """What is asked on a side; behind it the name of the probe, where it has one."""
    word, _, name = side.partition(" ")
    return f"{SIDES[word]}, {name}" if name else SIDES[word]


@dataclass(frozen=True)
class ProbePoint:
    """After so many tasks: the probe's accuracy in %, and its change since the first point in points (None there)."""

    after: int
    accuracy: Interval
    change: Interval | None


def probed_sides(results: Results) -> list[str]:
    """The sides that every finished outcome was probed on: "novel" and "base", and those of probes that have a name."""
    outcomes = [outcome for method in results.finished_methods for outcome in results.outcomes[method].values()]
    known = [side for side in outcomes[0].probes if all(side in o.probes for o in outcomes)] if outcomes else []
    words = list(SIDES)
    return sorted(known, key=lambda side: (side.partition(" ")[2], words.index(side.partition(" ")[0])))


def probe_points(results: Results, method: str, side: str) -> tuple[ProbePoint, ...]:
    """The points of a probe in order of time; intervals are over sequences.

    Of a run of one sequence they are over its problems, and say nothing of other sequences: no change is claimed from them.
    """
    outcomes = list(results.outcomes[method].values())
    moments = sorted(outcomes[0].probes[side])
    found = np.array([[outcome.probes[side][after] for after in moments] for outcome in outcomes])
    single = results.n_sequences == 1
    shares = 100 * (found[0].T if single else found.mean(2))  # (sequences or problems, moments)
    return tuple(
        ProbePoint(
            after,
            mean_interval(shares[:, place]),
            mean_interval(shares[:, place] - shares[:, 0]) if place else None,
        )
        for place, after in enumerate(moments)
    )


def probed_moments(results: Results, side: str) -> list[int]:
    """The numbers of tasks after which the run was probed on a side."""
    return [point.after for point in probe_points(results, results.finished_methods[0], side)]


def shown_moments(results: Results, side: str) -> list[int]:
    """Of the moments that were probed: the first, the middle one and the last, for a table; of a probe that has a name, the
    first and the last."""
    after = probed_moments(results, side)
    middle = [] if " " in side else [after[len(after) // 2]]
    return sorted({after[0], *middle, after[-1]})


BY = {
    "means": "class means",
    "head": "a fresh linear head",
    "optimum": "logistic regression",
    "inner_loop": "gradient steps of every weight, as MAML adapts",
    "network": "100 steps of every weight, then of the head",
    "next_task": "the method itself, as its next task",
}


def probes_in_words(config: Mapping[str, Any]) -> str:
    """Every probe of a run's configuration: how many problems of what kind, and how they are learned; a name before each but
    that of the section `[probe]`."""
    unnamed = {} if config.get("probe") is None else {"": config["probe"]}
    found = [
        f"{name + ': ' if name else ''}{spec['n_episodes']} problems of {spec['n_way']} ways and {spec['n_shot']} shots, "
        f"learned by {BY[spec['learn']]}"
        for name, spec in (unnamed | config.get("probes", {})).items()
    ]
    return "; ".join(found)


def probing_share(results: Results) -> float:
    """Seconds of probing for each second of learning, over the whole run; NaN where nothing was probed."""
    outcomes = [outcome for method in results.finished_methods for outcome in results.outcomes[method].values()]
    learning = sum(sum(outcome.learn_seconds) for outcome in outcomes)
    return sum(outcome.probe_seconds for outcome in outcomes) / learning if learning else float("nan")
