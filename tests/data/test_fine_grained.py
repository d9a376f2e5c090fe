"""Birds and cars: what is loaded, from where, which classes are to choose on and which to test on, and what is refused."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fscl.data.catalogue import find_data_set, load_splits, read_options, share_names
from fscl.data.fine_grained import FineGrained
from fscl.data.pool import Splits
from fscl.data.sets.birds import BIRDS
from fscl.data.sets.cars import CARS
from fscl.errors import DataError
from tests.conftest import jpeg, real_path

BOTH = pytest.mark.parametrize("data_set", [BIRDS, CARS], ids=lambda data_set: data_set.name)
Files = dict[str, bytes]


def small(data_set: FineGrained, n_images: int = 2) -> Files:
    """The files of a small copy: every class in a colour of its own."""
    return {
        f"{name}/{image:02d}.jpg": jpeg((4 * number, 255 - 4 * number, 60))
        for number, name in enumerate(data_set.classes)
        for image in range(n_images)
    }


def written(folder: Path, files: Files) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def packed(archive: Path, files: Files, top: str) -> Path:
    with tarfile.open(archive, "w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return archive


def loaded(data_set: FineGrained, path: Path, image_size: int = 16) -> Splits:
    return load_splits(read_options({"name": data_set.name, "path": path, "image_size": image_size}))


# ---- what is loaded ----


@pytest.mark.parametrize(("name", "n_images"), [("birds", 1800), ("cars", 1799)])
def test_the_real_archives_have_60_classes_of_30_photographs_with_one_missing_car(
    name: str, n_images: int, empty_cache: Path
):
    archive = real_path(f"photos/{name}_144.tar")
    splits = loaded(find_data_set(name), archive, image_size=32)  # type: ignore[arg-type]
    assert [len(pool) for pool in (splits.train, splits.validation, splits.test)] == [0, 10, 50]
    assert sum(splits.validation.counts) + sum(splits.test.counts) == n_images
    assert min(splits.validation.counts + splits.test.counts) == (30 if name == "birds" else 29)
    assert float(splits.test.images.float().std()) > 30  # photographs, not blanks


@BOTH
def test_the_archive_of_the_data_folder_is_found(data_set: FineGrained, monkeypatch: pytest.MonkeyPatch):
    archive = real_path(f"photos/{data_set.name}_144.tar")
    monkeypatch.setenv("FSCL_DATA", str(archive.parent.parent))
    assert data_set.find() == str(archive)


@BOTH
def test_a_folder_and_a_tar_hold_the_same_and_classes_keep_their_pictures(
    data_set: FineGrained, empty_cache: Path, tmp_path: Path
):
    files = small(data_set)
    folder = written(tmp_path / data_set.name, files)
    archive = packed(tmp_path / f"{data_set.name}_144.tar", files, data_set.name)
    one, other = loaded(data_set, folder), loaded(data_set, archive)
    assert one.test.content_hash == other.test.content_hash
    assert one.validation.content_hash == other.validation.content_hash
    name = one.test.class_names[17]
    red = one.test.of_class(17).float().mean((0, 2, 3))[0]
    assert abs(float(red) - 4 * data_set.classes.index(name)) < 4  # what a JPEG loses


@BOTH
def test_the_classes_to_choose_on_are_always_the_same_ten(data_set: FineGrained, empty_cache: Path, tmp_path: Path):
    splits = [loaded(data_set, written(tmp_path / str(n) / data_set.name, small(data_set, n_images=n))) for n in (1, 2)]
    assert splits[0].validation.class_names == splits[1].validation.class_names
    assert {*splits[0].validation.class_names, *splits[0].test.class_names} == set(data_set.classes)
    first = {"birds": "030.Fish_Crow", "cars": "Aston_Martin_V8_Vantage_Coupe_2012"}
    assert splits[0].validation.class_names[0] == first[data_set.name]


@BOTH
def test_photographs_are_at_224_pixels_unless_told(data_set: FineGrained):
    assert read_options({"name": data_set.name}).image_size == 224


@BOTH
def test_the_set_is_found_unpacked_in_photos(
    data_set: FineGrained, empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FSCL_DATA", str(tmp_path))
    with pytest.raises(DataError, match=rf"the set of {data_set.name} was not found in .*Put the folder"):
        data_set.require()
    folder = written(tmp_path / "photos" / data_set.name, small(data_set, n_images=1))
    assert data_set.locate() == folder


def test_a_bird_is_the_same_class_as_in_cub_and_a_car_is_not():
    assert share_names({"name": "birds"}, {"name": "cub"})
    assert not share_names({"name": "cars"}, {"name": "cub"})


# ---- what is refused ----


def without_a_class(files: Files) -> None:
    for name in [name for name in files if name.startswith("047.")]:
        del files[name]


def with_another_class(files: Files) -> None:
    files["201.Dodo/00.jpg"] = jpeg()


def with_a_picture_at_its_top(files: Files) -> None:
    files["00.jpg"] = jpeg()


def with_a_damaged_picture(files: Files) -> None:
    files["047.American_Goldfinch/00.jpg"] = jpeg()[:200]


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (without_a_class, "1 of the 60 classes of 'birds' have no photograph, such as '047.American_Goldfinch'"),
        (with_another_class, "'birds/201.Dodo/00.jpg' is of none of the 60 classes of 'birds'"),
        (with_a_picture_at_its_top, "'birds/00.jpg' is of none of the 60 classes"),
        (with_a_damaged_picture, "its entry 'birds/047.American_Goldfinch/00.jpg' cannot be decoded"),
    ],
)
def test_what_is_no_whole_copy_is_refused(
    spoil: Callable[[Files], None], sentence: str, empty_cache: Path, tmp_path: Path
):
    files = small(BIRDS)
    spoil(files)
    with pytest.raises(DataError, match=sentence):
        loaded(BIRDS, packed(tmp_path / "birds_144.tar", files, "birds"))


def test_an_archive_with_a_path_that_leads_out_of_it_is_refused(empty_cache: Path, tmp_path: Path):
    archive = packed(tmp_path / "birds_144.tar", {**small(BIRDS), "../../00.jpg": jpeg()}, "birds")
    with pytest.raises(DataError, match="has a path that leaves its folder"):
        loaded(BIRDS, archive)
