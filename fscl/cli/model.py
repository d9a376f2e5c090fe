"""The commands that make and change a classifier of one's own: new, learn, correct, remove, move, forget, … No logic."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fscl.cli.opening import ClassName, Model, SkipBad, label_of, load, load_taught, prepare, say, telling
from fscl.errors import MisuseError

if TYPE_CHECKING:
    from fscl.classifier.labels import Label
    from fscl.estimator import ContinualClassifier

Example = Annotated[str, typer.Argument(metavar="EXAMPLE", help="A number or a source from `fscl examples`.")]
NewClass = Annotated[bool, typer.Option("--new", help="The class is not known yet: make it.")]


def new(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder to make.")],
    base: Annotated[str | None, typer.Option(help="A name from `fscl bases`, or a .safetensors file.")] = None,
    purpose: Annotated[
        str | None, typer.Option("--for", metavar="photos|drawings", help="Takes the base for such pictures.")
    ] = None,
    method: Annotated[str, typer.Option(help="A name from `fscl methods`.")] = "tsc",
    invert: Annotated[bool, typer.Option("--invert", help="Exchange light and dark: for dark ink on paper.")] = False,
    memory_bytes: Annotated[int | None, typer.Option(min=0, help="Bound on the stored examples.")] = None,
    keep_states: Annotated[int | None, typer.Option(min=0, help="How many calls can be undone. Default: all.")] = None,
    seed: Annotated[int, typer.Option(help="Of every random number.")] = 0,
    no_originals: Annotated[
        bool, typer.Option("--no-originals", help="Keep pictures only as the base sees them, not as they were given.")
    ] = False,
) -> None:
    """Make a model that has learned nothing yet. Without --base it takes ImageNet features for photographs."""
    if base is not None and purpose is not None:
        raise MisuseError("--base and --for were both given; choose one.")
    prepare()
    from fscl.classifier.base_choice import SAID, default_base
    from fscl.continual.registry import find_method
    from fscl.estimator import ContinualClassifier

    find_method(method)
    chosen = base or default_base(purpose)
    made = ContinualClassifier(
        chosen,
        method,
        memory_bytes=memory_bytes,
        keep_states=keep_states,
        invert=invert,
        originals=not no_originals,
        random_state=seed,
    )
    made.save(model)
    if base is None:
        say(SAID[chosen])
    say(str(model))


def learn(
    model: Model,
    photos: Annotated[Path, typer.Argument(metavar="FOLDER", help="One sub-folder per class, its name the class's.")],
    skip_bad: SkipBad = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say who gains and who suffers; learn nothing.")] = False,
) -> None:
    """Teach new classes, or more examples of known ones."""
    from fscl.classifier.words import trial_lines, what_comes, what_it_did
    from fscl.experiment.progress import Reporter

    reporter, classifier = Reporter(), load(model)
    if not dry_run and classifier.recover():
        reporter.warn(
            f"A lesson that was cut short was completed first: {classifier.history_[-1].n_examples} examples."
        )
    with reporter.stage("Reading"):
        pictures, labels = classifier.read_folder(photos, skip_bad=skip_bad, report=reporter.warn)
    before, was = classifier.class_accuracy_, classifier.estimated_accuracy_
    for line in what_comes(labels, list(before)):
        say(line)
    if dry_run:
        with reporter.stage(f"Learning {len(labels)} examples on trial"):
            trial = classifier.dry_run(pictures, labels)
        for line in [*trial_lines(trial), "nothing was learned: this was a dry run"]:
            say(line)
        return
    with reporter.stage(f"Learning {len(labels)} examples"):
        classifier.partial_fit(pictures, labels)
    for line in what_it_did(before, classifier.class_accuracy_, was, classifier.estimate_):
        say(line)
    say(str(model))


def correct(
    model: Model,
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="A picture that was misread.")],
    name: ClassName,
    new_class: NewClass = False,
) -> None:
    """Teach one picture that was misread."""
    from fscl.classifier.words import what_comes

    classifier = load_taught(model)
    label = label_of(classifier, name)
    known = list(classifier.class_accuracy_)
    classifier.correct(image, label, new=new_class or _wants_new(classifier, label))
    for line in what_comes([label], known):
        say(line)
    say(str(model))


def remove(model: Model, example: Example) -> None:
    """Take one stored example out. `undo` brings it back."""
    _say_last(load_taught(model).remove(_example(example)))
    say(str(model))


def move(model: Model, example: Example, name: ClassName, new_class: NewClass = False) -> None:
    """Give one stored example to another class."""
    classifier = load_taught(model)
    label = label_of(classifier, name)
    _say_last(classifier.move(_example(example), label, new=new_class or _wants_new(classifier, label)))
    say(str(model))


def forget(model: Model, name: ClassName) -> None:
    """Forget a class: the model no longer holds its images or predicts it. This cannot be undone."""
    classifier = load_taught(model)
    classifier.forget(label_of(classifier, name))
    say(str(model))


def rename(model: Model, name: ClassName, new_name: Annotated[str, typer.Argument(metavar="NEW")]) -> None:
    """Give a class another name."""
    classifier = load_taught(model)
    classifier.rename(label_of(classifier, name), new_name)
    say(str(model))


def merge(
    model: Model, name: ClassName, into: Annotated[str, typer.Argument(metavar="INTO", help="Another class.")]
) -> None:
    """Give all stored examples of one class to another. `undo` parts them again."""
    classifier = load_taught(model)
    _say_last(classifier.merge(label_of(classifier, name), label_of(classifier, into)))
    typer.echo(str(model))


def reteach(
    model: Model,
    new_model: Annotated[Path, typer.Argument(metavar="NEW", help="The folder to make.")],
    base: Annotated[str | None, typer.Option(help="A name from `fscl bases`, or a file. Default: the same.")] = None,
    method: Annotated[str | None, typer.Option(help="A name from `fscl methods`. Default: the same.")] = None,
) -> None:
    """Teach all stored pictures to a new model, with another base or method; MODEL stays as it is."""
    from fscl.classifier.words import what_it_did
    from fscl.continual.registry import find_method
    from fscl.experiment.progress import Reporter

    if base is None and method is None:
        raise MisuseError("nothing would change: give another --base, or another --method.")
    classifier = load_taught(model)
    if method is not None:
        find_method(method)
    with Reporter().stage("Teaching again"):
        again = classifier.reteach(new_model, base=base, method=method)
    accuracies = (classifier.class_accuracy_, again.class_accuracy_)
    for line in what_it_did(*accuracies, classifier.estimated_accuracy_, again.estimate_):
        say(line)
    say(str(new_model))


def undo(
    model: Model,
    calls: Annotated[int, typer.Option(min=1, help="How many calls to take back.")] = 1,
) -> None:
    """Go back to the state before the last call."""
    from fscl.classifier.words import event_line

    classifier = load(model)
    waiting, before = classifier.waiting(), classifier.history_
    classifier.undo(calls)
    if waiting:
        say("dropped: a lesson that was cut short")
    for event in reversed(before[len(classifier.history_) :]):
        say(f"undone: {event_line(event)}")
    say(str(model))


def repair(model: Model) -> None:
    """Make a damaged model whole again: go back to its newest whole state, and keep the damaged files aside."""
    prepare()
    from fscl.classifier.store.repair import repair_model
    from fscl.classifier.words import event_line, repair_lines

    done = repair_model(model)
    history = load(model).history_
    for line in repair_lines(done, event_line(history[-1]) if history else "nothing was learned yet"):
        say(line)
    say(str(model))


def redo(
    model: Model,
    calls: Annotated[int, typer.Option(min=1, help="How many calls to bring back.")] = 1,
) -> None:
    """Bring back the last call that was undone, unless the model has changed since."""
    from fscl.classifier.words import event_line

    classifier = load(model)
    before = len(classifier.history_)
    classifier.redo(calls)
    for event in classifier.history_[before:]:
        typer.echo(f"done again: {event_line(event)}")
    typer.echo(str(model))


COMMANDS: dict[str, Callable[..., None]] = {
    "new": new,
    "learn": telling(learn),
    "correct": telling(correct),
    "remove": telling(remove),
    "move": telling(move),
    "forget": telling(forget),
    "rename": telling(rename),
    "reteach": reteach,
    "undo": telling(undo),
    "redo": telling(redo),
    "merge": telling(merge),
    "repair": telling(repair),
}


def _example(words: str) -> int | str:
    """What `fscl examples` shows: a number, or where an example came from."""
    return int(words) if words.isdecimal() else words


def _wants_new(classifier: "ContinualClassifier", label: "Label") -> bool:
    """Asks, in a terminal, whether a name that is not known shall be a class."""
    if label in classifier.class_accuracy_ or not sys.stdin.isatty():
        return False
    return typer.confirm(f"No class {label!r} was learned. Make it a new class?", err=True)


def _say_last(classifier: "ContinualClassifier") -> None:
    from fscl.classifier.words import event_line

    say(event_line(classifier.history_[-1]))
