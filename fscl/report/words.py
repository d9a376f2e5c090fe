"""A run in words: what was asked, what came out, and what may be claimed of it."""

import math
import re

from fscl.evaluation.metrics import FEWEST_TO_CLAIM
from fscl.report.results import Results
from fscl.report.tables import Row, SummaryTable, show
from fscl.report.transfer import Cost, ProbePoint, TwoSides, costs, on_shared_sequences, two_sides

MOST_IN_WORDS = 6  # methods whose figures are told in a sentence
CLASS_MEANS = "prototypes"  # the rival that is never left out
LEAD = "tsc"  # whom the others are told beside, where it took part


def sentences(table: SummaryTable, pool: str) -> list[str]:
    """What was run and what came out, in words. A difference is claimed only where its paired interval excludes zero."""
    n_methods, n_sequences = len(table.rows), table.n_sequences
    asked = (
        f"{_count(n_methods, 'method')} learned {setting(table)}, and had to tell all classes apart without being told "
        f"the task: {_count(n_sequences, 'sequence')} of tasks from {pool}."
    )
    measured = [row for row in table.rows if row.n_sequences]
    if not measured:
        return [asked, "No cell has finished yet, so there is nothing to compare."]
    first, *others = measured
    stream = table.stream
    when = f"{stream.n_labels} classes" if stream.interval == 1 and not stream.overwrite else f"{stream.n_tasks} tasks"
    if len(measured) > MOST_IN_WORDS:
        return [asked, f"After {when}, {_best(measured, table.reference)}", *_comparison(table)]
    answers = [f"{first.method} answers {_percent(first)} of the test images right"]
    answers += [f"{row.method} {_percent(row)}" for row in others]
    return [asked, f"After {when}, {'; '.join(answers)}.", *_comparison(table)]


def both_sides(results: Results) -> list[str]:
    """What was kept and what became of the ability to learn, in one sentence; none where nothing was probed."""
    results = on_shared_sequences(results)
    rows = [row for row in two_sides(results) if "novel" in row.probes]
    if not rows:
        return []
    cost = {row.method: row for row in costs(results)}
    lead = next((row for row in rows if row.method == LEAD), rows[0])
    must = [row for row in rows if row is not lead and row.method in (CLASS_MEANS, results.reference)]
    more = [row for row in rows if row is not lead and row not in must][: MOST_IN_WORDS - 1 - len(must)]
    others = [row for row in rows if row in must or row in more]
    left_out = len(rows) - 1 - len(others)
    stream, probe = results.stream, results.about["config"]["probe"]
    what = (
        f"of {stream.n_labels} classes" if stream.setting == "new_class" else f"after {_count(stream.n_tasks, 'task')}"
    )
    first, last = lead.probes["novel"][0], lead.probes["novel"][-1]
    since = "" if first.after == 0 else f" since task {first.after}"
    told = [
        f"{lead.method} keeps {_share(lead)} {what}, and its {probe['n_shot']}-shot accuracy on classes never seen "
        f"{_change(last)}{since} after {_count(last.after, 'task')}"
    ]
    told += [
        f"{row.method}: {_share(row)}, {_change(row.probes['novel'][-1])}{_time(cost[row.method], cost[lead.method])}"
        for row in others
    ]
    rest = f" The table has {left_out} more." if left_out else ""
    n_shared, n_all = len(results.outcomes[lead.method]), results.n_sequences
    some = f" So far, on {n_shared} of {n_all} sequences." if n_shared < n_all else ""
    return [f"{'; '.join(told)}.{rest}{some}"]


def _share(row: TwoSides) -> str:
    return _together(f"{row.final.mean:.1f} %")


def _change(point: ProbePoint) -> str:
    """ "rose by 1.21 ± 0.43 points", where the interval excludes zero; else what can be said."""
    change = point.change
    if change is None or math.isnan(change.half_width):
        return "was probed once"
    if change.mean == 0 and change.half_width == 0:
        return "unchanged"
    if point.single:
        return f"changed by {_together(f'{typeset(show(change, signed=True, digits=2))} points')} on this one sequence"
    if not point.changed:
        return f"changed by {_together(f'{typeset(show(change, signed=True, digits=2))} points')} (no change is shown)"
    size = _together(f"{abs(change.mean):.2f} ± {change.half_width:.2f} points")
    return f"{'rose' if change.mean > 0 else 'fell'} by {size}"


