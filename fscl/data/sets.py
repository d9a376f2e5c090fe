"""The table of data sets by name, and what a configuration says of one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fscl.data.folder import load_folder, load_split_folder
from fscl.data.glyphs import load_glyphs
from fscl.data.omniglot import fetch_omniglot, find_omniglot, load_omniglot
from fscl.data.pool import Splits, split_classes
from fscl.errors import MisuseError, unknown_name

LoadProgress = Callable[[int, int], None]
Tell = Callable[[str], None]


class DataSpec(BaseModel):
    """Which data, at which size, split how."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["glyphs", "omniglot", "folder"] = "glyphs"
    image_size: int = Field(default=32, ge=16, le=512)
    split: Literal["paper", "official", "vinyals"] | None = None
    path: str | None = None
    channels: Literal[1, 3] | None = None
    bad_files: Literal["refuse", "skip"] | None = None

    @model_validator(mode="after")
    def _keys_belong_to_their_set(self) -> "DataSpec":
        owners = {"split": "omniglot", "path": "folder", "channels": "folder", "bad_files": "folder"}
        for key, owner in owners.items():
            if getattr(self, key) is not None and self.name != owner:
                raise ValueError(f"{key} belongs to data.name = {owner!r}, but data.name is {self.name!r}")
        if self.name == "folder" and self.path is None:
            raise ValueError(
                "data.name = 'folder' needs path: a folder with one sub-folder a class, or with train/val/test"
            )
        return self


@dataclass(frozen=True)
class DataSet:
    """A row of the table. `find` says where the set is, if it is; `fetch` gets it, if it can be had from the network."""

    summary: str
    load: Callable[[DataSpec, LoadProgress | None, Tell | None], Splits]
    find: Callable[[], str | None]
    fetch: Callable[[], Path] | None = None


def _load_glyphs(spec: DataSpec, progress: LoadProgress | None, tell: Tell | None) -> Splits:
    return load_glyphs(image_size=spec.image_size, progress=progress)


def _load_omniglot(spec: DataSpec, progress: LoadProgress | None, tell: Tell | None) -> Splits:
    return load_omniglot(split=spec.split or "paper", image_size=spec.image_size, progress=progress)


def _load_folder(spec: DataSpec, progress: LoadProgress | None, tell: Tell | None) -> Splits:
    """From `train|val|test/<class>`, or from one sub-folder a class: then all are for testing, and the base is another's."""
    path, channels, bad_files = Path(spec.path or ""), spec.channels or 1, spec.bad_files or "refuse"
    if (path / "train").is_dir() and (path / "test").is_dir():
        return load_split_folder(path, image_size=spec.image_size, channels=channels, bad_files=bad_files, report=tell)
    pool = load_folder(path, image_size=spec.image_size, channels=channels, bad_files=bad_files, report=tell)
    return split_classes(pool, train=[], validation=[], test=range(len(pool)))


def _find_omniglot() -> str | None:
    found = find_omniglot()
    return None if found is None else str(found)


DATA_SETS: dict[str, DataSet] = {
    "glyphs": DataSet(
        "1,200 invented characters of 40 alphabets, 20 drawings each; made on the spot, nothing to download.",
        _load_glyphs,
        lambda: "made on the spot",
    ),
    "omniglot": DataSet(
        "1,623 handwritten characters of 50 alphabets, 20 drawings each (Lake et al. 2015).",
        _load_omniglot,
        _find_omniglot,
        fetch_omniglot,
    ),
    "folder": DataSet(
        "Your own pictures, one sub-folder a class; or train/, val/ and test/ with one sub-folder a class each.",
        _load_folder,
        lambda: "wherever you say",
    ),
}


def find_data_set(name: str) -> DataSet:
    """A row of the table, or an error with the nearest name."""
    if name not in DATA_SETS:
        raise unknown_name("data set", name, DATA_SETS)
    return DATA_SETS[name]


def load_splits(spec: DataSpec, progress: LoadProgress | None = None, tell: Tell | None = None) -> Splits:
    """The three pools of a data set; `tell` is called with a sentence for each file that is skipped."""
    return DATA_SETS[spec.name].load(spec, progress, tell)


def fetch(name: str) -> Path:
    """Get a data set from the network into the cache; does nothing where it is there already."""
    data_set = find_data_set(name)
    if data_set.fetch is None:
        raise MisuseError(f"{name!r} needs no fetching: it is {data_set.find()}.")
    return data_set.fetch()
