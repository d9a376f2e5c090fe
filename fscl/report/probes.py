"""Probes: fresh few-shot problems, learned from where a method stood after so many tasks (evaluation/probe.py).

Changes along the stream are paired, since every moment meets the same problems.
"""

from dataclasses import dataclass

import numpy as np

from fscl.evaluation.metrics import Interval, mean_interval
from fscl.report.results import Results

SIDES = {"novel": "classes never seen", "base": "classes of meta-training"}


@dataclass(frozen=True)
class ProbePoint:
    """After so many tasks: the probe's accuracy in %, and its change since the first point in points (None there)."""

    after: int
    accuracy: Interval
    change: Interval | None


def probed_sides(results: Results) -> list[str]:
    """The sides that every finished outcome was probed on."""
    outcomes = [outcome for method in results.finished_methods for outcome in results.outcomes[method].values()]
    return [side for side in SIDES if outcomes and all(side in outcome.probes for outcome in outcomes)]


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


def probed_moments(results: Results) -> list[int]:
    """The numbers of tasks after which the run was probed."""
    sides, methods = probed_sides(results), results.finished_methods
    return [point.after for point in probe_points(results, methods[0], sides[0])] if sides else []


def shown_moments(results: Results) -> list[int]:
    """Of the moments that were probed: the first, the middle one and the last, for a table."""
    after = probed_moments(results)
    return sorted({after[0], after[len(after) // 2], after[-1]}) if after else []


def probing_share(results: Results) -> float:
    """Seconds of probing for each second of learning, over the whole run; NaN where nothing was probed."""
    outcomes = [outcome for method in results.finished_methods for outcome in results.outcomes[method].values()]
    learning = sum(sum(outcome.learn_seconds) for outcome in outcomes)
    return sum(outcome.probe_seconds for outcome in outcomes) / learning if learning else float("nan")
