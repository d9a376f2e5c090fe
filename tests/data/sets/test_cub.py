"""CUB-200-2011: the official layout, the real archive, and which copies are refused."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fscl.data.archive import fingerprint, open_files
from fscl.data.limits import PHOTOS
from fscl.data.sets.cub import CUB, _classes, _in_imagenet, load_cub
from fscl.errors import DataError, UnknownName
from tests.conftest import jpeg, real_path
from tests.data.birds import NAMES, birds, colour, written


def packed(archive: Path, files: dict[str, bytes]) -> Path:
    """As the official archive is: images before lists, classes in no order, and a file beside the folder."""
    with tarfile.open(archive, "w:gz" if archive.suffix == ".tgz" else "w") as tar:
        for name in ["attributes.txt", *sorted(files, reverse=True)]:
            entry = tarfile.TarInfo(name if name == "attributes.txt" else f"CUB_200_2011/{name}")
            content = files.get(name, b"1 has_bill_shape::curved")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return archive


# ---- what is loaded ----


def test_the_real_archive_has_200_classes_and_11788_images(empty_cache: Path):
    archive = real_path("cub/CUB_200_2011_64x64.tar")
    assert fingerprint(archive) == "54e6236d6ab60f6d8fd9a84c80f289d7c6f0d24b79fcf2966cdb77d23c0b4aa8"
    with open_files(archive, PHOTOS) as files:
        classes = _classes(archive, files)
    assert len(classes) == 200
    assert sum(map(len, classes.values())) == 11_788
    counts = [len(images) for images in classes.values()]
    assert (min(counts), max(counts)) == (41, 60)
    assert list(classes)[:2] == ["001.Black_footed_Albatross", "002.Laysan_Albatross"]
    assert CUB.locate(archive.parent.parent) == archive


def test_the_43_photographs_that_are_in_imagenet_can_be_left_out(empty_cache: Path, tmp_path: Path):
    archive = real_path("cub/CUB_200_2011_64x64.tar")
    with open_files(archive, PHOTOS) as files:
        every, kept = _classes(archive, files), _classes(archive, files, dropped=_in_imagenet())
    left_out = {name: set(every[name]) - set(kept[name]) for name in every}
    assert sum(map(len, left_out.values())) == 43
    assert len(left_out["014.Indigo_Bunting"]) == 8
    assert len([name for name in every if left_out[name]]) == 11

    files = birds()
    files["images/001.Bird_1/Mallard_0067_77623.jpg"] = jpeg()
    files["images.txt"] += b"301 001.Bird_1/Mallard_0067_77623.jpg\n"
    folder = written(tmp_path, files)
    for split, count in (("fscl", 2), ("fscl-not-imagenet", 1), ("fscl", 2)):  # the cache keeps them apart
        splits = load_cub(path=folder, image_size=16, split=split)
        assert (len(splits.test), splits.test.counts[0]) == (200, count)


def test_a_folder_a_tar_and_a_compressed_tar_hold_the_same(empty_cache: Path, tmp_path: Path):
    files = birds()
    sources = [written(tmp_path, files), packed(tmp_path / "CUB_200_2011.tar", files)]
    sources.append(packed(tmp_path / "CUB_200_2011.tgz", files))
    pools = [load_cub(path=source).test for source in sources]
    assert len({pool.content_hash for pool in pools}) == 1
    assert pools[0].image_shape == (3, 64, 64)
    assert pools[0].class_names == tuple(NAMES)
    assert pools[0].counts == (1, 2) * 100
    for number in (0, 1, 199):
        found = pools[2].of_class(number).float().mean(dim=(0, 2, 3)).numpy()
        assert np.abs(found - colour(number)).max() < 4  # what a JPEG loses


def test_the_splits_are_all_to_test_on_or_100_50_and_50_by_number(empty_cache: Path, tmp_path: Path):
    folder = written(tmp_path, birds())
    whole = load_cub(path=folder, image_size=16)
    assert [len(pool) for pool in (whole.train, whole.validation, whole.test)] == [0, 0, 200]
    few = load_cub(path=folder, image_size=16, split="few-shot")
    assert [len(pool) for pool in (few.train, few.validation, few.test)] == [100, 50, 50]
    assert few.train.class_names[:3] == ("001.Bird_1", "003.Bird_3", "005.Bird_5")
    assert few.validation.class_names[:3] == ("002.Bird_2", "006.Bird_6", "010.Bird_10")
    assert few.test.class_names[:3] == ("004.Bird_4", "008.Bird_8", "012.Bird_12")


def test_the_set_is_found_by_its_names(empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FSCL_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"CUB-200-2011 was not found in .*Put the folder CUB_200_2011/ or the archive"):
        load_cub()
    archive = packed(tmp_path / "CUB_200_2011.tgz", {})
    assert CUB.locate() == archive
    folder = written(tmp_path, birds())
    assert CUB.locate() == folder


# ---- what is refused ----


def without_an_image(files: dict[str, bytes]) -> None:
    del files["images/002.Bird_2/Bird_1.jpg"]


def with_an_image_too_many(files: dict[str, bytes]) -> None:
    files["images/002.Bird_2/Other.jpg"] = jpeg()


def without_a_class(files: dict[str, bytes]) -> None:
    files["classes.txt"] = files["classes.txt"].replace(b"200 200.Bird_200\n", b"")


def with_a_class_twice(files: dict[str, bytes]) -> None:
    files["classes.txt"] = files["classes.txt"].replace(b"200.Bird_200", b"199.Bird_199")


def with_a_class_renamed(files: dict[str, bytes]) -> None:
    files["classes.txt"] = files["classes.txt"].replace(b"200.Bird_200", b"200.Parrot")


def with_an_empty_class(files: dict[str, bytes]) -> None:
    del files["images/001.Bird_1/Bird_0.jpg"]
    files["images.txt"] = files["images.txt"].replace(b"1 001.Bird_1/Bird_0.jpg\n", b"", 1)


def without_lists(files: dict[str, bytes]) -> None:
    del files["images.txt"]


def with_a_broken_list(files: dict[str, bytes]) -> None:
    files["images.txt"] += b"one more\n"


def with_a_list_that_is_no_text(files: dict[str, bytes]) -> None:
    files["classes.txt"] = b"\xff\xfe" * 100


def with_a_damaged_image(files: dict[str, bytes]) -> None:
    picture = io.BytesIO()
    Image.effect_noise((64, 64), 50).convert("RGB").save(picture, "JPEG")
    files["images/001.Bird_1/Bird_0.jpg"] = picture.getvalue()[:700]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (without_an_image, "lists '002.Bird_2/Bird_1.jpg', which is not in images/ (1 such of 300)"),
        (with_an_image_too_many, "its images/ has '002.Bird_2/Other.jpg', which images.txt does not list"),
        (without_a_class, "its classes.txt has 199 classes, not 200"),
        (with_a_class_twice, "its classes.txt has 199 classes, not 200"),
        (with_a_class_renamed, "has '200.Bird_200/Bird_0.jpg', whose class is not in classes.txt"),
        (with_an_empty_class, "1 of its classes have no image, such as '001.Bird_1'"),
        (without_lists, "it has 0 files images.txt at its top, not one"),
        (with_a_broken_list, "its images.txt has lines that are not a number and a name"),
        (with_a_list_that_is_no_text, "classes.txt' is not text in UTF-8"),
        (with_a_damaged_image, "'CUB_200_2011/images/001.Bird_1/Bird_0.jpg' cannot be decoded"),
    ],
)
def test_a_copy_that_is_not_whole_is_refused_by_name(
    empty_cache: Path, tmp_path: Path, damage: Callable[[dict[str, bytes]], None], reason: str
):
    files = birds()
    damage(files)
    archive = packed(tmp_path / "CUB_200_2011.tar", files)
    with pytest.raises(DataError) as caught:
        load_cub(path=archive)
    assert str(caught.value).startswith(f"{archive} is refused: ")
    assert reason in str(caught.value)
    assert not empty_cache.exists()


def test_an_unknown_split_is_answered_with_the_known_ones():
    with pytest.raises(UnknownName, match="Did you mean 'few-shot'"):
        load_cub(split="few_shot")  # type: ignore[arg-type]
