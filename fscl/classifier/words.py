"""What the command line says of a classifier, in lines."""

from collections.abc import Mapping, Sequence
from typing import Any

from fscl.classifier.changes import StoredExample
from fscl.classifier.estimate import Estimate
from fscl.classifier.explain import Explanation
from fscl.classifier.knowledge import Event
from fscl.classifier.labels import Label
from fscl.classifier.store.repair import Repaired
from fscl.classifier.trial import Trial

MAX_NAMED = 12
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet computes
PER_CENT = 100
NOTHING_LOST = 1e-9

Accuracies = Mapping[Label, float | None]


def share(value: float | None) -> str:
    """A share in per cent, or that it is not known."""
    return "unknown" if value is None else f"{PER_CENT * value:.1f} %"


def listed(counts: Mapping[Label, int]) -> str:
    """Classes with how many examples each, some of them if there are many."""
    named = [f"{label} ({count})" for label, count in list(counts.items())[:MAX_NAMED]]
    more = f", and {len(counts) - MAX_NAMED} more" if len(counts) > MAX_NAMED else ""
    return ", ".join(named) + more


def what_comes(labels: Sequence[Label], known: Sequence[Label]) -> list[str]:
    """What a lesson brings: which classes are new, and which are known."""
    counts = {label: labels.count(label) for label in dict.fromkeys(labels)}
    new = {label: n for label, n in counts.items() if label not in known}
    old = {label: n for label, n in counts.items() if label in known}
    return [f"{what}: {listed(which)}" for what, which in (("new", new), ("known", old)) if which]


def estimated(estimate: Estimate) -> str:
    """An accuracy with its interval, or that there is none."""
    if estimate.accuracy is None or estimate.interval is None:
        return "unknown (no class has two examples)"
    low, high = (PER_CENT * bound for bound in estimate.interval)
    return f"{share(estimate.accuracy)} ({low:.0f} to {high:.0f} %, by {estimate.n_left_out} left-out examples)"


def noticed(estimate: Estimate) -> list[str]:
    """What a person may want to look at: pictures that repeat, and labels that are probably wrong."""
    lines = []
    if estimate.n_repeats:
        which = "1 stored example shows" if estimate.n_repeats == 1 else f"{estimate.n_repeats} stored examples show"
        lines.append(f"repeats: {which} what another one shows; the estimate counts them once")
    for doubt in estimate.doubtful[:MAX_NAMED]:
        source = f" ({doubt.source})" if doubt.source else ""
        lines.append(
            f"probably wrong: example {doubt.number}{source} is labelled {doubt.label}, and looks like {doubt.likelier}"
        )
    return lines


def what_it_did(before: Accuracies, after: Accuracies, was: float | None, now: Estimate) -> list[str]:
    """The estimated accuracy before and after, which class that was known suffers most, if any, and what was noticed."""
    lost: dict[Label, float] = {}
    for label, old in before.items():
        new = after.get(label)
        if old is not None and new is not None and old - new > NOTHING_LOST:
            lost[label] = old - new
    lines = [f"estimated accuracy: {share(was)} before, {estimated(now)} after"]
    if lost:
        worst = max(lost, key=lambda label: lost[label])
        more = f" ({len(lost) - 1} more suffer less)" if len(lost) > 1 else ""
        lines.append(f"suffers most: {worst}, {share(before[worst])} before, {share(after[worst])} after{more}")
    elif before:
        lines.append("no known class suffers")
    return [*lines, *noticed(now)]


def trial_lines(trial: Trial) -> list[str]:
    """What a lesson would do, for people: who gains, who suffers, and how good the new classes are."""
    lines = [f"estimated accuracy: {share(trial.before)} before, {share(trial.after)} after"]
    lines += [f"gains: {each.label}, {share(each.before)} before, {share(each.after)} after" for each in trial.gains]
    lines += [
        f"suffers: {each.label}, {share(each.before)} before, {share(each.after)} after" for each in trial.suffers
    ]
    if not trial.suffers and any(not each.new for each in trial.classes):
        lines.append("no known class suffers")
    lines += [f"new: {each.label}, estimated accuracy {share(each.after)}" for each in trial.classes if each.new]
    return lines


def example_line(example: StoredExample) -> str:
    """A stored example, with the number that `remove` and `move` take."""
    return f"{example.number}  {example.label}" + (f"  {example.source}" if example.source else "")


def answer_line(name: str, found: Explanation, *, reject: bool, top: int = 1) -> str:
    """One answer for people, with the `top` likeliest classes."""
    nearest = f", nearest: {_nearest(found)}" if found.nearest else ""
    others = "".join(f"; {label}, {share(chance)}" for label, chance in found.ranked[1:top])
    if reject and found.unknown:
        return f"{name}: unknown (of the known classes, {found.label} is the likeliest{others}{nearest})"
    return f"{name}: {found.label}, {share(found.probability)}{others}{nearest}"


