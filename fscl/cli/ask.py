"""The commands that ask a classifier of one's own and change nothing: predict, test, examples, info, export. No logic."""

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from fscl.cli.opening import AsJson, Model, SkipBad, label_of, load, load_taught, say
from fscl.errors import MisuseError, unknown_name


def predict(
    model: Model,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Pictures, or folders of pictures.")],
    reject: Annotated[bool, typer.Option("--reject", help="Say so where a picture is like no known class.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A list with the likeliest classes and nearest examples.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="A table with one row a picture.")] = False,
    top: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="The K likeliest classes of each picture.")
    ] = None,
    skip_bad: SkipBad = False,
) -> None:
    """Ask what pictures show: name, probability, and the stored example that is nearest."""
    from fscl.classifier import words

    if as_json and as_csv:
        raise MisuseError("--json and --csv were both given; choose one.")
    from fscl.experiment.progress import Reporter

    names, found = load_taught(model).answers(images, skip_bad=skip_bad, report=Reporter().warn)
    answers = list(zip(names, found, strict=True))
    if as_json:
        listed = [words.answer_json(*each, reject=reject, top=top or 5) for each in answers]
        say(json.dumps(listed, ensure_ascii=False, indent=1))
        return
    if as_csv:
        table = csv.writer(sys.stdout)
        table.writerow(words.answer_columns(top or 1))
        table.writerows(words.answer_row(*each, reject=reject, top=top or 1) for each in answers)
        return
    for each in answers:
        say(words.answer_line(*each, reject=reject, top=top or 1))


def examine(
    model: Model,
    photos: Annotated[Path, typer.Argument(metavar="FOLDER", help="One sub-folder per class, its name the class's.")],
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write a table with one row a picture.")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="Write a page with pictures of mistakes.")] = None,
    skip_bad: SkipBad = False,
) -> None:
    """Ask for pictures that were not taught: how many are right, by class, what is confused, what is called unknown."""
    from rich.console import Console

    from fscl.classifier.assessment_page import csv_text, html_page, print_assessment
    from fscl.experiment.progress import Reporter
    from fscl.storage import write_bytes

    reporter, classifier = Reporter(), load_taught(model)
    with reporter.stage("Asking"):
        found = classifier.test(photos, skip_bad=skip_bad, report=reporter.warn)
    title = f"{model.resolve().name}, tested with {photos.resolve().name}"
    files = [(csv_file, csv_text), (html_file, lambda found: html_page(found, title))]
    asked_for = [(path, text) for path, text in files if path is not None]
    for path, text in asked_for:  # before anything is printed: a closed pipe (`| head`) loses no file
        write_bytes(path, text(found).encode())
    print_assessment(found, Console(highlight=False))
    for path, _ in asked_for:
        say(str(path))


def examples(
    model: Model,
    name: Annotated[str | None, typer.Argument(metavar="[CLASS]", help="Of one class alone.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the stored examples, with the numbers that `remove` and `move` take."""
    from fscl.classifier.words import example_line

    classifier = load_taught(model)
    found = classifier.examples_
    if name is not None:
        label = label_of(classifier, name)
        if label not in classifier.class_accuracy_:
            raise unknown_name("class", name, map(str, classifier.class_accuracy_))
        found = tuple(each for each in found if each.label == label)
    if as_json:
        say(json.dumps([vars(each) for each in found], ensure_ascii=False, indent=1))
        return
    for each in found:
        say(example_line(each))


def suggest(
    model: Model,
    photos: Annotated[Path, typer.Argument(metavar="FOLDER", help="Pictures without labels.")],
    n: Annotated[int, typer.Option("--n", min=1, help="How many at most.")] = 10,
    as_json: AsJson = False,
    skip_bad: SkipBad = False,
) -> None:
    """Say which pictures to label next: those that the model is unsure of, and that are unlike one another."""
    from fscl.experiment.progress import Reporter

    found = load_taught(model).suggest(photos, n=n, skip_bad=skip_bad, report=Reporter().warn)
    if as_json:
        listed = [{"image": each.source, "ranked": each.ranked, "distance": each.distance} for each in found]
        say(json.dumps(listed, ensure_ascii=False, indent=1))
        return
    for each in found:
        say(f"{each.source}: {each.reason}")


def info(model: Model, as_json: AsJson = False) -> None:
    """What a model knows: its classes, stored examples, bytes and history."""
    classifier = load(model)
    about = classifier.about()
    if as_json:
        say(json.dumps(about, ensure_ascii=False, indent=1))
        return
    from fscl.classifier.words import about_lines

    for line in about_lines(about, classifier.estimate_):
        say(line)


def export(model: Model, out: Annotated[Path, typer.Argument(metavar="OUT.onnx", help="The file to write.")]) -> None:
    """Write extractor and head as one ONNX file, and its labels beside it."""
    written = load_taught(model).export(out)
    say(
        f"probabilities differ by at most {written.largest_difference:.1e} from the model's on {written.n_checked} "
        f"pictures, run by onnxruntime\nlabels: {written.labels_path}\n{written.path}"
    )


def check_model_folder(model: Path) -> bool:
    """Verify every file of a model; whether all is well."""
    from fscl.classifier.store.check import check_model

    found = check_model(model)
    for problem in found.problems:
        say(problem)
    if found.waiting:
        say("a lesson that was cut short waits in the journal; the next change completes it")
    if found.strays:
        say(f"{len(found.strays)} files that a stopped process left; the next change removes them")
    state = f"{len(found.problems)} bad" if found.problems else "all as they should be"
    say(f"{found.n_files} files, {found.n_bytes:,} bytes, {state}")
    return not found.problems


COMMANDS: dict[str, Callable[..., None]] = {
    "predict": predict,
    "test": examine,
    "suggest": suggest,
    "examples": examples,
    "info": info,
    "export": export,
}
