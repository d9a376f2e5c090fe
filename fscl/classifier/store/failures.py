"""What is said when the disk refuses to be written to: whether a change was made, or not."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fscl.errors import StorageError


def not_written(folder: Path, error: OSError) -> StorageError:
    """For what comes before a commit."""
    return StorageError(f"cannot write to {folder}: {error.strerror or error}. The model is as it was before the call.")


@contextmanager
def after_the_fact(folder: Path) -> Iterator[None]:
    """For what comes after a commit: its failure does not take the change back, and must not say so."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{folder} was changed as asked, but what follows failed: {error.strerror or error}. It is a whole model; the "
            "next change sweeps up."
        ) from error
