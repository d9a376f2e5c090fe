"""Files that are made to be downloaded: the model as ONNX, or its whole folder."""

import subprocess
import sys
import tempfile
import threading
import zipfile
from collections import OrderedDict
from pathlib import Path

from fscl.classifier.store.lock import writing
from fscl.errors import MisuseError
from fscl.serve.jobs import Job
from fscl.serve.tray import FOLDER

NOT_EXPORTED = ("lock", "writer", FOLDER, "journal")
MAX_EXPORTS = 5
_ONE_AT_A_TIME = threading.Lock()


class Exports:
    """The last few files that were made to be downloaded; they go with the server."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.files: OrderedDict[str, tuple[Path, str]] = OrderedDict()

    def path(self) -> Path:
        """The folder that they are in."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="fscl-export-", ignore_cleanup_errors=True)
        return Path(self._folder.name)

    def close(self) -> None:
        """Delete them."""
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, key: str, path: Path, name: str) -> None:
        """Offer one more; the oldest goes."""
        self.files[key] = (path, name)
        while len(self.files) > MAX_EXPORTS:
            _, (old, _) = self.files.popitem(last=False)
            old.unlink(missing_ok=True)


def write_onnx(path: Path, folder: Path, job: Job) -> list[str]:
    """The ONNX file and its labels in one zip; what to say about it.

    By the command line, in a process of its own: torch's exporter is not safe beside other threads that compute, and a
    process can be stopped.
    """
    with _ONE_AT_A_TIME, tempfile.TemporaryDirectory() as place:
        out = Path(place) / "model.onnx"
        command = [sys.executable, "-m", "fscl", "export", str(folder.resolve()), str(out)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=place) as child:
            try:
                said, sentence = _ended(child, job)
            finally:
                child.kill()
        if child.returncode:
            lines = sentence.strip().splitlines()
            raise MisuseError(lines[-1].removeprefix("fscl: ") if lines else "the export failed.")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            for each in sorted(Path(place).iterdir()):
                packed.write(each, each.name)
    return said.splitlines()[:1]


def _ended(child: "subprocess.Popen[str]", job: Job) -> tuple[str, str]:
    """What a process wrote, once it has ended; it is looked at often, so that the job can be stopped."""
    while True:
        job.check()
        try:
            return child.communicate(timeout=0.2)
        except subprocess.TimeoutExpired:
            continue


def write_model(path: Path, folder: Path) -> list[str]:
    """The folder in one zip, under the lock, so that it is of one moment."""
    with writing(folder), zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as packed:
        files = [each for each in sorted(folder.rglob("*")) if each.is_file() and not each.is_symlink()]
        for each in files:
            inside = each.relative_to(folder)
            if inside.parts[0] not in NOT_EXPORTED:
                packed.write(each, Path(folder.resolve().name) / inside)
    return ["unpack it, and `fscl serve` or any other command takes the folder"]
