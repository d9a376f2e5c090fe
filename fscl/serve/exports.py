"""Files that are made to be downloaded: the model as ONNX, or its whole folder."""

import tempfile
import zipfile
from collections import OrderedDict
from pathlib import Path

from fscl.classifier.store.lock import writing
from fscl.serve.present import Present
from fscl.serve.tray import FOLDER

NOT_EXPORTED = ("lock", "writer", FOLDER, "journal")
MAX_EXPORTS = 5


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


def write_onnx(path: Path, present: Present) -> list[str]:
    """The ONNX file and its labels in one zip; what to say about it."""
    from fscl.classifier.export import export_onnx  # slow to import

    with tempfile.TemporaryDirectory() as place:
        written = export_onnx(Path(place) / "model.onnx", present.snapshot, present.model.shape)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            for each in (written.path, written.labels_path):
                packed.write(each, each.name)
    return [
        f"probabilities differ by at most {written.largest_difference:.1e} from the model's on {written.n_checked} pictures"
    ]


def write_model(path: Path, folder: Path) -> list[str]:
    """The folder in one zip, under the lock, so that it is of one moment."""
    with writing(folder), zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as packed:
        files = [each for each in sorted(folder.rglob("*")) if each.is_file() and not each.is_symlink()]
        for each in files:
            inside = each.relative_to(folder)
            if inside.parts[0] not in NOT_EXPORTED:
                packed.write(each, Path(folder.resolve().name) / inside)
    return ["unpack it, and `fscl serve` or any other command takes the folder"]
