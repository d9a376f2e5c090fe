"""One stored example taken out or given to another class; the rest is learned again.

What examples that are no longer stored have left in the learner (sums of class means, under `memory_bytes`) goes, too.
"""

from dataclasses import dataclass, replace

import torch

from fscl.classifier.knowledge import Knowledge, Lesson
from fscl.classifier.labels import Label, check_look, plain_labels
from fscl.classifier.teacher import Snapshot, Teacher, position_of
from fscl.continual.learner import renumbered
from fscl.data.names import readable
from fscl.data.pool import Examples
from fscl.errors import MisuseError, suggestion


@dataclass(frozen=True)
class StoredExample:
    """An example that a model holds: its number, from 1, its class, and where it came from ("" for an array).

    Numbers are those of one state: they change with every call that changes the model.
    """

    number: int
    label: Label
    source: str


def stored_examples(knowledge: Knowledge) -> tuple[StoredExample, ...]:
    """Every stored example."""
    if knowledge.examples is None:
        return ()
    numbers = knowledge.examples.labels.tolist()
    return tuple(
        StoredExample(position + 1, knowledge.classes[number], source)
        for position, (number, source) in enumerate(zip(numbers, knowledge.sources, strict=True))
    )


def find_example(knowledge: Knowledge, wanted: int | str) -> StoredExample:
    """A stored example by its number, or by where it came from."""
    if not isinstance(wanted, int | str) or isinstance(wanted, bool):
        raise MisuseError(
            f"an example is named by its number or where it came from, but this is a {type(wanted).__name__}."
        )
    stored = stored_examples(knowledge)
    if isinstance(wanted, int):
        if not 1 <= wanted <= len(stored):
            raise MisuseError(f"there is no stored example {wanted}: they are numbered from 1 to {len(stored)}.")
        return stored[wanted - 1]
    found = [each for each in stored if each.source in (wanted, readable(wanted))]
    if not found:
        near = suggestion(wanted, [each.source for each in stored])
        raise MisuseError(f"no stored example came from {wanted!r}.{near} `fscl examples` lists them.")
    if len(found) > 1:
        numbers = ", ".join(str(each.number) for each in found[:10])
        raise MisuseError(f"{len(found)} stored examples came from {wanted!r}; name one by its number: {numbers}.")
    return found[0]


def removed(teacher: Teacher, before: Snapshot, wanted: int | str, *, when: str) -> Snapshot:
    """Without one stored example."""
    was, example = before.knowledge, find_example(before.knowledge, wanted)
    _check_not_last(was, example, "forget the class instead: `fscl forget`")
    images, labels = _stored(was)
    stays = torch.arange(len(labels)) != example.number - 1
    after = replace(
        was,
        examples=Examples(images[stays], labels[stays]),
        sources=tuple(each for position, each in enumerate(was.sources) if position != example.number - 1),
    )
    lesson = Lesson(torch.zeros(0), (example.label,), (example.source,), "remove", when)
    return teacher.taught_anew(after, before, lesson, known=(example.label,))


def moved(
    teacher: Teacher, before: Snapshot, wanted: int | str, label: Label, *, new: bool = False, when: str
) -> Snapshot:
    """With one stored example in another class.

    Args:
        teacher: how the classifier learns.
        before: what is known.
        wanted: the example's number, or where it came from.
        label: of the class that it shall be in.
        new: whether that may be a class that is not known yet.
        when: the time of the call.
    """
    was, example = before.knowledge, find_example(before.knowledge, wanted)
    check_known(was, label, new=new)
    (label,) = plain_labels([label], was.classes)
    if label == example.label:
        raise MisuseError(f"stored example {example.number} is of class {label!r} already.")
    _check_not_last(was, example, "rename the class or forget it instead: `fscl rename`, `fscl forget`")
    classes = was.classes if label in was.classes else (*was.classes, label)
    check_look(classes)
    images, labels = _stored(was)
    labels = labels.clone()
    labels[example.number - 1] = classes.index(label)
    after = replace(was, classes=classes, examples=Examples(images, labels))
    lesson = Lesson(torch.zeros(0), (label,), (example.source,), "move", when)
    return teacher.taught_anew(after, before, lesson, new=(label,), known=(example.label,))


def merged(teacher: Teacher, before: Snapshot, label: Label, into: Label, *, when: str) -> Snapshot:
    """With all stored examples of one class in another, and without the first."""
    was = before.knowledge
    gone, target = position_of(was, label), position_of(was, into)
    if gone == target:
        raise MisuseError(f"{label!r} is one class already; name two.")
    images, labels = _stored(was)
    labels = torch.where(labels == gone, target, labels)
    after = replace(
        was,
        classes=(*was.classes[:gone], *was.classes[gone + 1 :]),
        examples=Examples(images, renumbered(labels, gone)),
    )
    lesson = Lesson(torch.zeros(0), (into,) * was.counts[gone], (), "merge", when)
    return teacher.taught_anew(after, before, lesson, known=(label, into))


def check_known(knowledge: Knowledge, label: Label, *, new: bool) -> None:
    """Refuse a label that is not known, unless it shall be `new`: most such names are misspelt."""
    if new or label in knowledge.classes:
        return
    try:
        position_of(knowledge, label)
    except MisuseError as error:
        raise MisuseError(f"{error} Where it shall be a new class, say so: new=True, or --new.") from None


def _stored(knowledge: Knowledge) -> tuple[torch.Tensor, torch.Tensor]:
    if knowledge.examples is None:
        raise MisuseError("no example is stored: memory_bytes left none.")
    return knowledge.examples.images, knowledge.examples.labels


def _check_not_last(knowledge: Knowledge, example: StoredExample, instead: str) -> None:
    if knowledge.counts[position_of(knowledge, example.label)] == 1:
        raise MisuseError(f"this is the only stored example of class {example.label!r}; {instead}.")
