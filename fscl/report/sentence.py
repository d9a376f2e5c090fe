"""What came out of a run, in two sentences that claim no more than the intervals allow."""

from dataclasses import replace

from fscl.evaluation.metrics import FEWEST_TO_CLAIM, Interval
from fscl.evaluation.verdicts import verdicts
from fscl.report.results import PRELIMINARY_BELOW, Results
from fscl.report.table import describe_run, show
from fscl.report.values import accuracy_at, difference_at


def summary_sentence(results: Results) -> str:
    """What was compared, the best methods, and whether the difference of the best to the reference is significant.

    Methods are compared on the sequences that all of them have finished.
    """
    methods = results.finished_methods
    if not methods:
        return "No cell has finished yet, so there is nothing to compare."
    shared = set.intersection(*(set(results.outcomes[method]) for method in methods))
    reservations = [f"unfinished ({results.n_done} of {results.n_cells} cells)"] if results.unfinished else []
    if len(shared) < PRELIMINARY_BELOW:
        reservations.append(f"preliminary (fewer than {PRELIMINARY_BELOW} sequences)")
    begin = f"{', '.join(reservations).capitalize()}: " if reservations else ""
    if not shared:
        return f"{begin}no sequence has been finished by every method that has begun, so none is compared."
    results = replace(
        results, outcomes={m: {n: o for n, o in found.items() if n in shared} for m, found in results.outcomes.items()}
    )
    accuracy = {method: accuracy_at()(results, method) for method in methods}
    best = sorted(methods, key=lambda method: -accuracy[method].mean)[:2]
    shown = [f"{method} ({_percent(accuracy[method])})" for method in best]
    compared = "1 method" if len(methods) == 1 else f"{len(methods)} methods"
    sequences = "1 sequence" if len(shared) == 1 else f"{len(shared)} sequences"
    return (
        f"{begin}{compared} on {sequences} ({describe_run(results)}); highest mean final accuracy: "
        f"{', then '.join(shown)}.{_difference(results, best)}"
    )


def _difference(results: Results, best: list[str]) -> str:
    """Whether the best method differs from the reference; if that is the best, the one after it."""
    if len(best) == 1:
        return ""
    if not results.has_reference:
        return f" The reference {results.reference} has no finished sequence, so no difference to it can be tested."
    method = next(method for method in best if method != results.reference)
    compared = [other for other in results.finished_methods if other != results.reference]
    differences = {other: difference_at()(results, other) for other in compared}
    difference, told = (
        differences[method],
        dict(zip(differences, verdicts(list(differences.values())), strict=True))[method],
    )
    if difference is None or told is None or difference.n < FEWEST_TO_CLAIM:
        return f" The difference to the reference {results.reference} is not tested: fewer than {FEWEST_TO_CLAIM} sequences."
    verdict = "significant" if told.differs else "not significant"
    among = f"; corrected for {len(compared)} comparisons" if len(compared) > 1 else ""
    return (
        f" The difference of {method} to the reference {results.reference} is {verdict} "
        f"({show(difference, signed=True)} points, paired 95 % interval{among}); the table has the rest."
    )


def _percent(accuracy: Interval) -> str:
    return f"{accuracy.mean:.1f} %" if accuracy.n < 2 else f"{show(accuracy)} %"
