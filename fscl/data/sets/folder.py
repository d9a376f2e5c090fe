"""Pictures of your own as a data set: `train/`, `val/` and `test/`, or one sub-folder a class; see `fscl.data.folder`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fscl.data.dataset import DataSet, Progress, Tell
from fscl.data.folder import BadFiles, load_folder, load_split_folder
from fscl.data.pool import Splits, split_classes


class Folder(DataSet):
    """A folder of pictures."""

    name = "folder"
    summary = "Your own pictures, one sub-folder a class; or train/, val/ and test/ with one sub-folder a class each."

    class Options(DataSet.Options):
        """`channels` is 1 for grey and 3 for colour; `bad_files` is what to do about files that cannot serve."""

        name: Literal["folder"] = "folder"
        path: Path = Field(
            description="a folder with one sub-folder a class, or with train/val/test", examples=["YOUR/FOLDER"]
        )
        channels: Literal[1, 3] = 1
        bad_files: BadFiles = "refuse"

    def load(self, options: Options, progress: Progress | None = None, tell: Tell | None = None) -> Splits:
        """From `train|val|test/<class>`, or from one sub-folder a class: then all are to test on."""
        path, size, channels, bad_files = options.path, options.image_size, options.channels, options.bad_files
        if (path / "train").is_dir() and (path / "test").is_dir():
            return load_split_folder(path, image_size=size, channels=channels, bad_files=bad_files, report=tell)
        pool = load_folder(path, image_size=size, channels=channels, bad_files=bad_files, report=tell)
        return split_classes(pool, train=[], validation=[], test=range(len(pool)))

    def find(self) -> str | None:
        return "wherever you say"

    def vocabulary(self, options: Mapping[str, Any]) -> str:
        return f"folder {options.get('path')}"  # what a sub-folder is called means something in its own folder alone


FOLDER = Folder()
