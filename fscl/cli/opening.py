"""What commands share."""

import functools
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fscl.errors import DataError, FsclError, Interrupted

if TYPE_CHECKING:
    from fscl.classifier.labels import Label
    from fscl.estimator import ContinualClassifier

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a model.")]
ClassName = Annotated[str, typer.Argument(metavar="CLASS", help="The name of a class.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out files that cannot be read.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


def say(text: str) -> None:
    """Print a result; names of files and classes cannot steer the terminal."""
    from fscl.data.names import printable

    typer.echo(printable(text))


def prepare() -> None:
    """Set the process up as everything here wants it."""
    from fscl.process import configure_process

    configure_process()


def telling(command: Callable[..., None]) -> Callable[..., None]:
    """A command that changes a model and, if Ctrl-C stops it, says whether the model was changed before that."""

    @functools.wraps(command)
    def told(*arguments: Any, **options: Any) -> None:
        from fscl.classifier.store.manifest import read_manifest

        folder: Path = options["model"]

        def seal() -> str | None:
            try:
                return read_manifest(folder).seal
            except FsclError:
                return None

        before = seal()
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            if seal() == before:
                raise Interrupted(f"stopped; {folder} is as it was before the command.") from None
            raise Interrupted(
                f"stopped, but {folder} was changed before that, as asked: do not repeat the command. Its last call is now "
                f"{_last_call(folder)}."
            ) from None

    return told


def _last_call(folder: Path) -> str:
    from fscl.classifier.words import event_line

    history = load(folder).history_
    return event_line(history[-1]) if history else "none: it has learned nothing"


@contextmanager
def terminated_like_ctrl_c() -> Iterator[None]:
    """SIGTERM, as a batch system sends it, stops the work as Ctrl-C does: what is done is saved."""

    def stop(number: int, frame: FrameType | None) -> None:
        as_ctrl_c = signal.getsignal(signal.SIGINT)
        if not callable(as_ctrl_c):  # a shell starts what runs in the background with Ctrl-C ignored
            raise KeyboardInterrupt
        as_ctrl_c(number, frame)

    try:
        previous = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread: the caller handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


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