def _time(cost: Cost, lead: Cost) -> str:
    """How the time to learn compares; nothing where it is about the same."""
    ratio = lead.seconds_per_class / cost.seconds_per_class if cost.seconds_per_class > 0 else 1.0
    if ratio >= 10:
        return f", in {_together(f'1/{ratio:.0f}')} of the time"
    if ratio >= 1.25:
        return f", in {1 / ratio:.1f} of the time"
    return f", in {1 / ratio:.{0 if ratio <= 0.1 else 1}f} times the time" if ratio <= 0.8 else ""


def _best(rows: list[Row], reference: str) -> str:
    """The best of many methods, and the reference; the rest is for the table."""
    best = sorted(rows, key=lambda row: -row.final.mean)[:3]
    rest = [row for row in rows if row.method == reference and row not in best]
    shown = _list([f"{row.method} ({_percent(row)})" for row in best])
    compared = "".join(f"; {row.method} answers {_percent(row)}" for row in rest)
    return f"{shown} answer most of the test images right{compared}. The table has them all."


def _comparison(table: SummaryTable) -> list[str]:
    if not table.has_reference:
        return [f"The reference {table.reference} has no finished sequence here, so no differences are given."]
    compared = [row for row in table.rows if row.difference is not None]
    if not compared:
        return []
    most = max(row.difference.n for row in compared if row.difference is not None)
    if most < FEWEST_TO_CLAIM:
        few = "One sequence gives no interval" if most == 1 else "Two sequences are too few"
        return [f"{few}, so no difference between methods is claimed."]
    better = [_points(row) for row in compared if row.differs and row.difference and row.difference.mean > 0]
    worse = [_points(row) for row in compared if row.differs and row.difference and row.difference.mean < 0]
    open_ = [row.method for row in compared if not row.differs]
    parts = [
        f"{_list(names)} {_answer(names)} {how} right than {table.reference}"
        for names, how in ((better, "more"), (worse, "fewer"))
        if names
    ]
    claims = [f"On the same sequences, {', and '.join(parts)} (differences in percentage points)."] if parts else []
    if len(better) + len(worse) > MOST_IN_WORDS:
        counts = [(better, "more"), (worse, "fewer")]
        told = [f"{_count(len(names), 'method')} {_answer(names)} {how}" for names, how in counts if names]
        claims = [
            f"On the same sequences, {' and '.join(told)} right than {table.reference}; the table says by how much."
        ]
    if open_:
        claims.append(f"No difference from {table.reference} is shown for {_list(open_)}: the interval includes zero.")
    return claims


def _answer(names: list[str]) -> str:
    return "answers" if len(names) == 1 else "answer"


def _points(row: Row) -> str:
    return f"{row.method} ({_together(typeset(show(row.difference, signed=True)))})"


def _percent(row: Row) -> str:
    mean = f"{row.final.mean:.1f} %"
    return _together(mean if row.final.n < 2 else f"{mean} ± {row.final.half_width:.1f}")


def setting(table: SummaryTable) -> str:
    stream = table.stream
    shots = f"{_count(stream.n_shot, 'example')} a class"
    tasks = _count(stream.n_tasks, "task")
    if stream.setting == "new_instance":
        return f"{tasks} with the same {_count(stream.n_way, 'class')}, each time from {shots} never seen before"
    if stream.setting == "mixed":
        take_over = ", the new ones under the labels of the old" if stream.overwrite else ""
        period = "task" if stream.interval == 1 else f"{stream.interval} tasks"
        return (
            f"{tasks} of {_count(stream.n_way, 'class')} that change every {period}{take_over}, from {shots} each time"
        )
    if stream.base_way:
        base = f"a base session of {_count(stream.base_way, 'class')} from {_count(stream.base_shot, 'example')} each"
        return (
            f"{base}, then {_count(stream.n_tasks - 1, 'session')} of {_count(stream.n_way, 'new class')} from {shots}"
        )
    return f"{tasks} of {_count(stream.n_way, 'new class')}{' each' if stream.n_tasks > 1 else ''}, from {shots}"


def typeset(number: str) -> str:
    """A true minus before digits, and a dash for what is missing."""
    return re.sub(r"-(?=\d)", "−", number).replace("-", "–")


def _together(text: str) -> str:
    """Kept on one line."""
    return text.replace(" ", "\u00a0")


def _count(n: int, noun: str) -> str:
    if n == 1:
        return f"1 {noun}"
    return f"{n} {noun}es" if noun.endswith("s") else f"{n} {noun}s"


def _list(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
