"""What the commands for a classifier share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fscl.errors import DataError

if TYPE_CHECKING:
    from fscl.classifier.labels import Label
    from fscl.estimator import ContinualClassifier

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a model.")]
ClassName = Annotated[str, typer.Argument(metavar="CLASS", help="The name of a class.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out files that cannot be read.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


def prepare() -> None:
    """Set the process up as everything here wants it."""
    from fscl.process import configure_process

    configure_process()


def load(model: Path) -> "ContinualClassifier":
    """The model in a folder."""
    prepare()
    from fscl.estimator import ContinualClassifier

    return ContinualClassifier.load(model)


def load_taught(model: Path) -> "ContinualClassifier":
    """The model in a folder, which must have learned something."""
    classifier = load(model)
    if not classifier.class_accuracy_:
        raise DataError(f"{model} has learned nothing yet; teach it with `fscl learn {model} FOLDER`.")
    return classifier


def label_of(classifier: "ContinualClassifier", name: str) -> "Label":
    """The class of this name, whatever the kind of its label; a name that is not known is itself."""
    return next((label for label in classifier.class_accuracy_ if str(label) == name), name)
