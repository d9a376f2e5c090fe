"""The table of data sets by name, and what a configuration says of one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from fscl.data.cub import CUB, CubSplit, load_cub
from fscl.data.folder import load_folder, load_split_folder
from fscl.data.glyphs import load_glyphs
from fscl.data.mini_fscil import load_mini_fscil
from fscl.data.mini_imagenet import MINI, load_mini_imagenet
from fscl.data.mini_imagenet_star import STAR, load_mini_imagenet_star
from fscl.data.omniglot import OmniglotSplit, fetch_omniglot, find_omniglot, load_omniglot
from fscl.data.photos import PHOTO_SIZE, PhotoSet
from fscl.data.pool import Splits, split_classes
from fscl.data.tiered_imagenet import IMAGES_PER_CLASS, TIERED, load_tiered_imagenet
from fscl.errors import MisuseError, unknown_name

LoadProgress = Callable[[int, int], None]
Tell = Callable[[str], None]


FSCIL = "mini-fscil"
PHOTO_SETS = (MINI.name, FSCIL, STAR.name, CUB.name, TIERED.name)
SPLITS = {"omniglot": get_args(OmniglotSplit), CUB.name: get_args(CubSplit)}
_OWNERS: dict[str, tuple[str, ...]] = {
    "split": tuple(SPLITS),
    "path": ("folder", *PHOTO_SETS),
    "channels": ("folder",),
    "bad_files": ("folder",),
    "images_per_class": (STAR.name, TIERED.name),
}


class DataSpec(BaseModel):
    """Which data, at which size, split how.

    Attributes:
        image_size: 64 for natural images and 32 for the others, unless given.
        path: the folder of your own pictures; for natural images the folder or archive, if it is not in a data folder.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal[
        "glyphs", "omniglot", "mini-imagenet", "mini-fscil", "mini-imagenet-star", "cub", "tiered-imagenet", "folder"
    ] = "glyphs"
    image_size: int = Field(default=32, ge=16, le=512)
    split: Literal["paper", "official", "vinyals", "fscl", "fscl-not-imagenet", "few-shot"] | None = None
    path: str | None = None
    channels: Literal[1, 3] | None = None
    bad_files: Literal["refuse", "skip"] | None = None
    images_per_class: int | None = Field(default=None, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _photos_are_larger(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("name") in PHOTO_SETS:
            return {"image_size": PHOTO_SIZE, **given}
        return given

    @model_validator(mode="after")
    def _keys_belong_to_their_set(self) -> "DataSpec":
        for key, owners in _OWNERS.items():
            if getattr(self, key) is not None and self.name not in owners:
                known = " or ".join(map(repr, owners))
                raise ValueError(f"{key} belongs to the data set {known}, but the name is {self.name!r}")
        if self.split is not None and self.split not in SPLITS[self.name]:
            known = ", ".join(SPLITS[self.name])
            raise ValueError(f"{self.name} has no split {self.split!r}; it has {known}")
        if self.name == "folder" and self.path is None:
            raise ValueError(
                "the name 'folder' needs path: a folder with one sub-folder a class, or with train/val/test"
            )
        return self

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without a key that came later and is not used: what is known of earlier runs and bases stays as it is."""
        content: dict[str, Any] = write(self)
        return {key: value for key, value in content.items() if key != "images_per_class" or value is not None}


def share_names(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a class of the same name is the same class in both of two data sets, given as in a configuration."""
    return _vocabulary(one) == _vocabulary(other)


def _vocabulary(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    name = spec.get("name")
    if name in (MINI.name, FSCIL, STAR.name, TIERED.name):
        return ("imagenet",)
    return (name, spec.get("path")) if name == "folder" else (name,)


@dataclass(frozen=True)
class DataSet:
    """A row of the table. `find` says where the set is, if it is; `fetch` gets it, if it can be had from the network."""

    summary: str
    load: Callable[[DataSpec, LoadProgress | None, Tell | None], Splits]
    find: Callable[[], str | None]
    fetch: Callable[[], Path] | None = None

    def how_to_get(self, name: str) -> str:
        """What to do about a set that is not here."""
        if self.fetch is None:
            return "docs/data.md says where to get it; then set FSCL_DATA to the folder that holds it"
        return f"`fscl data fetch {name}` gets it, or set FSCL_DATA to a folder that holds it"


def _load_glyphs(spec: DataSpec, progress: LoadProgress | None, tell: Tell | None) -> Splits:
    return load_glyphs(image_size=spec.image_size, progress=progress)


def _load_omniglot(spec: DataSpec, progress: LoadProgress | None, tell: Tell | None) -> Splits:
    split = cast(OmniglotSplit, spec.split or "paper")  # DataSpec has checked it
    return load_omniglot(split=split, image_size=spec.image_size, progress=progress)


def _load_mini(spec: DataSpec, progress: LoadProgress | None, tell: Tell | None) -> Splits:
    return load_mini_imagenet(image_size=spec.image_size, path=_path(spec), progress=progress)


def _load_fscil(spec: DataSpec, progress: LoadProgress | None, tell: Tell | None) -> Splits:
    return load_mini_fscil(image_size=spec.image_size, path=_path(spec), progress=progress)


def _load_star(spec: DataSpec, progress: LoadProgress | None, tell: Tell | None) -> Splits:
    n_images = IMAGES_PER_CLASS if spec.images_per_class is None else spec.images_per_class
    return load_mini_imagenet_star(
        image_size=spec.image_size, images_per_class=n_images, path=_path(spec), progress=progress
    )


def _load_cub(spec: DataSpec, progress: LoadProgress | None, tell: Tell | None) -> Splits:
    split = cast(CubSplit, spec.split or "fscl")  # DataSpec has checked it
    return load_cub(split=split, image_size=spec.image_size, path=_path(spec), progress=progress)


def _load_tiered(spec: DataSpec, progress: LoadProgress | None, tell: Tell | None) -> Splits:
    n_images = IMAGES_PER_CLASS if spec.images_per_class is None else spec.images_per_class
    return load_tiered_imagenet(
        image_size=spec.image_size, images_per_class=n_images, path=_path(spec), progress=progress
    )


def _path(spec: DataSpec) -> Path | None:
    return None if spec.path is None else Path(spec.path)


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


def _find(photos: PhotoSet) -> Callable[[], str | None]:
    def find() -> str | None:
        found = photos.find()
        return None if found is None else str(found)

    return find


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
    MINI.name: DataSet(
        "100 classes of ImageNet, 64/16/20 by Ravi and Larochelle (2017); in colour.",
        _load_mini,
        _find(MINI),
    ),
    FSCIL: DataSet(
        "miniImageNet for few-shot class-incremental learning: 60 base classes, then 8 times 5 (Tao et al. 2020).",
        _load_fscil,
        _find(MINI),
    ),
    STAR.name: DataSet(
        "miniImageNet*: its 100 classes, after a base of ImageNet's other 900, from your copy of ImageNet; in colour.",
        _load_star,
        _find(STAR),
    ),
    CUB.name: DataSet(
        "CUB-200-2011: 11,788 photographs of 200 kinds of birds (Wah et al. 2011); in colour.",
        _load_cub,
        _find(CUB),
    ),
    TIERED.name: DataSet(
        "608 classes of ImageNet in 34 super-classes, 351/97/160 (Ren et al. 2018), from your copy of ImageNet; in colour.",
        _load_tiered,
        _find(TIERED),
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
    if name in PHOTO_SETS:
        raise MisuseError(f"{name!r} is not fetched by fscl: its terms are its owners'. docs/data.md says where it is.")
    if data_set.fetch is None:
        raise MisuseError(f"{name!r} needs no fetching: it is {data_set.find()}.")
    return data_set.fetch()
