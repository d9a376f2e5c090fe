"""What the API says, as JSON values. The words for people are those of the command line (fscl/classifier/words.py)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fscl.classifier.assessment import Answer, Assessment, ClassResult, Share
from fscl.classifier.calibrate import wilson
from fscl.classifier.estimate import estimate_of
from fscl.classifier.explain import Explanation
from fscl.classifier.knowledge import Event, Knowledge
from fscl.classifier.labels import Label
from fscl.classifier.trial import ClassChange, Trial
from fscl.classifier.words import event_line, trial_lines, what_it_did
from fscl.serve.present import Present, key_of

Json = dict[str, Any]

CERTAIN = 0.6  # a likeliest class with less than this is worth a look
N_NEWEST = 12
ENOUGH = 5  # examples of a class, beyond which only a poor estimate asks for more
N_ADVICE = 3


def is_uncertain(found: Explanation) -> bool:
    """Known, as far as can be told, but by no clear answer."""
    return not found.unknown and found.probability < CERTAIN


def answer(
    found: Explanation,
    *,
    name: str = "",
    picture: str | None = None,
    top: int = 5,
    nearest: int = 3,
    kept: bool = False,
) -> Json:
    """One answer.

    Args:
        found: by the model.
        name: of the picture, for people.
        picture: its id in the tray.
        top: how many classes.
        nearest: how many stored examples.
        kept: whether it was put in the inbox.
    """
    return {
        "picture": picture,
        "name": name,
        "label": None if found.unknown else found.label,
        "probability": found.probability,
        "unknown": found.unknown,
        "uncertain": is_uncertain(found),
        "ranked": [{"label": label, "probability": chance} for label, chance in found.ranked[:top]],
        "nearest": [
            {"label": each.label, "distance": each.distance, "source": each.source, **_link(key_of(each.example))}
            for each in found.nearest[:nearest]
        ],
        "kept": kept,
    }


def event(of: Event) -> Json:
    """One line of history."""
    return {**of.details(), "lesson": of.lesson, "line": event_line(of)}


def class_change(of: ClassChange) -> Json:
    return {"label": of.label, "before": of.before, "after": of.after, "new": of.new}


def compared(before: Knowledge, after: Knowledge) -> Trial:
    """What a change did, in the form of what a dry run would say."""
    earlier = before.class_accuracy
    return Trial(
        before.calibration.accuracy,
        after.calibration.accuracy,
        tuple(
            ClassChange(label, earlier.get(label), accuracy, label not in earlier)
            for label, accuracy in after.class_accuracy.items()
        ),
    )


def change(before: Present, after: Present, *, left_out: Sequence[str] = (), undo_to: int | None = None) -> Json:
    """What a call did.

    Args:
        before: the state before it.
        after: the state that it left.
        left_out: a sentence for each picture that could not be read.
        undo_to: the state that undoes it, where that is kept.
    """
    was, now = before.knowledge, after.knowledge
    estimate = estimate_of(now)
    lines = what_it_did(was.class_accuracy, now.class_accuracy, was.calibration.accuracy, estimate)
    called = now.history[-1] if len(now.history) > len(was.history) else None
    if called is not None:
        lines = [event_line(called), *lines]
    return {
        **_trial(compared(was, now)),
        "state": after.number,
        "dry_run": False,
        "event": None if called is None else event(called),
        "accuracy": {"before": was.calibration.accuracy, "after": estimate.accuracy, "interval": estimate.interval},
        "repeats": estimate.n_repeats,
        "doubtful": doubtful(after),
        "lines": lines,
        "left_out": list(left_out),
        "undo_to": undo_to,
        "repeated": False,
    }


def repeated(present: Present, called: Event, *, undo_to: int | None) -> Json:
    """What is said to a lesson that was sent again: it is learned already, and nothing was taught twice."""
    said = change(present, present, undo_to=undo_to)
    lines = [event_line(called), "this lesson was learned before; nothing was taught twice"]
    return {**said, "event": event(called), "lines": lines, "repeated": True}


def trial(present: Present, found: Trial, *, left_out: Sequence[str] = ()) -> Json:
    """What a lesson would do."""
    return {
        **_trial(found),
        "state": present.number,
        "dry_run": True,
        "event": None,
        "accuracy": {"before": found.before, "after": found.after, "interval": None},
        "repeats": 0,
        "doubtful": [],
        "lines": [*trial_lines(found), "nothing was learned: this was a dry run"],
        "left_out": list(left_out),
        "undo_to": None,
        "repeated": False,
    }


def classes(present: Present) -> Json:
    """Every class with what is stored of it and how good it is."""
    knowledge, estimate = present.knowledge, estimate_of(present.knowledge)
    members: dict[Label, list[Json]] = {label: [] for label in knowledge.classes}
    for each in reversed(present.examples):
        if len(members[each.label]) < N_NEWEST:
            members[each.label].append(example(present, each.number))
    counts = dict(zip(knowledge.classes, knowledge.counts, strict=True))
    listed = [
        {
            "label": label,
            "examples": counts[label],
            "accuracy": accuracy,
            "interval": None if accuracy is None else wilson(accuracy, max(1, counts[label])),
            "newest": members[label],
        }
        for label, accuracy in knowledge.class_accuracy.items()
    ]
    return {
        "state": present.number,
        "accuracy": estimate.accuracy,
        "interval": estimate.interval,
        "n_left_out": estimate.n_left_out,
        "classes": listed,
        "advice": advice(listed),
    }


def advice(listed: Sequence[Mapping[str, Any]]) -> list[Json]:
    """The classes that more examples would help most: few of them, or a poor estimate."""

    def least_certain(each: Mapping[str, Any]) -> tuple[float, int]:
        return (-1.0 if each["interval"] is None else each["interval"][0], each["examples"])

    needy = [each for each in listed if each["examples"] < ENOUGH or (each["accuracy"] or 0.0) < 1.0]
    found = []
    for rank, each in enumerate(sorted(needy, key=least_certain)[:N_ADVICE]):
        helps = "would help most" if rank == 0 else "would help"
        found.append({"label": each["label"], "more": 3, "message": f"three more of {each['label']} {helps}"})
    return found


def example(present: Present, number: int) -> Json:
    """A stored example by its number."""
    each = present.examples[number - 1]
    return {"number": each.number, "label": each.label, "source": each.source, **_link(present.keys[number - 1])}


def doubtful(present: Present) -> list[Json]:
    """Stored examples whose label is probably wrong, the surest first."""
    return [{**vars(each), **_link(present.keys[each.number - 1])} for each in estimate_of(present.knowledge).doubtful]


def share(of: Share) -> Json:
    return {"count": of.count, "n": of.n, "value": None if math.isnan(of.value) else of.value, "interval": of.interval}


def assessment(present: Present, found: Assessment, names: Mapping[str, str]) -> Json:
    """The answers to a test; `names` are those of the pictures by their ids, which are the sources here."""
    return {
        "state": present.number,
        "n": len(found.answers) + len(found.strangers),
        "accuracy": share(found.accuracy),
        "called_unknown": share(found.called_unknown),
        "caught": share(found.caught) if found.strangers else None,
        "n_taught": found.n_taught,
        "can_reject": found.can_reject,
        "classes": [_class_result(each) for each in found.per_class],
        "strangers": [_class_result(each) for each in found.stranger_classes],
        "confusions": [vars(each) for each in found.confusions],
        "mistakes": [_mistake(each, names) for each in found.mistakes[:100]],
        "left_out": [],
    }


def _trial(found: Trial) -> Json:
    return {
        "classes": [class_change(each) for each in found.classes],
        "gains": [class_change(each) for each in found.gains],
        "suffers": [class_change(each) for each in found.suffers],
    }


def _class_result(of: ClassResult) -> Json:
    return {"label": of.label, "right": share(of.right), "unknown": share(of.unknown)}


def _mistake(of: Answer, names: Mapping[str, str]) -> Json:
    found = of.found
    return {
        "id": of.source,
        "name": names.get(of.source, ""),
        "label": of.label,
        "answer": found.label,
        "probability": found.probability,
        "unknown": found.unknown,
    }


def _link(key: str) -> Json:
    return {"key": key, "url": f"/api/v1/examples/{key}/picture"}
