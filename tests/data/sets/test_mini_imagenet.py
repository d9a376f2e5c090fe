"""miniImageNet: the layouts that people have, the real archive, and which copies are refused."""

import io
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fscl.data.archive import fingerprint, open_files
from fscl.data.imagenet_classes import MINI_IMAGENET
from fscl.data.limits import PHOTOS
from fscl.data.sets.mini_imagenet import MINI, _classes, load_mini_imagenet
from fscl.errors import DataError
from tests.conftest import jpeg, real_path

SHORT = {"train": "train", "validation": "val", "test": "test"}
FIRST = MINI_IMAGENET["train"][0]


def colour(number: int) -> tuple[int, int, int]:
    return 2 * number, 255 - 2 * number, 128


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`train|val|test/<class>` with two pictures a class, each class of its own colour."""
    root = tmp_path_factory.mktemp("folders") / "miniimagenet"
    for number, (split, name) in enumerate((split, name) for split, names in MINI_IMAGENET.items() for name in names):
        folder = root / SHORT[split] / name
        folder.mkdir(parents=True)
        for image in ("1", "2"):
            (folder / f"{name}0000000{image}.jpg").write_bytes(jpeg(colour(number)))
    return root


@pytest.fixture(scope="module")
def official(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same pictures as `images/*.jpg` with lists."""
    root = tmp_path_factory.mktemp("official") / "mini-imagenet"
    (root / "images").mkdir(parents=True)
    for split in SHORT.values():
        lines = ["filename,label"]
        for file in sorted((folders / split).rglob("*.jpg")):
            shutil.copy(file, root / "images")
            lines.append(f"{file.name},{file.parent.name}")
        (root / f"{split}.csv").write_text("\n".join(lines) + "\n")
    return root


def packed(folder: Path, archive: Path) -> Path:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as file:
            for path in sorted(folder.rglob("*")):
                file.write(path, path.relative_to(folder.parent))
    else:
        with tarfile.open(archive, "w:gz" if archive.suffix == ".tgz" else "w") as file:
            file.add(folder, folder.name)
    return archive


def refusal(path: Path, cache: Path) -> str:
    """The words of a refusal, which must leave nothing in the cache."""
    with pytest.raises(DataError) as caught:
        load_mini_imagenet(path=path)
    assert not cache.exists()
    return str(caught.value)


# ---- what is loaded ----


def test_the_classes_are_64_16_and_20_and_no_split_shares_one():
    assert [len(names) for names in MINI_IMAGENET.values()] == [64, 16, 20]
    assert len({name for names in MINI_IMAGENET.values() for name in names}) == 100


@pytest.mark.slow
def test_the_real_archive_has_every_class_with_as_many_images(empty_cache: Path):
    class Stopped(Exception):
        pass

    def stop(done: int, total: int) -> None:
        assert (done, total) == (100, 30_000)
        raise Stopped

    archive = real_path("mini/miniimagenet_64x64.tar")
    assert fingerprint(archive) == "b4a5b33216d0ac46fa88e2f889235506fabcdf2c20ce9babef00295226bc117b"
    with open_files(archive, PHOTOS) as files:
        classes = _classes(archive, files)
        assert {len(paths) for paths in classes.values()} == {300}
        picture = Image.open(io.BytesIO(files[classes[FIRST][0]]()))
        assert (picture.format, picture.mode, picture.size) == ("JPEG", "RGB", (64, 64))
    assert tuple(classes) == sum(MINI_IMAGENET.values(), ())
    assert MINI.locate(archive.parent.parent) == archive
    with pytest.raises(Stopped):
        load_mini_imagenet(path=archive, progress=stop)
    assert not empty_cache.exists()


@pytest.mark.parametrize("kind", ["folder", "mini-imagenet.zip", "miniImageNet.tar", "mini-imagenet.tgz"])
def test_both_layouts_are_read_from_folders_and_archives_alike(
    folders: Path, official: Path, empty_cache: Path, tmp_path: Path, kind: str
):
    hashes = set()
    for number, folder in enumerate((folders, official)):
        place = tmp_path / str(number)
        place.mkdir()
        source = folder if kind == "folder" else packed(folder, place / kind)
        splits = load_mini_imagenet(path=source, image_size=16)
        assert [len(pool) for pool in (splits.train, splits.validation, splits.test)] == [64, 16, 20]
        assert {*splits.train.counts, *splits.validation.counts, *splits.test.counts} == {2}
        assert splits.validation.image_shape == (3, 16, 16)
        hashes.add((splits.train.content_hash, splits.validation.content_hash, splits.test.content_hash))
    assert len(hashes) == 1


def test_each_class_has_its_own_images_at_64_pixels_unless_told(folders: Path, empty_cache: Path):
    splits = load_mini_imagenet(path=folders)
    assert splits.train.image_shape == (3, 64, 64)
    for number, pool in ((0, splits.train), (64, splits.validation), (80, splits.test)):
        found = pool.images[:2].float().mean(dim=(0, 2, 3)).numpy()
        assert np.abs(found - colour(number)).max() < 4  # what a JPEG loses


def test_the_second_load_comes_from_the_cache_with_the_same_bits(folders: Path, empty_cache: Path):
    first = load_mini_imagenet(path=folders, image_size=16)
    again = load_mini_imagenet(path=folders, image_size=16, progress=lambda *_: pytest.fail("decoded again"))
    assert first.test.content_hash == again.test.content_hash
    [cached] = (empty_cache / "prepared").iterdir()
    cached.write_bytes(cached.read_bytes()[:-10])
    told: list[tuple[int, int]] = []
    mended = load_mini_imagenet(path=folders, image_size=16, progress=lambda *step: told.append(step))
    assert told == [(100, 200), (200, 200)]
    assert mended.test.content_hash == first.test.content_hash