def answer_json(name: str, found: Explanation, *, reject: bool, top: int = 5) -> dict[str, Any]:
    """One answer for programs, with the `top` likeliest classes; the label is null where it was rejected."""
    return {
        "image": name,
        "label": None if reject and found.unknown else found.label,
        "probability": found.probability,
        "unknown": found.unknown,
        "ranked": [{"label": label, "probability": chance} for label, chance in found.ranked[:top]],
        "nearest": [{"label": each.label, "source": each.source, "distance": each.distance} for each in found.nearest],
    }


def cell(value: object) -> object:
    """A value for a table: a word that a spreadsheet would take for a formula gets an apostrophe in front.

    Examples:
        >>> cell("=1+1"), cell("oak"), cell(-1)
        ("'=1+1", 'oak', -1)
    """
    return f"'{value}" if isinstance(value, str) and value[:1] in FORMULA else value


ANSWER_COLUMNS = ("image", "label", "probability", "unknown", "nearest_label", "nearest_source")


def answer_columns(top: int = 1) -> list[str]:
    """The heads of `answer_row`'s columns; from the second class on, each has two of its own."""
    return [*ANSWER_COLUMNS, *(f"{what}_{rank}" for rank in range(2, top + 1) for what in ("label", "probability"))]


def answer_row(name: str, found: Explanation, *, reject: bool, top: int = 1) -> list[object]:
    """One answer for a table, in the order of `answer_columns`; as long as they, however few classes there are."""
    label = "" if reject and found.unknown else found.label
    near = found.nearest[0] if found.nearest else None
    others: list[object] = [each for name, chance in found.ranked[1:top] for each in (cell(name), f"{chance:.4f}")]
    return [
        cell(name),
        cell(label),
        f"{found.probability:.4f}",
        str(found.unknown).lower(),
        cell(near.label) if near else "",
        cell(near.source) if near else "",
        *others,
        *[""] * (2 * (top - 1) - len(others)),
    ]


def about_lines(about: Mapping[str, Any], estimate: Estimate) -> list[str]:
    """A model for people: what `ContinualClassifier.about` returns, and its estimate."""
    settings, memory = about["settings"], about["memory"]
    bound = "no bound" if memory["bound"] is None else f"at most {memory['bound']:,}"
    lines = [
        f"method {settings['method']}, base {settings['base'] or 'of its own'}, seed {settings['seed']}",
        f"{len(about['classes'])} classes, estimated accuracy {estimated(estimate)}",
        f"{memory['examples']} stored examples, {memory['bytes']:,} bytes ({bound}); "
        f"folder: {about['folder_bytes'] or 0:,} bytes",
    ]
    for each in about["classes"]:
        lines.append(f"  {each['label']}: {each['examples']} stored, estimated accuracy {share(each['accuracy'])}")
    lines += noticed(estimate)
    if about["history"]:
        lines.append("history:")
        lines += [f"  {event_line(Event(**event))}" for event in about["history"]]
    if about["waiting"]:
        lines.append("a lesson that was cut short waits in the journal; the next change completes it")
    return lines


def repair_lines(done: Repaired, last: str) -> list[str]:
    """What a repair did; `last` is the last call that the model remembers."""
    if not done.problems:
        return ["nothing is damaged"]
    calls = f"{done.went_back} {'call' if done.went_back == 1 else 'calls'}"
    lines = [f"damaged: {problem}" for problem in done.problems]
    lines.append(f"lost: the last {calls}" if done.went_back else "the present state is whole: no call is lost")
    if done.n_lost > done.went_back:
        n = done.n_lost - done.went_back
        lines.append(f"lost: {n} earlier {'state' if n == 1 else 'states'}, which `undo` now passes over")
    return [*lines, f"now after: {last}", f"the damaged files are in {done.aside}"]


def event_line(event: Event) -> str:
    """One line of history."""
    classes = ", ".join(map(str, [*event.new, *event.known][:MAX_NAMED])) + (
        "" if len(event.new) <= MAX_NAMED else ", …"
    )
    if event.call == "rename":
        what = f"renamed {event.known[0]} to {event.new[0]}"
    elif event.call == "forget":
        what = f"forgot {classes}"
    elif event.call == "remove":
        what = f"removed 1 example of {classes}"
    elif event.call == "move":
        what = f"moved 1 example of {event.known[0]} to {event.new[0]}"
    elif event.call == "merge":
        what = f"merged {event.known[0]} into {event.known[1]}"
    else:
        verb = {"learn": "learned", "correct": "was corrected with", "fit": "began again with"}[event.call]
        what = f"{verb} {event.n_examples} {'example' if event.n_examples == 1 else 'examples'} of {classes}"
    return (
        f"{event.number}. {event.when}  {what}; {event.n_classes} classes, estimated accuracy {share(event.accuracy)}"
    )


def _nearest(found: Explanation) -> str:
    near = found.nearest[0]
    return f"{near.source} ({near.label})" if near.source else str(near.label)
