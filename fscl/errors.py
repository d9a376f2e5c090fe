"""Every error that fscl raises on purpose. Each message says the value, the rule and the way out.

FsclError
├── MisuseError            the caller asked for something that cannot be (exit code 2)
│   ├── ConfigError            a configuration file, key or value
│   └── UnknownName            a method, data set, base or split that does not exist
├── DataError              images, classes or archives that cannot serve what was asked
├── StorageError           a file that is truncated, tampered with, or of another version
├── ModelBusy              a model that another process is changing
├── ModelReplaced          a folder that holds another model than the one that was loaded from it
├── RunError               a run directory that cannot be started or continued
│   ├── OtherRun               the directory holds a run of another configuration
│   └── CellsFailed            some cells of a run failed; the others are kept
├── Divergence             a loss that is no longer a finite number
└── Interrupted            stopped by the user; what was done is saved
"""

import difflib
from collections.abc import Iterable


class FsclError(Exception):
    """Base of every error that fscl raises on purpose; the command line prints it as one sentence and exits with 1.

    Examples:
        >>> import fscl
        >>> try:
        ...     fscl.find_method("ecw")
        ... except FsclError as error:
        ...     print(str(error).split(" Known")[0])
        no method named 'ecw'. Did you mean 'ewc'?
    """


class MisuseError(FsclError):
    """The request itself is wrong; the command line exits with 2."""


class ConfigError(MisuseError):
    """A configuration file, key or value is wrong."""


class UnknownName(MisuseError):
    """No method, data set, base or split has this name."""


class DataError(FsclError):
    """Images, classes or archives cannot serve what was asked."""


class StorageError(FsclError):
    """A stored file is truncated, tampered with, or of another version."""


class ModelBusy(FsclError):
    """Another process is changing the model."""


class ModelReplaced(FsclError):
    """The folder of a model holds another one by now."""


class RunError(FsclError):
    """A run directory cannot be started or continued."""


class OtherRun(RunError):
    """The directory holds a run of another configuration or version."""


class CellsFailed(RunError):
    """Some cells of a run failed, each for a reason of its own; the others are kept."""

    def __init__(self, message: str, failures: Iterable[FsclError] = ()) -> None:
        super().__init__(message)
        self.failures = tuple(failures)


class Divergence(FsclError):
    """A loss is no longer a finite number."""


class Interrupted(FsclError):
    """The user stopped the work; what was done is saved."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownName:
    """The error for a name that does not exist, with the nearest known one."""
    names = sorted(known)
    return UnknownName(f"no {kind} named {name!r}.{suggestion(name, names)} Known: {', '.join(names)}.")


def suggestion(name: str, known: Iterable[str]) -> str:
    """ " Did you mean 'x'?", or nothing when no known name is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""
