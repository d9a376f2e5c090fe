"""The commands for a classifier of one's own: new, learn, predict, correct, forget, rename, undo, info, export. No logic."""

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fscl.errors import DataError, MisuseError

if TYPE_CHECKING:
    from fscl.classifier.labels import Label
    from fscl.estimator import ContinualClassifier

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a model.")]
ClassName = Annotated[str, typer.Argument(metavar="CLASS", help="The name of a class.")]


def new(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder to make.")],
    base: Annotated[
        str, typer.Option(help="A name from `fscl bases`, or a .safetensors file.")
    ] = "omniglot-protonet-conv4",
    method: Annotated[str, typer.Option(help="A name from `fscl methods`.")] = "tsc",
    invert: Annotated[bool, typer.Option("--invert", help="Exchange light and dark: for dark ink on paper.")] = False,
    memory_bytes: Annotated[int | None, typer.Option(min=0, help="Bound on the stored examples.")] = None,
    keep_states: Annotated[int | None, typer.Option(min=0, help="How many calls can be undone. Default: all.")] = None,
    seed: Annotated[int, typer.Option(help="Of every random number.")] = 0,
) -> None:
    """Make a model that has learned nothing yet."""
    _prepare()
    from fscl.continual.registry import find_method
    from fscl.estimator import ContinualClassifier

    find_method(method)
    made = ContinualClassifier(
        base, method, memory_bytes=memory_bytes, keep_states=keep_states, invert=invert, random_state=seed
    )
    made.save(model)
    typer.echo(str(model))


def learn(
    model: Model,
    photos: Annotated[Path, typer.Argument(metavar="FOLDER", help="One sub-folder per class, its name the class's.")],
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out files that cannot be read.")] = False,
) -> None:
    """Teach new classes, or more examples of known ones."""
    from fscl.classifier.words import what_comes, what_it_did
    from fscl.experiment.progress import Reporter

    reporter, classifier = Reporter(), _load(model)
    if classifier.recover():
        reporter.warn(
            f"A lesson that was cut short was completed first: {classifier.history_[-1].n_examples} examples."
        )
    with reporter.stage("Reading"):
        pictures, labels = classifier.read_folder(photos, skip_bad=skip_bad, report=reporter.warn)
    before, was = classifier.class_accuracy_, classifier.estimated_accuracy_
    for line in what_comes(labels, list(before)):
        typer.echo(line)
    with reporter.stage(f"Learning {len(labels)} examples"):
        classifier.partial_fit(pictures, labels)
    for line in what_it_did(before, classifier.class_accuracy_, was, classifier.estimated_accuracy_):
        typer.echo(line)
    typer.echo(str(model))


def predict(
    model: Model,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Pictures, or folders of pictures.")],
    reject: Annotated[bool, typer.Option("--reject", help="Say so where a picture is like no known class.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A list with the likeliest classes and nearest examples.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="A table with one row a picture.")] = False,
) -> None:
    """Ask what pictures show: name, probability, and the stored example that is nearest."""
    from fscl.classifier import words

    if as_json and as_csv:
        raise MisuseError("--json and --csv were both given; choose one.")
    classifier = _load_taught(model)
    names, found = classifier.answers(images)
    answers = list(zip(names, found, strict=True))
    if as_json:
        typer.echo(
            json.dumps([words.answer_json(*each, reject=reject) for each in answers], ensure_ascii=False, indent=1)
        )
        return
    if as_csv:
        table = csv.writer(sys.stdout)
        table.writerow(words.ANSWER_COLUMNS)
        table.writerows(words.answer_row(*each, reject=reject) for each in answers)
        return
    for each in answers:
        typer.echo(words.answer_line(*each, reject=reject))


def correct(
    model: Model,
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="A picture that was misread.")],
    name: ClassName,
) -> None:
    """Teach one picture that was misread."""
    from fscl.classifier.words import what_comes

    classifier = _load_taught(model)
    label = _label(classifier, name)
    for line in what_comes([label], classifier.classes_.tolist()):  # a misspelt name would be a new class
        typer.echo(line)
    classifier.correct(image, label)
    typer.echo(str(model))


def forget(model: Model, name: ClassName) -> None:
    """Forget a class: the model no longer holds its images or predicts it. This cannot be undone."""
    classifier = _load_taught(model)
    classifier.forget(_label(classifier, name))
    typer.echo(str(model))


def rename(model: Model, name: ClassName, new_name: Annotated[str, typer.Argument(metavar="NEW")]) -> None:
    """Give a class another name."""
    classifier = _load_taught(model)
    classifier.rename(_label(classifier, name), new_name)
    typer.echo(str(model))


def undo(
    model: Model,
    calls: Annotated[int, typer.Option(min=1, help="How many calls to take back.")] = 1,
) -> None:
    """Go back to the state before the last call."""
    _load(model).undo(calls)
    typer.echo(str(model))


def info(model: Model, as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """What a model knows: its classes, stored examples, bytes and history."""
    about = _load(model).about()
    if as_json:
        typer.echo(json.dumps(about, ensure_ascii=False, indent=1))
        return
    from fscl.classifier.words import about_lines

    for line in about_lines(about):
        typer.echo(line)


def export(model: Model, out: Annotated[Path, typer.Argument(metavar="OUT.onnx", help="The file to write.")]) -> None:
    """Write extractor and head as one ONNX file, and its labels beside it."""
    written = _load_taught(model).export(out)
    typer.echo(
        f"probabilities differ by at most {written.largest_difference:.1e} from the model's on {written.n_checked} "
        f"pictures, run by onnxruntime\nlabels: {written.labels_path}\n{written.path}"
    )


def check_model_folder(model: Path) -> bool:
    """Verify every file of a model; whether all is well."""
    from fscl.classifier.store.check import check_model

    found = check_model(model)
    for problem in found.problems:
        typer.echo(problem)
    if found.waiting:
        typer.echo("a lesson that was cut short waits in the journal; the next change completes it")
    if found.strays:
        typer.echo(f"{len(found.strays)} files that a stopped process left; the next change removes them")
    state = f"{len(found.problems)} bad" if found.problems else "all as they should be"
    typer.echo(f"{found.n_files} files, {found.n_bytes:,} bytes, {state}")
    return not found.problems


COMMANDS = (new, learn, predict, correct, forget, rename, undo, info, export)


def _prepare() -> None:
    from fscl.process import configure_process

    configure_process()


def _load(model: Path) -> "ContinualClassifier":
    _prepare()
    from fscl.estimator import ContinualClassifier

    return ContinualClassifier.load(model)


def _load_taught(model: Path) -> "ContinualClassifier":
    classifier = _load(model)
    if not classifier.class_accuracy_:
        raise DataError(f"{model} has learned nothing yet; teach it with `fscl learn {model} FOLDER`.")
    return classifier


def _label(classifier: "ContinualClassifier", name: str) -> "Label":
    """The class of this name, whatever the kind of its label; a name that is not known is itself."""
    return next((label for label in classifier.class_accuracy_ if str(label) == name), name)
