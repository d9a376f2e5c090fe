"""Where data files are looked for, and how they are fetched: whole and with the right checksum, or not at all."""

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

from fscl.errors import DataError
from fscl.storage import cache_folder

TIMEOUT = 30  # seconds without a byte
_CHUNK = 64 * 1024  # bytes


def data_folders() -> list[Path]:
    """The folders in which data is looked for, in order: `FSCL_DATA` if it is set, then the user's cache."""
    given = os.environ.get("FSCL_DATA")
    return [*([Path(given)] if given else []), cache_folder() / "data"]


def find_in_data_folders(candidates: Sequence[str | Path], *, first: Path | None = None) -> Path | None:
    """The first path that exists, trying every candidate in one data folder before the next.

    Args:
        candidates: paths relative to a data folder.
        first: a folder to try before the others.
    """
    for folder in [*([first] if first else []), *data_folders()]:
        for candidate in candidates:
            if (folder / candidate).exists():
                return folder / candidate
    return None


def download(url: str, *, md5: str, folder: Path, filename: str, progress: bool = True) -> Path:
    """Fetch a file into `folder`, unless it is there already with the right checksum.

    It is written under another name and takes its own only when it is whole and its checksum is right.

    Args:
        url: where it comes from.
        md5: the checksum it must have.
        folder: where it goes; made if needed.
        filename: what it is called there.
        progress: show a bar on stderr, if that is a terminal.
    """
    import pooch  # slow to import, and rarely needed
    from requests import RequestException

    shown = progress and sys.stderr.isatty()
    try:
        with _quiet(pooch.get_logger()), closing(_Bar(filename)) if shown else nullcontext() as bar:
            downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=_CHUNK, timeout=TIMEOUT)
            return Path(pooch.retrieve(url, f"md5:{md5}", fname=filename, path=folder, downloader=downloader))
    except RequestException as error:
        problem = _network_problem(error)
    except OSError as error:
        problem = f"cannot write to {folder} ({error.strerror or error})"
    except ValueError as error:
        if "hash" not in str(error):
            raise
        problem = f"what came has another checksum than md5 {md5}, so it was not kept"
    raise DataError(
        f"cannot fetch {filename} from {url}: {problem}. Try again, put the file at {folder / filename} by hand, "
        "or set FSCL_DATA to a folder that has the data."
    )


def _network_problem(error: Exception) -> str:
    from requests import exceptions

    if isinstance(error, exceptions.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}".rstrip()
    if isinstance(error, exceptions.Timeout):
        return f"no answer within {TIMEOUT} s"
    if isinstance(error, exceptions.ChunkedEncodingError):
        return "the connection broke before the file was whole"
    if isinstance(error, exceptions.ConnectionError):
        return "no connection to the server"
    return f"the request failed ({type(error).__name__})"


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Bar:
    """A rich progress bar with the four names by which pooch drives one."""

    def __init__(self, label: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._task = self._progress.add_task(label, total=None)
        self._progress.start()

    @property
    def total(self) -> float | None:
        return self._progress.tasks[0].total

    @total.setter
    def total(self, n_bytes: float) -> None:
        self._progress.update(self._task, total=n_bytes or None)  # 0 is "unknown" in pooch, None in rich

    def update(self, n_bytes: float) -> None:
        self._progress.advance(self._task, n_bytes)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.stop()