def test_classes_may_have_any_number_of_images_and_hidden_files_are_passed_over(
    folders: Path, empty_cache: Path, tmp_path: Path
):
    copy = Path(shutil.copytree(folders, tmp_path / "copy"))
    (copy / "train" / FIRST / "extra.JPEG").write_bytes(jpeg())
    (copy / "train" / FIRST / "._extra.jpg").write_bytes(b"what a Mac adds")
    (copy / "train" / ".DS_Store").write_bytes(b"")
    assert load_mini_imagenet(path=copy, image_size=16).train.counts[:2] == (3, 2)


def test_the_set_is_found_by_its_names_in_the_data_folder(
    folders: Path, empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FSCL_DATA", str(tmp_path / "data"))
    with pytest.raises(DataError, match=r"miniImageNet was not found in .*data.*\. Put a folder mini-imagenet/ with"):
        load_mini_imagenet()
    (tmp_path / "data").mkdir()
    packed(folders, tmp_path / "data" / "mini-imagenet-small.tar")
    assert MINI.locate() == tmp_path / "data" / "mini-imagenet-small.tar"
    shutil.copytree(folders, tmp_path / "data" / "mini-imagenet")
    assert MINI.locate() == tmp_path / "data" / "mini-imagenet"


def test_the_folder_may_be_the_one_that_we_are_in(folders: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folders)
    assert len(load_mini_imagenet(path=Path(), image_size=16).test) == 20
    monkeypatch.chdir(folders / "train")
    assert len(load_mini_imagenet(path=Path(".."), image_size=16).test) == 20


# ---- what is refused ----


@pytest.mark.parametrize(
    "name", ["mini-imagenet-cache-train.pkl", "miniImageNet_category_split_test.pickle", "mini-imagenet-cache-val.PKL"]
)
def test_pickles_are_refused_with_the_reason_and_never_opened(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    place = tmp_path / "data" / "mini-imagenet"
    place.mkdir(parents=True)
    (place / name).write_bytes(b"cos\nsystem\n(S'touch evil'\ntR.")
    monkeypatch.setenv("FSCL_DATA", str(tmp_path / "data"))
    for path in (None, place, place / name):
        with pytest.raises(DataError, match=r"is a pickle, and opening one executes the code in it\. Use the images"):
            load_mini_imagenet(path=path)


def without_a_class(root: Path) -> None:
    shutil.rmtree(root / "val" / MINI_IMAGENET["validation"][3])


def with_a_class_too_many(root: Path) -> None:
    shutil.copytree(root / "test" / MINI_IMAGENET["test"][0], root / "test" / "n00000001")


def with_a_class_moved(root: Path) -> None:
    (root / "train" / FIRST).rename(root / "test" / FIRST)


def with_a_stray(root: Path) -> None:
    (root / "cover.jpg").write_bytes(jpeg())


def with_text_for_a_picture(root: Path) -> None:
    (root / "train" / FIRST / f"{FIRST}00000001.jpg").write_bytes(b"text")


def with_a_picture_of_too_many_pixels(root: Path) -> None:
    Image.new("1", (10_000, 9000)).save(root / "train" / FIRST / "big.png")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (without_a_class, "in the validation split 1 of its 16 classes are missing, such as n02138441."),
        (with_a_class_too_many, "in the test split 1 classes do not belong there, such as 'n00000001'."),
        (with_a_class_moved, f"in the train split 1 of its 64 classes are missing, such as {FIRST}."),
        (with_a_stray, "its entry 'copy/cover.jpg' is not at train/<class>/, val/<class>/ or test/<class>/"),
        (with_text_for_a_picture, "00000001.jpg' is not an image of a known kind (JPEG, PNG)."),
        (with_a_picture_of_too_many_pixels, "big.png' is 10000×9000 pixels, over the 64 megapixels that are read"),
    ],
)
def test_a_folder_that_is_not_the_set_is_refused_by_name(
    folders: Path, empty_cache: Path, tmp_path: Path, damage: Callable[[Path], None], reason: str
):
    copy = Path(shutil.copytree(folders, tmp_path / "copy"))
    damage(copy)
    said = refusal(copy, empty_cache)
    assert said.startswith(f"{copy} is refused: ")
    assert reason in said


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda text: text.replace("0000001.jpg", "0000009.jpg"),
            "00000009.jpg', which is not in images/ (64 such of 128)",
        ),
        (lambda text: text.replace("filename,label\n", ""), "its train.csv is no list of lines `filename,label`"),
        (lambda text: text + "a,b,c\n", "its train.csv is no list of lines `filename,label`"),
        (lambda text: text + text.splitlines()[1] + "\n", f"its lists have '{FIRST}00000001.jpg' twice"),
        (lambda text: "", "its train.csv is no list of lines `filename,label`"),
    ],
)
def test_lists_that_do_not_fit_the_images_are_refused(
    official: Path, empty_cache: Path, tmp_path: Path, change: Callable[[str], str], reason: str
):
    copy = Path(shutil.copytree(official, tmp_path / "copy"))
    (copy / "train.csv").write_text(change((copy / "train.csv").read_text()))
    assert reason in refusal(copy, empty_cache)


def test_an_image_size_that_cannot_be_is_refused_before_anything_is_read(empty_cache: Path):
    with pytest.raises(DataError, match="image_size is 0"):
        load_mini_imagenet(image_size=0)
