"""tieredImageNet: the published lists, read from a folder of ImageNet's; no real copy is at hand for these tests."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from fscl.data.imagenet_classes import MINI_IMAGENET, N_SUPER_CLASSES, TIERED_IMAGENET
from fscl.data.sets.tiered_imagenet import TIERED, load_tiered_imagenet
from fscl.errors import DataError, MisuseError
from tests.conftest import jpeg

ALL = [name for names in TIERED_IMAGENET.values() for name in names]
LAST = ALL[-1]


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`train/<class>/*.JPEG` with the 608 classes and one that is not among them; the last class has two images more."""
    root = tmp_path_factory.mktemp("data") / "imagenet"
    for number, name in enumerate([*ALL, "n99999999"]):
        (root / "train" / name).mkdir(parents=True)
        (root / "train" / name / f"{name}_10.JPEG").write_bytes(jpeg((number % 256, 90, 255 - number % 256)))
    for image in ("2", "3"):
        (root / "train" / LAST / f"{LAST}_{image}.JPEG").write_bytes(jpeg())
    return root


def test_the_lists_are_those_published():
    assert list(N_SUPER_CLASSES.values()) == [20, 6, 8]
    assert [len(names) for names in TIERED_IMAGENET.values()] == [351, 97, 160]
    assert len(set(ALL)) == 608
    assert all(len(name) == 9 and name[0] == "n" and name[1:].isdigit() for name in ALL)
    mini = {name for names in MINI_IMAGENET.values() for name in names}
    assert [len(mini & set(names)) for names in TIERED_IMAGENET.values()] == [31, 8, 19]  # counted elsewhere, too


def test_the_classes_are_picked_out_of_imagenet(imagenet: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FSCL_DATA", str(imagenet.parent))
    assert TIERED.locate() == imagenet
    splits = load_tiered_imagenet()
    assert tuple(pool.class_names for pool in (splits.train, splits.validation, splits.test)) == tuple(
        TIERED_IMAGENET.values()
    )
    assert splits.test.image_shape == (3, 64, 64)
    assert splits.test.counts == (1,) * 159 + (3,)
    found = splits.validation.images[0].float().mean(dim=(1, 2)).numpy()
    assert np.abs(found - (351 % 256, 90, 255 - 351 % 256)).max() < 4  # what a JPEG loses
    again = load_tiered_imagenet(progress=lambda *_: pytest.fail("decoded again"))
    assert again.test.content_hash == splits.test.content_hash


def test_the_number_of_images_a_class_can_be_chosen(imagenet: Path, empty_cache: Path):
    assert load_tiered_imagenet(path=imagenet, image_size=16, images_per_class=2).test.counts[-2:] == (1, 2)
    assert load_tiered_imagenet(path=imagenet, image_size=16, images_per_class=1).test.counts[-2:] == (1, 1)
    with pytest.raises(MisuseError, match="images_per_class is 0"):
        load_tiered_imagenet(path=imagenet, images_per_class=0)


def test_a_folder_that_is_split_already_is_read(imagenet: Path, empty_cache: Path, tmp_path: Path):
    copy = Path(shutil.copytree(imagenet, tmp_path / "tiered"))
    for split, short in (("validation", "val"), ("test", "test")):
        (copy / short).mkdir()
        for name in TIERED_IMAGENET[split]:
            (copy / "train" / name).rename(copy / short / name)
    one, other = (load_tiered_imagenet(path=path, image_size=16) for path in (imagenet, copy))
    assert one.test.content_hash == other.test.content_hash


def test_what_is_not_whole_is_refused_in_a_sentence(imagenet: Path, empty_cache: Path, tmp_path: Path):
    copy = Path(shutil.copytree(imagenet, tmp_path / "copy"))
    (copy / "train" / ALL[5] / f"{ALL[5]}_10.JPEG").unlink()
    with pytest.raises(DataError, match=f"1 of its classes have no image, such as {ALL[5]}"):
        load_tiered_imagenet(path=copy)
    (copy / "train" / ALL[5]).rmdir()
    with pytest.raises(DataError, match=f"1 of tieredImageNet's 608 classes are missing, such as train/{ALL[5]}"):
        load_tiered_imagenet(path=copy)
    (tmp_path / "tiered-imagenet").mkdir()
    (tmp_path / "tiered-imagenet" / "train_images_png.pkl").write_bytes(b"")
    with pytest.raises(DataError, match="is a pickle, and opening one executes the code in it"):
        load_tiered_imagenet(path=tmp_path / "tiered-imagenet")
    with pytest.raises(DataError, match="tieredImageNet was not found in"):
        load_tiered_imagenet(path=tmp_path / "nowhere")
    (tmp_path / "tiered.tar").write_bytes(b"")
    with pytest.raises(DataError, match="is read from a folder"):
        load_tiered_imagenet(path=tmp_path / "tiered.tar")
    assert not empty_cache.exists()


def test_more_than_fits_in_memory_is_refused_before_decoding(
    imagenet: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("fscl.data.photos.MAX_TENSOR_BYTES", 2**20)
    with pytest.raises(DataError, match=r"610 images of 64×64 pixels would take .* Choose a smaller image_size"):
        load_tiered_imagenet(path=imagenet, progress=lambda *_: pytest.fail("decoded"))
